"""Views and nodes for the rules of the rendezvous: what the store holds in a few words, and what is decided then."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace
from simulated_agent import offer

from holdfast.coordination.model import Change, Changes, Entry, Put, Snapshot
from holdfast.errors.kind import FailureKind
from holdfast.rendezvous.decide import decide
from holdfast.rendezvous.decision import Me, Propose, Settings
from holdfast.rendezvous.records import (
    BreakKind,
    Broken,
    End,
    Failure,
    Fingerprint,
    Generation,
    Keys,
    Member,
    Remembered,
    encode,
)
from holdfast.rendezvous.view import View

KEYS = Keys("job")
NODES = ("a.1", "b.1", "c.1")
FAILURE = Failure("a.1", "a", 0, 0, 77, 1, "exit code 1", 1.0)
NOW = 100.0
SETTINGS = Settings(min_nodes=2, max_nodes=3, last_call_s=5.0, max_restarts=3)


def generation(number=1, nodes=NODES, restarts=0, max_restarts=3, **past):
    members = tuple(Member(node, node[0], node[0], "worker", 8) for node in nodes)
    return Generation(number, members, "a", 29500, restarts, max_restarts, past=Remembered(spent=restarts, **past))


def view_of(
    *,
    leader=None,
    made=None,
    broken=None,
    end=None,
    nodes=None,
    done=(),
    is_whole=True,
    failures=None,
    short=None,
    refused=(),
    programs=None,
    ranks=None,
    created=None,
    seen_at=None,
    seated_at=None,
):
    """A view that holds these records; `nodes` are node ids, and the newest generation that each has stopped;
    `failures` by node, in the order in which the store heard of them. `programs` are by node what each runs, `ranks`
    what each asks for, `created` the revisions at which they came, if not the generation's own, `seen_at` when this
    view first showed them, and `seated_at` when they became members.
    """
    values = {}
    if leader:
        values[KEYS.leader] = leader.encode()
    values.update({f"{KEYS.refused}{node}": b"another program" for node in refused})
    for key, record in ((KEYS.generation, made), (KEYS.broken, broken), (KEYS.end, end), (KEYS.short, short)):
        if record is not None:
            values[key] = encode(record)
    if is_whole:
        for node, stopped in (nodes or {}).items():
            there = offer(node[0], 29500, (ranks or {}).get(node, -1))
            there = replace(there, stopped=stopped, failure=(failures or {}).get(node))
            there = replace(there, fingerprint=Fingerprint(program=(programs or {}).get(node, "")))
            values[KEYS.node(node)] = encode(there)
            values[KEYS.alive_of(node)] = b""
        values.update({KEYS.done_by(1, node): b"" for node in done})
    said = {KEYS.node(node): 11 + place for place, node in enumerate(failures or {})}
    came = {KEYS.node(node): revision for node, revision in (created or {}).items()}
    entries = tuple(
        Entry(key, values[key], came.get(key, 5 if key.startswith(KEYS.nodes) else 10), said.get(key, 10))
        for key in sorted(values)
    )
    view = View.read(KEYS, Snapshot(20, entries), is_whole=is_whole)
    view.since.update(seen_at or {})
    view.seated.update(seated_at or {})
    return view


def member(node="a.1", **others):
    """A node that is in the store, with a lease that holds."""
    there = offer(node[0], 29500)
    others = {"published": there, "offer": there, "stop_by": NOW + 5, "waiting_since": NOW, **others}
    return Me(node=node, lease=7, **others)


def actions(view, me, settings=None, now=NOW):
    return decide(view, me, now, settings or Settings(min_nodes=2, max_nodes=3, last_call_s=0.0), KEYS).actions


def written(action, key):
    """What a proposal puts there."""
    assert isinstance(action, Propose)
    return next(
        operation for operation in action.transaction.then if isinstance(operation, Put) and operation.key == key
    )


def failed(node, rank, kind=FailureKind.EXCEPTION, at=1.0, **others):
    return replace(FAILURE, node=node, host=node[0], rank=rank, kind=kind, timestamp=at, **others)


def judge(first, failures=None, nodes=NODES, settings=SETTINGS, me=None, now=NOW, stopping=(), parting=(), **past):
    """What the leader does once all but the `stopping` have stopped, after a generation that `first` broke. Those that
    are `parting` have stopped, too, and are gone since.
    """
    view = view_of(
        leader="a.1",
        made=generation(max_restarts=past.pop("max_restarts", 3), restarts=past.pop("restarts", 0), **past),
        broken=Broken(1, BreakKind.FAILED, "failed", first),
        nodes={node: int(node not in stopping) for node in nodes},
        failures=failures,
    )
    gone = tuple(Change(key) for node in parting for key in (KEYS.node(node), KEYS.alive_of(node)))
    if gone:
        view.apply(Changes(21, gone))
    published = replace(offer("a", 29500), stopped=1)
    return lead(view, settings=settings, now=now, stopped=1, published=published, offer=published, **(me or {}))


def made_by(decision):
    (action,) = decision.actions
    return msgspec.json.decode(written(action, KEYS.generation).value, type=Generation)


def ended_by(decision):
    (action,) = decision.actions
    return msgspec.json.decode(written(action, KEYS.end).value, type=End)


def lead(view, settings=SETTINGS, now=NOW, **others):
    return decide(view, member(**others), now, settings, KEYS)
