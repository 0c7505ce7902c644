"""What nodes write for each other can be read again, and what others wrote is refused in one line."""

from __future__ import annotations

import json
import os

import pytest
from hostile_records import RECORDS, TEXT, values
from hypothesis import given
from hypothesis import strategies as st

from holdfast.coordination.model import Entry
from holdfast.decoding import LINE_MAX_CHARS, NAME_MAX_CHARS, TEXT_MAX_CHARS
from holdfast.errors.text import visible
from holdfast.rendezvous.errors import RendezvousStateError
from holdfast.rendezvous.records import (
    WORLD_MAX,
    BreakKind,
    Broken,
    End,
    Failure,
    Generation,
    Keys,
    Member,
    Node,
    StacksRequest,
    decode,
    encode,
)

KINDS = tuple(RECORDS)


def entry(value):
    return Entry("runs/job/group/shared/x", value, 1, 1)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_every_record_comes_back_as_it_was_written(kind, data):
    record = data.draw(RECORDS[kind])
    assert decode(entry(encode(record)), kind) == record


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_whatever_is_there_is_a_record_or_one_kind_of_error(kind, data):
    value = data.draw(values(kind))
    problem, record = "", None
    try:
        record = decode(entry(value), kind)
    except RendezvousStateError as error:
        problem = str(error)
    assert len(problem) < 1000
    assert visible(problem) == problem
    assert record is None or decode(entry(encode(record)), kind) == record


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"no json",
        b"[1, 2]",
        b'{"number": "one"}',
        b"\xff\x00",
        b'{"host": "\xff"}',
        b'{"reason": "\xff"}',
        b'{"master_address": "\xff"}',
        b"{}",
        b"[" * 100_000,
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_record_is_an_error_that_names_the_key(kind, value):
    with pytest.raises(RendezvousStateError, match=r"^runs/job/group/shared/x in the store .* run id\?$"):
        decode(entry(value), kind)


def test_a_record_of_a_newer_version_with_more_fields_is_read():
    node = Node("h", "1.2.3.4", 29500, "worker", 8)
    assert decode(entry(encode(node)[:-1] + b',"colour":"blue"}'), Node) == node


NODE = {"host": "h", "address": "1.2.3.4", "port": 29500, "role": "worker", "workers": 8}
MEMBER = ["a.1", "h", "1.2.3.4", "worker", 8]
GENERATION = {
    "number": 1,
    "members": [MEMBER],
    "master_address": "a",
    "master_port": 1,
    "restarts": 0,
    "max_restarts": 0,
}
REQUEST = {"generation": 1, "id": "20260101-ab", "node": "a.1", "reason": "r"}


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (Node, {"port": 65536}),
        (Node, {"port": -1}),
        (Node, {"workers": -1}),
        (Node, {"workers": 10**9}),
        (Node, {"stopped": 2**63}),
        (Node, {"known": -1}),
        (Node, {"addresses": ["1.2.3.4"] * 300}),
        (Node, {"lease_s": 1e300}),
        (Node, {"lease_s": -1}),
        (Node, {"job": "a\nb"}),
        (Node, {"rank": -2}),
        (Generation, {"members": []}),
        (Generation, {"members": [MEMBER] * 70_000}),
        (Generation, {"members": [[*MEMBER[:4], 65_536]] * (WORLD_MAX // 65_536 + 1)}),
        (Generation, {"members": [["x" * 300, *MEMBER[1:]]]}),
        (Generation, {"number": 0}),
        (Generation, {"master_port": 70_000}),
        (Generation, {"lost": ["x" * 300]}),
        (StacksRequest, {"id": "../../settings"}),
        (StacksRequest, {"id": "a\u0000b"}),
        (StacksRequest, {"id": "a\n"}),
        (StacksRequest, {"id": ""}),
        (StacksRequest, {"node": "a b"}),
    ],
    ids=str,
)
def test_what_is_beyond_a_limit_is_no_record(kind, fields):
    valid = {Node: NODE, Generation: GENERATION, StacksRequest: REQUEST}[kind]
    decode(entry(json.dumps(valid).encode()), kind)
    with pytest.raises(RendezvousStateError):
        decode(entry(json.dumps(valid | fields).encode()), kind)


def test_texts_are_cut_and_made_visible():
    hostile = "\x1b[2J\n" + "x" * 900_000
    node = decode(entry(json.dumps(NODE | {"host": hostile, "address": "a\0b", "role": hostile}).encode()), Node)
    assert node.host.startswith("\\x1b[2J\\nxxx")
    assert (len(node.host), len(node.role), node.address) == (NAME_MAX_CHARS, NAME_MAX_CHARS, "a\\x00b")
    failure = Failure("a.1", hostile, 0, 0, 1, 1, hostile, 1.0, traceback=hostile + "\n\x1bthe end", where=hostile)
    assert (len(failure.message), len(failure.where)) == (TEXT_MAX_CHARS, LINE_MAX_CHARS)
    assert failure.traceback.endswith("x\n\\x1bthe end")
    assert len(failure.traceback) == TEXT_MAX_CHARS


def test_a_rank_is_the_place_among_the_members():
    members = tuple(Member(name, name, name, "worker", 8) for name in ("a.1", "b.1"))
    generation = Generation(3, members, "a", 29500, 0, 1)
    assert [generation.rank_of(node) for node in ("a.1", "b.1", "c.1", "")] == [0, 1, None, None]


def test_the_keys_of_a_run_never_begin_with_the_name_of_another():
    """Somebody who deletes by prefix and leaves out the slash at the end."""
    one, ten = ((keys.group, keys.values) for keys in (Keys("job1"), Keys("job10")))
    run = os.path.commonpath(one)
    assert run.endswith("job1")
    assert not any(key.startswith((run, "runs/job1")) for key in ten)


@given(TEXT, TEXT)
def test_runs_of_different_names_share_no_keys(one, other):
    keys, others = Keys(one), Keys(other)
    if one != other:
        for key in (keys.group, keys.values):
            assert not key.startswith((others.group, others.values))


def test_all_that_everybody_watches_is_shared_and_all_of_it_is_the_groups():
    keys = Keys("job/1")
    for key in (keys.leader, keys.generation, keys.broken, keys.end):
        assert key.startswith(keys.shared)
    for key in (keys.shared, keys.node("a.1"), keys.done_by(1, "a.1")):
        assert key.startswith(keys.group)
    assert not keys.node("a.1").startswith(keys.shared)
    assert not keys.values_of(1).startswith(keys.group)
    assert not keys.values_of(11).startswith(keys.values_of(1))


def test_a_failure_travels_with_the_end():
    failure = Failure("a.1", "a", 3, 3, 77, 1, "exit code 1", 12.5, traceback="Traceback ...")
    end = End("failed", "rank 3 failed", failure)
    assert decode(entry(encode(end)), End).failure == failure


@pytest.mark.parametrize("text", ["/logs/\udcff", "\ud800", "a\udc80b"])
def test_text_that_no_store_takes_is_told_with_escapes(text):
    failure = Failure("a.1", text, 0, 0, 1, 1, text, 0.0, error_file=text, traceback=text)
    told = decode(entry(encode(Broken(1, BreakKind.FAILED, text, failure))), Broken)
    shown = text.encode("utf-8", "backslashreplace").decode()
    assert told == Broken(1, BreakKind.FAILED, shown, Failure("a.1", shown, 0, 0, 1, 1, shown, 0.0, shown, shown))
    generation = Generation(1, (Member("a.1", text, text, text, 1),), text, 1, 0, 0)
    assert decode(entry(encode(generation)), Generation).members == (Member("a.1", shown, shown, shown, 1),)


def test_a_run_id_may_have_any_characters():
    assert Keys("a\udcff").group.endswith("-a%5Cudcff/group/")


@pytest.mark.parametrize(("kind", "field"), [(Node, "host"), (Broken, "reason"), (End, "reason")])
def test_a_record_whose_text_is_not_utf_8_is_no_record(kind, field):
    with pytest.raises(RendezvousStateError, match="not what holdfast writes"):
        decode(entry(b'{"%s": "\xff"}' % field.encode()), kind)
