"""The words of decisions: what tells records apart, what guards a proposal, how nodes are listed."""

from __future__ import annotations

import random

import msgspec
import pytest
from decisions import FAILURE, KEYS, generation, member, view_of, written
from msgspec.structs import replace

from holdfast.coordination.keyspace import KeySpace
from holdfast.coordination.model import Delete, Put, Transaction
from holdfast.rendezvous.decision import (
    NO_RECORD,
    Me,
    as_leader,
    break_up,
    counted,
    first,
    identity_of,
    listed,
    name_of,
    number_of,
    reason_of,
    still_on,
)
from holdfast.rendezvous.records import BreakKind, Broken, End, EndKind, encode
from holdfast.rendezvous.view import View


def test_a_record_is_another_one_if_its_number_its_revision_or_its_job_is():
    view = view_of(made=generation())
    others = [view_of(made=generation(2)), view_of(made=replace(generation(), job="other")), view_of()]
    later = view_of(made=generation())
    later.generation_revision += 1
    assert len({identity_of(each) for each in (view, later, *others)}) == 5
    assert identity_of(view_of()) == NO_RECORD


@pytest.fixture
def store():
    """A store with a leader and a generation that is on."""
    made = KeySpace(random_bytes=random.Random(7).randbytes)
    for key, value in ((KEYS.node("a.1"), encode(member().offer)), (KEYS.leader, b"a.1")):
        made.transact(Transaction((), (Put(key, value),)))
    made.transact(Transaction((), (Put(KEYS.generation, encode(generation())),)))
    return made


def seen(store):
    return View.read(KEYS, store.get_prefix(KEYS.group), is_whole=True)


def change(store, *operations):
    store.transact(Transaction((), operations))


@pytest.mark.parametrize(
    "operation",
    [
        Put(KEYS.generation, encode(generation())),
        Put(KEYS.broken, encode(Broken(1, BreakKind.LOST, "lost c"))),
        Put(KEYS.end, encode(End(EndKind.SUCCEEDED, "well"))),
    ],
    ids=["replaced", "broken", "ended"],
)
def test_a_generation_is_broken_only_while_it_is_on_and_once(store, operation):
    propose = break_up(seen(store), KEYS, Broken(1, BreakKind.LOST, "lost b"))
    assert (propose.what, written(propose, KEYS.broken).lease) == ("break: lost b", 0)
    assert msgspec.json.decode(written(propose, KEYS.broken).value, type=Broken).reason == "lost b"
    assert propose.transaction.compares == still_on(seen(store), KEYS)
    change(store, operation)
    assert not store.transact(propose.transaction).succeeded


@pytest.mark.parametrize(
    "operations",
    [
        [Put(KEYS.generation, encode(generation(2)))],
        [Delete(KEYS.leader), Put(KEYS.leader, b"a.1")],
        [Delete(KEYS.node("a.1")), Put(KEYS.node("a.1"), encode(member().offer))],
        [Put(KEYS.end, encode(End(EndKind.SUCCEEDED, "well")))],
    ],
    ids=["generation", "leader", "node", "end"],
)
def test_a_leader_decides_only_for_the_store_that_it_saw(store, operations):
    transaction = Transaction(as_leader(seen(store), KEYS), (Put(KEYS.short, b""),))
    assert store.transact(transaction).succeeded
    for operation in operations:
        change(store, operation)
    assert not store.transact(transaction).succeeded


def test_the_earliest_of_the_times_that_are_known():
    assert first(None, 3.0, float("inf"), 2.0) == 2.0
    assert first(None, float("inf")) is None


def test_names_numbers_and_reasons():
    assert (number_of(None), number_of(generation(3))) == (0, 3)
    assert (name_of(member("b.1")), name_of(Me(node="b.1"))) == ("b", "b.1")
    assert reason_of(FAILURE) == "rank 0 on a failed: exit code 1"


def test_nodes_are_counted_and_a_long_list_is_cut():
    assert (counted(1, "is", "are"), counted(2, "is", "are")) == ("1 node is", "2 nodes are")
    assert (listed(["a", "b"]), listed(dict.fromkeys("abcdef").keys())) == ("a, b", "a, b, c, d and 2 more")
    assert listed("abc", at_most=3) == "a, b, c"
