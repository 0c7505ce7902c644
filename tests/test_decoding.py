"""The door for what others have written: a typed record, or one kind of error."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from holdfast.decoding import (
    PROBLEM_MAX_CHARS,
    Count,
    Id,
    Port,
    Seconds,
    Timestamp,
    UndecodableError,
    bound_end,
    bound_lines,
    decoded,
)

DECODERS = [msgspec.json.Decoder, msgspec.msgpack.Decoder]


class Told(Struct, frozen=True):
    name: Id
    port: Port
    count: Count
    seconds: Seconds
    at: Timestamp
    line: str = ""
    text: str = ""
    inner: Told | None = None

    def __post_init__(self) -> None:
        bound_lines(self, 10, "line")
        bound_end(self, 10, "text")


VALID = {"name": "a.1", "port": 1, "count": 2, "seconds": 0.5, "at": 1.0}
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=8,
)


@pytest.mark.parametrize("kind", DECODERS)
@given(data=st.binary(max_size=200) | st.sampled_from([b"[" * 100_000, b'{"inner":' * 100_000, b"\x91" * 100_000]))
def test_any_bytes_are_a_record_or_one_kind_of_error(kind, data):
    problem = ""
    try:
        decoded(kind(Told), data)
    except UndecodableError as error:
        problem = str(error)
    assert len(problem) <= 10 * PROBLEM_MAX_CHARS
    assert problem.isprintable()


@pytest.mark.parametrize("kind", DECODERS)
@given(data=st.data())
def test_any_values_are_a_record_or_one_kind_of_error(kind, data):
    fields = VALID | data.draw(st.dictionaries(st.sampled_from([*VALID, "line", "text", "inner"]), ANYTHING))
    encode = msgspec.json.encode if kind is msgspec.json.Decoder else msgspec.msgpack.encode
    try:
        told = decoded(kind(Told), encode(fields))
    except UndecodableError:
        return
    assert len(told.line) <= 10 >= len(told.text)
    assert told.line.isprintable()
    assert 0 <= told.port <= 65535
    assert 0 <= told.seconds < float("inf")


@pytest.mark.parametrize("body", [b"\xa1\xff", b"\x91" * 100_000, b"", b"\xc1"])
def test_what_msgspec_raises_in_four_ways_is_one_error(body):
    """UnicodeDecodeError, RecursionError, DecodeError, ValidationError."""
    with pytest.raises(UndecodableError):
        decoded(msgspec.msgpack.Decoder(str if body[:1] == b"\xa1" else list[list]), body)


@pytest.mark.parametrize("name", ["a.1", "0f3a.12", "job-7", "a" * 200])
def test_names_of_nodes_and_jobs(name):
    assert decoded(msgspec.json.Decoder(Id), msgspec.json.encode(name)) == name


@pytest.mark.parametrize("name", ["", "a\n", "a/b", "a b", "ä", "\x1b", "a" * 201])
def test_what_is_no_name(name):
    with pytest.raises(UndecodableError):
        decoded(msgspec.json.Decoder(Id), msgspec.json.encode(name))
