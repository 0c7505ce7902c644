"""The rendezvous's records, and what a node makes of them: any bytes under any key of a run.

An input is a script in msgpack: who the node is, a snapshot, and changes after it.

Promises: only a `RendezvousStateError` is raised, for a record that holdfast does not write; its text is bounded and
fit for a terminal. What a node proposes is what the store accepts. A record that can be read is written and read again
as the same.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from fuzz.oracles import check_shown, promise
from fuzz.shapes import JSON, Shape
from fuzz.target import Target
from fuzz.typed import values_of
from holdfast.coordination.model import Change, Changes, Entry, Snapshot, check
from holdfast.errors.kind import FailureKind
from holdfast.rendezvous import records
from holdfast.rendezvous.decide import decide, registration
from holdfast.rendezvous.decision import Decision, Me, Propose, Settings
from holdfast.rendezvous.errors import RendezvousStateError
from holdfast.rendezvous.records import Keys
from holdfast.rendezvous.view import View

if TYPE_CHECKING:
    from collections.abc import Iterator

KEYS = Keys("job")
NOW = 1_000.0
SETTINGS = Settings(min_nodes=2, max_nodes=3, max_restarts=3, lease_s=3.0)

ERROR_MAX_CHARS = 2_000
"""How long the text may be that says that a record is none."""

RECORDS = (records.Node, records.Generation, records.Broken, records.End, records.Short, records.StacksRequest)

NODES = ("a.1", "b.1", "c.1")
FAILURE = records.Failure("b.1", "b", 1, 0, 77, 1, "exit code 1", 1.0, traceback="Traceback ...", kind=FailureKind.EXIT)
OFFER = records.Node(host="a", address="10.0.0.1", port=29500, role="worker", workers=2, lease_s=3.0)
GENERATION = records.Generation(
    number=2,
    members=tuple(records.Member(node, node[0], f"10.0.0.{rank}", "worker", 2) for rank, node in enumerate(NODES)),
    master_address="10.0.0.1",
    master_port=29500,
    restarts=1,
    max_restarts=3,
    past=records.Remembered(spent=1, faults=1, signature="x", node="b.1", blames=1, left_out=("c.1",)),
    after=records.Verdict(FAILURE, 1, "why", 1),
    job="a.1-1",
    lease_s=3.0,
    arrivals=records.Arrivals(1, (("b", 2),)),
    fingerprint=records.Fingerprint("train.py", "digest", 2, 3, 3),
)
BROKEN = tuple(
    records.Broken(2, kind, "why", FAILURE if kind is records.BreakKind.FAILED else None, 2, (("d.1", "d"),), ("b.1",))
    for kind in records.BreakKind
)
LICENCE = (2, 10, "a.1-1")


def _mes() -> Iterator[Me]:
    """Nodes in all situations."""
    yield Me(offer=OFFER)
    mine = Me(node="a.1", lease=7, offer=OFFER, published=OFFER, said_at=NOW - 5, said_revision=5, registered=1)
    yield mine
    running = replace(mine, running=2, last=GENERATION, licence=LICENCE, seen=LICENCE, known=2, known_lease_s=3.0)
    yield running
    yield replace(running, failure=FAILURE)
    yield replace(running, leaving="SIGTERM")
    yield replace(running, done=2)
    yield replace(running, done=2, is_done_published=True)
    yield replace(running, lease=0, published=None)
    yield replace(running, running=0, stopped=2, failure=FAILURE)
    yield replace(running, cut_off_since=NOW - 700.0, stop_by=NOW - 1.0)
    yield replace(running, running=0, stopped=2, on_since=(2, NOW - 50), over_since=NOW - 9, enough_since=NOW - 9)
    yield replace(mine, closing=records.End(records.EndKind.CLOSED, "why"), waiting_since=NOW - 900.0)


MES = tuple(_mes())


class Script(Struct, frozen=True, array_like=True):
    """`me` is one of `MES`, or with a number from 100 on one who leads."""

    me: int
    is_whole: bool
    snapshot: Snapshot
    changes: tuple[Changes, ...] = ()


def _entries(values: dict[str, bytes]) -> tuple[Entry, ...]:
    return tuple(Entry(key, values[key], 5 if key.startswith(KEYS.nodes) else 10, 10) for key in sorted(values))


def _values() -> dict[str, bytes]:
    encode = records.encode
    there = {KEYS.node(node): encode(replace(OFFER, host=node[0], stopped=2, job="a.1-1")) for node in NODES}
    alive = {KEYS.alive_of(node): b"" for node in NODES}
    return {**there, **alive, KEYS.leader: b"a.1", KEYS.generation: encode(GENERATION)}


def _seeds() -> list[bytes]:
    encode = records.encode
    others = {
        KEYS.end: encode(records.End(records.EndKind.FAILED, "why", FAILURE, 1, "restarts: 3 of 3")),
        KEYS.short: encode(records.Short(1, 2)),
        KEYS.stacks: encode(records.StacksRequest(2, "id", "a.1", "a person asks")),
        f"{KEYS.refused}c.1": b"it runs another program",
        KEYS.done_by(2, "b.1"): b"",
        KEYS.node("d.1"): encode(replace(OFFER, host="d", fingerprint=records.Fingerprint("other.py"), running=1)),
        KEYS.node("b.1"): encode(replace(OFFER, host="b", stopped=2, failure=FAILURE, rank=1)),
    }
    scripts = [Script(me, is_whole=True, snapshot=Snapshot(20, _entries(_values()))) for me in (0, 1, 2, 102)]
    for me, broken in enumerate(BROKEN, 101):
        values = {**_values(), KEYS.broken: encode(broken)}
        scripts += [Script(me % 2 * 100 + 10, is_whole=True, snapshot=Snapshot(20, _entries(values)))]
        scripts += [Script(me, is_whole=True, snapshot=Snapshot(20, _entries(values)))]
    for place, (key, value) in enumerate(others.items()):
        change = Change(key, Entry(key, value, 21, 21))
        later = tuple(Changes(22 + at, (Change(gone),)) for at, gone in enumerate((key, KEYS.leader, KEYS.node("b.1"))))
        script = Script(101 + place, is_whole=True, snapshot=Snapshot(20, _entries(_values())))
        scripts.append(replace(script, changes=(Changes(21, (change,)), *later)))
    return [msgspec.msgpack.encode(script) for script in scripts]


def _run(data: bytes) -> None:
    try:
        script = msgspec.msgpack.decode(data, type=Script)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return
    me = MES[script.me % 100 % len(MES)]
    try:
        view = View.read(KEYS, script.snapshot, is_whole=script.is_whole)
        _ask(view, me, leads=script.me >= 100)
        for changes in script.changes:
            view.apply(changes)
            me = _ask(view, me, leads=script.me >= 100)
    except RendezvousStateError as error:
        check_shown(str(error), "the error about a record", ERROR_MAX_CHARS)


def _ask(view: View, me: Me, *, leads: bool) -> Me:
    view.stamp(NOW - 1.0)
    if leads:
        view.leader = me.node
    for now in (NOW, NOW + 10.0, NOW + 2_000.0):
        decision = decide(view, me, now, SETTINGS, KEYS)
        _check(decision)
        me = decision.me
    if me.offer is not None:
        check(registration(me, KEYS))
    return me


def _check(decision: Decision) -> None:
    for action in decision.actions:
        if isinstance(action, Propose):
            check(action.transaction)


def _read(data: bytes, kind: Any) -> Any:
    return records.decode(Entry("runs/x/group/nodes/a", data, 1, 1), kind)


def _run_record(data: bytes) -> None:
    for kind in RECORDS:
        try:
            record = _read(data, kind)
        except RendezvousStateError as error:
            check_shown(str(error), "the error about a record", ERROR_MAX_CHARS)
            continue
        again = records.encode(record)
        promise(_read(again, kind) == record, "a record is another one when it is read again")


def _record_seeds() -> list[bytes]:
    made = [GENERATION, OFFER, *BROKEN, records.End(records.EndKind.SUCCEEDED, ""), records.Short(1, 2)]
    return [records.encode(record) for record in [*made, records.StacksRequest(2, "id", "a.1", "why")]]


def _parse_script(data: bytes) -> Any:
    """The script with its records as trees, too."""
    return _opened(msgspec.msgpack.decode(data))


def _opened(tree: Any) -> Any:
    if isinstance(tree, list):
        return [_opened(item) for item in tree]
    if isinstance(tree, bytes) and tree.startswith(b"{"):
        return json.loads(tree)
    return tree


def _dump_script(tree: Any) -> bytes:
    return msgspec.msgpack.encode(_closed(tree))


def _closed(tree: Any) -> Any:
    if isinstance(tree, list):
        return [_closed(item) for item in tree]
    return json.dumps(tree, default=str).encode() if isinstance(tree, dict) else tree


def _scripts() -> st.SearchStrategy[bytes]:
    """Valid records with extreme values, under the keys where they belong."""
    words = st.one_of(
        st.tuples(st.just(KEYS.generation), values_of(records.Generation)),
        st.tuples(st.just(KEYS.broken), values_of(records.Broken)),
        st.tuples(st.just(KEYS.end), values_of(records.End)),
        st.tuples(st.just(KEYS.short), values_of(records.Short)),
        st.tuples(st.sampled_from([KEYS.node(node) for node in NODES]), values_of(records.Node)),
    )

    def script(me: int, is_whole: bool, said: list[tuple[str, Any]]) -> bytes:
        values = {**_values(), **{key: records.encode(record) for key, record in said}}
        return msgspec.msgpack.encode(Script(me, is_whole, Snapshot(20, _entries(values))))

    return st.builds(script, st.integers(0, 120), st.booleans(), st.lists(words, max_size=4))


def _typed_records() -> st.SearchStrategy[bytes]:
    return st.one_of(*map(values_of, RECORDS)).map(records.encode)


TARGETS = (
    Target("records", _run_record, _record_seeds, JSON, _typed_records),
    Target("views", _run, _seeds, Shape(_parse_script, _dump_script), _scripts),
)
