"""Whatever others write into the store: a node takes it in, decides, and never fails of it."""

from __future__ import annotations

import pytest
from hostile_records import ID, NODES, RECORDS, values
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from simulated_agent import offer

from holdfast.coordination.model import Change, Changes, Delete, Entry, Lease, Outcome, Put, Snapshot, check
from holdfast.rendezvous.decision import RECORD_UNREADABLE, Leave, Settings, Start, Stop
from holdfast.rendezvous.membership import Follow, Grant, Membership, Transact
from holdfast.rendezvous.records import (
    GENERATION_MAX,
    NO_RANK,
    BreakKind,
    Broken,
    EndKind,
    Failure,
    Generation,
    Keys,
    Member,
    Node,
    Short,
    StacksRequest,
    encode,
)
from holdfast.rendezvous.records import End as EndRecord
from holdfast.rendezvous.view import FAULTS_MAX, View

KEYS = Keys("job")
LEASE_S = 3.0
GARBAGE = b'{"number": "\xff'

VALUES = {
    KEYS.leader: st.just(b"a.1") | ID.map(str.encode) | st.binary(max_size=20),
    KEYS.generation: values(Generation),
    KEYS.broken: values(Broken),
    KEYS.end: values(EndRecord),
    KEYS.short: values(Short),
    KEYS.stacks: values(StacksRequest),
    **{KEYS.node(node): values(Node) for node in NODES},
    **{KEYS.alive_of(node): st.binary(max_size=3) for node in NODES},
    **{KEYS.done_by(number, node): st.binary(max_size=3) for node in NODES for number in (1, 2)},
    **{f"{KEYS.refused}{node}": st.binary(max_size=20) for node in NODES},
    f"{KEYS.nodes}no name\x1b": values(Node),
    f"{KEYS.nodes}a/b": values(Node),
    f"{KEYS.done}no/number": st.binary(),
    f"{KEYS.group}of another version": st.binary(),
    f"{KEYS.shared}of another version": st.binary(),
}


@st.composite
def entries(draw, revision):
    keys = draw(st.lists(st.sampled_from(sorted(VALUES)), unique=True, max_size=8))
    return tuple(Entry(key, draw(VALUES[key]), draw(st.integers(1, revision)), revision) for key in sorted(keys))


def joined(rank=NO_RANK, **settings):
    """A node that has put itself into an empty store, and has heard of it."""
    limits = {"min_nodes": 1, "max_nodes": 4, "max_restarts": 3, "last_call_s": 0.0, **settings}
    membership = Membership(KEYS, Settings(**limits), "a", ttl_s=LEASE_S, keep_alive_s=1.0, store_may_return=True)
    membership.seek(offer("a", 1, rank), 0.0)
    (follow,) = membership.step(0.0)
    membership.read(Snapshot(0, ()), follow.prefix)
    (grant,) = membership.step(0.0)
    assert isinstance(grant, Grant)
    membership.granted(Lease(7, LEASE_S), 0.0)
    membership.step(0.0)
    membership.answered(Outcome(True, 1))
    return membership


class Lone:
    """A node and all that it knows of its store, which somebody else writes to as they like."""

    def __init__(self, membership):
        self.membership = membership
        self.revision = 1
        self.known = {}
        self.now = 0.0

    def write(self, key, value):
        self.revision += 1
        created = self.known[key].created if key in self.known else self.revision
        self.known[key] = Entry(key, value, created, self.revision)
        self.show()

    def show(self):
        followed = self.membership._following
        found = tuple(self.known[key] for key in sorted(self.known) if key.startswith(followed))
        self.membership.read(Snapshot(self.revision, found), followed)

    def steps(self):
        """What it does, until it only waits. Its transactions are carried out, whatever they compare."""
        done = []
        for _ in range(12):
            effects = self.membership.step(self.now)
            done += effects
            if not effects:
                break
            for effect in effects:
                self._carry_out(effect)
        return done

    def _carry_out(self, effect):
        match effect:
            case Follow():
                self.show()
            case Transact():
                check(effect.transaction)
                self.revision += 1
                for operation in effect.transaction.then:
                    if isinstance(operation, Put):
                        self.known[operation.key] = Entry(
                            operation.key, operation.value, self.revision, self.revision, operation.lease
                        )
                    else:
                        prefix = operation.key if isinstance(operation, Delete) else operation.prefix
                        gone = [key for key in self.known if key.startswith(prefix)]
                        for key in gone:
                            del self.known[key]
                self.membership.answered(Outcome(True, self.revision))
                self.show()


@pytest.fixture
def alone():
    """The one node of a job: it leads, and runs its first generation."""
    node = Lone(joined())
    node.now = 1.0
    node.show()
    effects = node.steps()
    (start,) = [effect for effect in effects if isinstance(effect, Start)]
    assert start.generation.number == 1
    return node


def of_kind(kind, effects):
    return [effect for effect in effects if isinstance(effect, kind)]


def test_an_unreadable_generation_stops_the_workers_and_is_followed_by_the_next(alone):
    alone.write(KEYS.generation, GARBAGE)
    (stop,) = of_kind(Stop, alone.steps())
    assert (stop.reason, stop.is_final) == (RECORD_UNREADABLE, True)
    alone.membership.seek(offer("a", 1), alone.now)
    (start,) = of_kind(Start, alone.steps())
    assert (start.generation.number, start.generation.restarts) == (2, 0)


def test_an_unreadable_word_of_a_break_is_taken_away_and_workers_go_on(alone):
    alone.write(KEYS.broken, GARBAGE)
    effects = alone.steps()
    assert [effect.what for effect in of_kind(Transact, effects)] == ["not broken"]
    assert of_kind(Stop, effects) == []
    assert KEYS.broken not in alone.known


def test_an_unreadable_end_is_an_end(alone):
    alone.write(KEYS.end, GARBAGE)
    (stop,) = of_kind(Stop, alone.steps())
    assert "cannot be read" in stop.reason
    alone.membership.seek(offer("a", 1), alone.now)
    (leave,) = of_kind(Leave, alone.steps())
    assert leave.end.kind is EndKind.CLOSED


def test_an_unreadable_leader_is_taken_away_and_somebody_leads(alone):
    alone.write(KEYS.leader, b"\xff\xfe")
    effects = alone.steps()
    assert [effect.what for effect in of_kind(Transact, effects)][:2] == ["no leader", "lead"]
    assert alone.known[KEYS.leader].value == b"a.1"
    assert of_kind(Stop, effects) == []


@pytest.mark.parametrize("value", [GARBAGE, b"", b'{"host": "' + b"x" * 900_000 + b'"}', b"[" * 100_000])
def test_an_unreadable_node_does_not_keep_the_leader_from_leading(alone, value):
    alone.write(KEYS.node("b.1"), value)
    alone.write(KEYS.node("c.1"), encode(offer("c", 1)))
    alone.steps()
    alone.now += 1.0
    told = [effect.what for effect in of_kind(Transact, alone.steps())]
    assert told == ["break: letting in c"]


def test_a_node_that_claims_the_largest_generation_does_not_end_the_counting(alone):
    alone.write(KEYS.node("b.1"), encode(replace(offer("b", 1), stopped=GENERATION_MAX, known=GENERATION_MAX)))
    alone.steps()
    alone.now += 1.0
    assert "break: letting in b" in [effect.what for effect in of_kind(Transact, alone.steps())]
    alone.membership.seek(offer("a", 1), alone.now)
    alone.steps()
    alone.now += 2 * LEASE_S  # for the nodes of a generation that the store may have lost
    alone.membership.kept(LEASE_S, alone.now)
    (start,) = of_kind(Start, alone.steps())
    assert start.generation.number == 2


@pytest.mark.parametrize("key", [KEYS.short, KEYS.stacks])
def test_what_else_is_unreadable_is_as_if_it_were_not_there(alone, key):
    alone.write(key, GARBAGE)
    assert of_kind(Stop, alone.steps()) == []
    assert (alone.membership.view.short, alone.membership.view.stacks) == (None, None)


def test_faults_are_counted_and_a_few_are_described():
    view = View(KEYS)
    changes = tuple(Change(KEYS.node(f"{n}.1"), Entry(KEYS.node(f"{n}.1"), GARBAGE, 1, 1)) for n in range(1000))
    view.apply(Changes(1, changes))
    count, faults = view.take_faults()
    assert (count, len(faults)) == (1000, FAULTS_MAX)
    assert view.take_faults() == (0, [])
    assert view.nodes == {}


@given(st.data(), st.booleans())
def test_a_view_of_anything_can_be_made_and_changed(data, is_whole):
    view = View.read(KEYS, Snapshot(9, data.draw(entries(9))), is_whole=is_whole)
    for revision in range(10, 10 + data.draw(st.integers(0, 4))):
        for entry in data.draw(entries(revision)):
            gone = data.draw(st.booleans())
            view.apply(Changes(revision, (Change(entry.key, None if gone else entry),)))
        view.stamp(float(revision))


@given(st.data())
def test_a_node_steps_through_anything(data):
    """It starts, stops and leaves as it sees fit, and asks for nothing that a store would not take."""
    step_through_anything(data, joined(min_nodes=data.draw(st.integers(1, 3))))


@given(st.data(), st.integers(0, 2))
def test_a_node_that_was_told_its_rank_steps_through_anything_with_it(data, rank):
    size = data.draw(st.integers(rank + 1, 4))
    membership = joined(rank, min_nodes=size, max_nodes=size, has_given_ranks=True, lease_s=LEASE_S)
    step_through_anything(data, membership, rank)


def step_through_anything(data, membership, rank=NO_RANK):
    now = 0.0
    for revision in range(2, 2 + data.draw(st.integers(1, 5))):
        now += data.draw(st.sampled_from([0.0, 0.1, 1.0, 100.0]))
        if data.draw(st.booleans()):
            membership.kept(LEASE_S, now)
        snapshot = Snapshot(revision, data.draw(entries(revision)))
        prefix = membership._following
        membership.read(Snapshot(revision, tuple(e for e in snapshot.entries if e.key.startswith(prefix))), prefix)
        for _ in range(3):
            for effect in membership.step(now):
                react(effect, membership, data, now, revision, rank)


def react(effect, membership, data, now, revision, rank):
    match effect:
        case Transact():
            check(effect.transaction)
            membership.answered(Outcome(data.draw(st.booleans()), revision))
        case Grant():
            membership.granted(Lease(8, LEASE_S), now)
        case Start():
            started = effect.generation.rank_of(membership.me.node)
            assert started is not None
            assert rank in (started, NO_RANK)
            if data.draw(st.booleans()):
                membership.fail(data.draw(FAILURE))
            elif data.draw(st.booleans()):
                membership.succeed()
        case Stop():
            membership.seek(offer("a", 1, rank), now)


FAILURE = st.builds(Failure, st.just("a.1"), *[st.just(each) for each in ("h", 0, 0, 1, 1, "it failed", 1.0)])


@pytest.mark.parametrize("kind", RECORDS)
def test_there_is_something_of_each_kind_among_what_is_tried(kind):
    """Or the tests above would prove little: valid records, and others."""
    seen = set()

    @given(values(kind))
    def look(value):
        key = next(key for key, strategy in VALUES.items() if key.endswith(PLACES[kind]))
        view = View(KEYS)
        view.apply(Changes(1, (Change(key, Entry(key, value, 1, 1)),)))
        seen.add(view.take_faults()[0])

    look()
    assert seen == {0, 1}


PLACES = {
    Node: "nodes/a.1",
    Generation: "shared/generation",
    Broken: "shared/broken",
    EndRecord: "shared/end",
    Short: "shared/short",
    StacksRequest: "shared/stacks",
}


def test_a_generation_of_strangers_is_not_started():
    node = Lone(joined())
    made = Generation(5, (Member("b.1", "b", "b", "worker", 1),), "b", 1, 0, 0)
    node.write(KEYS.leader, b"b.1")
    node.write(KEYS.generation, encode(made))
    assert of_kind(Start, node.steps()) == []
    node.write(KEYS.broken, encode(Broken(5, BreakKind.LOST, "b is gone")))
    assert of_kind(Start, node.steps()) == []
