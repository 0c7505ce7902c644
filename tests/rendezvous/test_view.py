"""A view that is told of every change is the same as one that reads everything anew."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from simulated_agent import offer

from holdfast.coordination.keyspace import KeySpace
from holdfast.coordination.model import Delete, DeletePrefix, Entry, Put, Transaction
from holdfast.rendezvous.records import Broken, End, Generation, Keys, Member, encode
from holdfast.rendezvous.view import REFUSAL_MAX_CHARS, REFUSALS_MAX, View

KEYS = Keys("job")
NODES = st.sampled_from(["a.1", "b.1", "c.1", "c.2"])


def generation(number, nodes):
    members = tuple(Member(node, node, node, "worker", 8) for node in nodes)
    return Generation(number, members, "a", 29500, 0, 3)


OPERATIONS = st.one_of(
    st.builds(
        lambda node, stopped, rank: Put(KEYS.node(node), encode(replace(offer(node, 1, rank), stopped=stopped))),
        NODES,
        st.integers(0, 4),
        st.integers(-1, 1),
    ),
    st.builds(lambda node: Delete(KEYS.node(node)), NODES),
    st.builds(lambda node: Put(KEYS.done_by(1, node), b""), NODES),
    st.just(DeletePrefix(KEYS.done)),
    st.builds(lambda node: Put(KEYS.leader, node.encode()), NODES),
    st.just(Delete(KEYS.leader)),
    st.builds(
        lambda number, nodes: Put(KEYS.generation, encode(generation(number, nodes))),
        st.integers(1, 4),
        st.lists(NODES, unique=True),
    ),
    st.just(Delete(KEYS.generation)),
    st.just(Put(KEYS.broken, encode(Broken(1, "lost", "lost a")))),
    st.just(Delete(KEYS.broken)),
    st.just(Put(KEYS.end, encode(End("succeeded", "well")))),
)


def transactions():
    """Several operations at once, none of which names what another names."""

    def name(operation):
        key = operation.prefix if isinstance(operation, DeletePrefix) else operation.key.split("/1/")[0]
        return key.rstrip("/")

    return st.lists(st.lists(OPERATIONS, max_size=4, unique_by=name), max_size=12)


def contents(view):
    """All that a view knows, without the order and the time in which it learned it."""
    of_time = ("revision", "_keys", "since", "seated", "_unstamped", "_unseated", "parted", "_faults", "_fault_count")
    of_time += ("doubtful", "_half_gone")
    known = {name: value for name, value in vars(view).items() if name not in of_time}
    return {**known, "programs": dict(view.programs), "ranks": dict(view.ranks)}  # counters ignore what is zero


@given(transactions(), st.booleans())
def test_changes_lead_to_what_a_reader_finds(all_operations, is_whole):
    keyspace = KeySpace()
    prefix = KEYS.group if is_whole else KEYS.shared
    view = View.read(KEYS, keyspace.get_prefix(prefix), is_whole=is_whole)
    keyspace.watch(prefix, keyspace.revision + 1, view.apply)
    for operations in all_operations:
        keyspace.transact(Transaction((), tuple(operations)))
    assert contents(view) == contents(View.read(KEYS, keyspace.get_prefix(prefix), is_whole=is_whole))


@given(transactions())
def test_who_is_where_follows_from_who_is_there_and_who_is_done(all_operations):
    keyspace = KeySpace()
    for operations in all_operations:
        keyspace.transact(Transaction((), tuple(operations)))
    view = View.read(KEYS, keyspace.get_prefix(KEYS.group), is_whole=True)
    members = [member.node for member in view.generation.members] if view.generation else []
    number = view.generation.number if view.generation else 0
    assert set(view.unfinished) == set(members) - view.done
    assert set(view.lost) == set(members) - view.done - view.nodes.keys()
    assert set(view.stopping) == {node for node in members if node in view.nodes and view.nodes[node].stopped < number}
    assert set(view.newcomers) == view.nodes.keys() - set(members)


def test_a_view_of_what_is_shared_knows_no_nodes():
    keyspace = KeySpace()
    keyspace.transact(Transaction((), (Put(KEYS.node("a.1"), encode(offer("a", 1))), Put(KEYS.leader, b"a.1"))))
    view = View.read(KEYS, keyspace.get_prefix(KEYS.shared), is_whole=False)
    assert (view.leader, view.nodes) == ("a.1", {})
    assert view.leader_revision == keyspace.revision


def parting_view():
    """A whole view of a generation of two nodes, of which one is about to go."""
    store = KeySpace()
    made = Put(KEYS.generation, encode(generation(1, ["a.1", "b.1"])))
    there = [Put(KEYS.node(node), encode(replace(offer(node, 1), stopped=0))) for node in ("a.1", "b.1")]
    store.transact(Transaction((), (made, *there)))
    return store, View.read(KEYS, store.get_prefix(KEYS.group), is_whole=True)


def test_a_member_that_stopped_and_is_gone_then_has_parted():
    store, view = parting_view()
    store.watch(KEYS.group, store.revision + 1, view.apply)
    stopped = replace(offer("b.1", 1), stopped=1)
    store.transact(Transaction((), (Put(KEYS.node("b.1"), encode(stopped)),)))
    said = store.revision
    store.transact(Transaction((), (Delete(KEYS.node("b.1")),)))
    store.transact(Transaction((), (Delete(KEYS.node("a.1")),)))
    assert view.parted == {"b.1": (stopped, said)}, "the other one had not stopped"
    again = View.read(KEYS, store.get_prefix(KEYS.group), is_whole=True, before=view)
    assert again.parted == view.parted, "a watch may break, and all is read anew"
    store.transact(Transaction((), (Put(KEYS.generation, encode(generation(2, ["a.1", "b.1"]))),)))
    assert view.parted == {}
    assert View.read(KEYS, store.get_prefix(KEYS.group), is_whole=True, before=again).parted == {}


def test_a_member_whose_records_go_one_after_the_other_may_be_there():
    store, view = parting_view()
    both = (Put(KEYS.alive_of("a.1"), b""), Put(KEYS.alive_of("b.1"), b""))
    store.watch(KEYS.group, store.revision + 1, view.apply)
    store.transact(Transaction((), both))
    store.transact(Transaction((), (Delete(KEYS.alive_of("a.1")), Delete(KEYS.node("a.1")))))
    assert (list(view.lost), view.doubtful) == (["a.1"], {}), "its lease has ended"
    store.transact(Transaction((), (Delete(KEYS.alive_of("b.1")),)))
    assert "b.1" not in view.lost
    store.transact(Transaction((), (Delete(KEYS.node("b.1")),)))
    assert view.doubtful == {"b.1": None}
    view.stamp(7.0)
    view.stamp(9.0)
    assert view.doubtful == {"b.1": 7.0}
    store.transact(Transaction((), (Put(KEYS.node("b.1"), encode(offer("b.1", 1))),)))
    assert view.doubtful == {}


def test_a_member_that_parts_while_nobody_watches_has_parted_nevertheless():
    store, view = parting_view()
    stopped = replace(offer("b.1", 1), stopped=1)
    store.transact(Transaction((), (Put(KEYS.node("b.1"), encode(stopped)),)))
    seen = View.read(KEYS, store.get_prefix(KEYS.group), is_whole=True, before=view)
    store.transact(Transaction((), (Delete(KEYS.node("b.1")),)))
    after = View.read(KEYS, store.get_prefix(KEYS.group), is_whole=True, before=seen)
    assert list(after.parted) == ["b.1"]
    store.transact(Transaction((), (Put(KEYS.node("b.1"), encode(stopped)),)))
    assert View.read(KEYS, store.get_prefix(KEYS.group), is_whole=True, before=after).parted == {}


def read_again(store, view):
    return View.read(KEYS, store.get_prefix(KEYS.group), is_whole=True, before=view)


def test_a_doubt_outlives_a_watch_that_breaks():
    store, view = parting_view()
    store.watch(KEYS.group, store.revision + 1, view.apply)
    store.transact(Transaction((), tuple(Put(KEYS.alive_of(node), b"") for node in ("a.1", "b.1"))))
    store.transact(Transaction((), (Delete(KEYS.node("b.1")),)))
    store.transact(Transaction((), (Delete(KEYS.alive_of("b.1")),)))
    view.stamp(7.0)
    again = read_again(store, view)
    again.stamp(9.0)
    assert again.doubtful == {"b.1": 7.0}


def test_a_member_that_disappears_while_nobody_watches_may_be_there():
    store, view = parting_view()
    store.transact(Transaction((), (Delete(KEYS.node("b.1")),)))
    after = read_again(store, view)
    after.stamp(7.0)
    assert (list(after.lost), after.doubtful) == (["b.1"], {"b.1": 7.0})
    assert View.read(KEYS, store.get_prefix(KEYS.group), is_whole=True).doubtful == {}, "a new leader cannot tell"


def test_a_member_of_whom_half_is_gone_when_the_watch_begins_may_be_there_when_all_is():
    store, _ = parting_view()
    store.transact(Transaction((), (Put(KEYS.alive_of("a.1"), b""), Put(KEYS.alive_of("b.1"), b""))))
    store.transact(Transaction((), (Delete(KEYS.node("b.1")),)))
    view = View.read(KEYS, store.get_prefix(KEYS.group), is_whole=True)
    store.watch(KEYS.group, store.revision + 1, view.apply)
    store.transact(Transaction((), (Delete(KEYS.alive_of("b.1")),)))
    assert view.doubtful == {"b.1": None}


# Memory


def test_nodes_that_come_and_go_leave_nothing_behind():
    store, view = parting_view()
    store.watch(KEYS.group, store.revision + 1, view.apply)
    for number in range(100):
        store.transact(Transaction((), (Put(KEYS.node(f"x{number}.1"), encode(offer("x", 1))),)))
        if number % 2:
            view.stamp(7.0)
        store.transact(Transaction((), (Delete(KEYS.node(f"x{number}.1")),)))
    view.stamp(8.0)
    assert view.since.keys() == {"a.1", "b.1"}


def test_refusals_are_few_and_short():
    view = View(KEYS)
    for number in range(REFUSALS_MAX + 10):
        value = b"\x1b" * 20_000 + "\N{GRINNING FACE}".encode()
        view._learn(f"{KEYS.refused}x{number}.1", Entry(f"{KEYS.refused}x{number}.1", value, 1, 1))
    assert len(view.refused) == REFUSALS_MAX
    assert {len(why) for why in view.refused.values()} == {REFUSAL_MAX_CHARS}


def test_names_without_records_are_limited(monkeypatch):
    monkeypatch.setattr("holdfast.rendezvous.view.MEMBERS_MAX", 5)
    view = View(KEYS)
    view.is_whole = True
    for number in range(9):
        for key in (KEYS.alive_of(f"x{number}.1"), KEYS.done_by(1, f"x{number}.1")):
            view._learn(key, Entry(key, b"", 1, 1))
    assert (len(view.alive), len(view.done)) == (5, 5)


def test_the_ranks_that_nodes_ask_for_are_counted():
    keyspace = KeySpace()
    for node, rank in {"a.1": 0, "b.1": 1, "c.1": 1, "d.1": -1}.items():
        keyspace.transact(Transaction((), (Put(KEYS.node(node), encode(offer(node, 1, rank))),)))
    view = View.read(KEYS, keyspace.get_prefix(KEYS.group), is_whole=True)
    assert dict(view.ranks) == {0: 1, 1: 2}
    keyspace.watch(KEYS.group, keyspace.revision + 1, view.apply)
    keyspace.transact(Transaction((), (Delete(KEYS.node("a.1")), Put(KEYS.node("c.1"), encode(offer("c.1", 1, 2))))))
    assert dict(view.ranks) == {1: 1, 2: 1}
