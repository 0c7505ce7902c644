"""A node's view of its group: the store's entries as records, all as of one revision."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, TypeVar

from holdfast.decoding import ID_PATTERN
from holdfast.errors.text import visible_line
from holdfast.rendezvous.errors import RendezvousStateError
from holdfast.rendezvous.records import (
    MEMBERS_MAX,
    NO_RANK,
    Broken,
    End,
    EndKind,
    Generation,
    Node,
    Short,
    StacksRequest,
    decode,
)

if TYPE_CHECKING:
    from holdfast.coordination.model import Changes, Entry, Snapshot
    from holdfast.rendezvous.records import Keys, Record

Counted = TypeVar("Counted", str, int)

UNREADABLE_END = End(EndKind.CLOSED, "the record of the job's end cannot be read; see the log of this node")

REFUSALS_MAX = 1_024
"""How many refused nodes are remembered. The leader removes the records of those that have left."""

REFUSAL_MAX_CHARS = 1_000
"""How much of the reason why a node is refused is kept. The leader's own reasons are shorter."""

FAULTS_MAX = 8
"""How many unreadable records are described. All are counted."""

_is_id = re.compile(ID_PATTERN).fullmatch


class View:
    """A group as of `revision`.

    Only a leader's view has `nodes` and `done`, and what follows from them; see `is_whole`.

    `ages` and `said` are the revisions at which nodes came, and at which they last wrote their record. `since` is when
    this view first showed each node, on the clock of the caller of `stamp`; members that are gone stay in it until the
    next generation. `seated` is when each member of the generation became one, None if that was before this view.
    `programs` counts the nodes by the program that they run, `ranks` by the rank that they ask for. `parted` are the
    members that reported that they have stopped and disappeared afterwards, with their last record and its revision:
    see `judging`. `doubtful` are members that only look lost because somebody deleted their records, and since when.
    `generation_revision` and `leader_revision` guard transactions: what those rest on must not have changed.

    A leader looks at its group after every change, so these are updated with each change instead of counted each time.
    All are hosts by node:

    - `unfinished`: members of the generation that are not done.
    - `lost`: members that are neither done nor present.
    - `stopping`: members that are present and may still have workers.
    - `newcomers`: nodes that are not members.
    - `busy`: nodes that report that they still have workers of a generation whose record is gone.

    An unreadable record raises nothing. It counts as absent, and `take_faults` reports it:

    - A generation: its record is the licence to run, so nodes stop as if it were gone. `is_generation_unreadable` says
      why, and the leader overwrites it with the next one.
    - The record that the generation is broken (`is_broken_unreadable`): the leader deletes it, or no node could write
      it again.
    - The leader's name: `leader` is None and `leader_revision` is not 0. A node that wants to lead deletes it first.
    - The job's end: the job has ended, because no transaction succeeds beside that key.
    - Every other record counts as absent. That includes a node's: its other records decide what it is.
    """

    def __init__(self, keys: Keys) -> None:
        self.revision = 0
        self.is_whole = False
        self.leader: str | None = None
        self.leader_revision = 0
        self.generation: Generation | None = None
        self.generation_revision = 0
        self.is_generation_unreadable = False
        self.broken: Broken | None = None
        self.broken_revision = 0
        self.is_broken_unreadable = False
        self.end: End | None = None
        self.stacks: StacksRequest | None = None
        self.short: Short | None = None
        self.refused: dict[str, str] = {}
        self.nodes: dict[str, Node] = {}
        self.ages: dict[str, int] = {}
        self.said: dict[str, int] = {}
        self.since: dict[str, float] = {}
        self.seated: dict[str, float | None] = {}
        self.programs: Counter[str] = Counter()
        self.ranks: Counter[int] = Counter()
        self.parted: dict[str, tuple[Node, int]] = {}
        self.doubtful: dict[str, float | None] = {}
        self._half_gone: dict[str, int] = {}
        self.done: set[str] = set()
        self.alive: set[str] = set()
        self.unfinished: dict[str, str] = {}
        self.lost: dict[str, str] = {}
        self.stopping: dict[str, str] = {}
        self.newcomers: dict[str, str] = {}
        self.busy: dict[str, str] = {}
        self._members: dict[str, str] = {}
        self._unstamped: list[str] = []
        self._unseated: list[str] = []
        self._faults: list[str] = []
        self._fault_count = 0
        self._keys = keys

    @classmethod
    def read(cls, keys: Keys, snapshot: Snapshot, *, is_whole: bool, before: View | None = None) -> View:
        """The view of a snapshot. Times come from the view `before` it, if that was whole."""
        view = cls(keys)
        view.is_whole = is_whole
        view.revision = snapshot.revision
        if before is not None and before.is_whole:
            view.since.update(before.since)
            view.seated.update(before.seated)
        for entry in snapshot.entries:
            view._learn(entry.key, entry)
        view.seated.update(dict.fromkeys(view._unseated))  # they became members while this node was not looking
        view._unseated.clear()
        if before is not None and before.is_whole and before.generation_revision == view.generation_revision:
            view.parted.update((node, said) for node, said in before.parted.items() if node not in view.nodes)
            for node, there in before.nodes.items():
                if node not in view.nodes:
                    view._part(node, there, before.said[node])
            view._doubt_the_missing(before)
        for node in view.nodes.keys() ^ view.alive:  # they are written together: somebody has deleted the other one
            view._half_gone[node] = view.revision
        return view

    def apply(self, changes: Changes) -> None:
        self.revision = changes.revision
        for change in changes.changes:
            self._learn(change.key, change.entry)

    def stamp(self, now: float) -> None:
        """Note the time for nodes that came, and for nodes that became members, since the last call."""
        for node in self._unstamped:
            if node in self.nodes:
                self.since.setdefault(node, now)
        self._unstamped.clear()
        for node in self._unseated:
            self.seated[node] = now
        self._unseated.clear()
        for node, at in self.doubtful.items():
            if at is None:
                self.doubtful[node] = now

    def take_faults(self) -> tuple[int, list[str]]:
        """The number of unreadable records since the last call, and descriptions of the first ones."""
        count, faults = self._fault_count, self._faults
        self._fault_count, self._faults = 0, []
        return count, faults

    def _fault(self, what: str) -> None:
        self._fault_count += 1
        if len(self._faults) < FAULTS_MAX:
            self._faults.append(what)

    def _read(self, entry: Entry | None, kind: type[Record]) -> Record | None:
        """The record in an entry; None if there is none, or it is unreadable."""
        if entry is None:
            return None
        try:
            return decode(entry, kind)
        except RendezvousStateError as error:
            self._fault(str(error))
            return None

    def _learn(self, key: str, entry: Entry | None) -> None:
        keys = self._keys
        if key.startswith(keys.shared):
            self._learn_shared(key, entry)
            return
        prefix = next((each for each in (keys.nodes, keys.done, keys.alive) if key.startswith(each)), "")
        node = key.rpartition("/")[2] if prefix == keys.done else key.removeprefix(prefix)
        if not prefix:
            return  # a key of a newer version
        if not _is_id(node):
            self._fault(f"{visible_line(key)} in the store is not the name of a node")
            return
        if prefix == keys.nodes:
            self._learn_node(node, entry)
        else:
            names = self.done if prefix == keys.done else self.alive
            if entry is None:
                names.discard(node)
            elif len(names) < MEMBERS_MAX:
                names.add(node)
        if prefix != keys.done:
            self._doubt(node, is_gone=entry is None)
        self._sort(node)

    def _doubt(self, node: str, *, is_gone: bool) -> None:
        """Mark a member as doubtful if its two records disappear one after the other.

        A lease that ends removes both at once. So somebody has deleted them, and the node may be present.
        """
        if not is_gone:
            self._half_gone.pop(node, None)
            self.doubtful.pop(node, None)
        elif node in self.nodes or node in self.alive:
            self._half_gone[node] = self.revision
        elif self._half_gone.pop(node, self.revision) != self.revision and node in self._members:
            self.doubtful[node] = None

    def _doubt_the_missing(self, before: View) -> None:
        """Mark members as doubtful that disappeared while this node was not looking.

        It cannot tell whether they went at once. A node that had stopped its workers is not in doubt.
        """
        for node in self._members.keys() - self.nodes.keys() - self.alive - self.parted.keys():
            if node in before.doubtful:
                self.doubtful[node] = before.doubtful[node]
            elif node in before.nodes or node in before.alive:
                self.doubtful[node] = None

    def _learn_shared(self, key: str, entry: Entry | None) -> None:
        """Update the view from a key under ``shared/``."""
        keys = self._keys
        if key.startswith(keys.refused):
            self._learn_refusal(key.removeprefix(keys.refused), entry)
        elif key == keys.leader:
            self._learn_leader(entry)
        elif key == keys.generation:
            self.generation = self._read(entry, Generation)
            self.generation_revision = 0 if entry is None else entry.modified
            self.is_generation_unreadable = entry is not None and self.generation is None
            if self.is_whole:
                self._sort_all()
        elif key == keys.broken:
            self.broken = self._read(entry, Broken)
            self.broken_revision = 0 if entry is None else entry.created
            self.is_broken_unreadable = entry is not None and self.broken is None
        elif key == keys.end:
            self.end = self._read(entry, End) or (None if entry is None else UNREADABLE_END)
        elif key == keys.short:
            self.short = self._read(entry, Short)
        elif key == keys.stacks:
            self.stacks = self._read(entry, StacksRequest)

    def _learn_leader(self, entry: Entry | None) -> None:
        name = "" if entry is None else entry.value.decode("utf-8", "replace")
        self.leader = name if _is_id(name) else None
        self.leader_revision = 0 if entry is None else entry.created
        if entry is not None and self.leader is None:
            self._fault(f"{entry.key} in the store is not the name of a node")

    def _learn_refusal(self, node: str, entry: Entry | None) -> None:
        if entry is None:
            self.refused.pop(node, None)
        elif _is_id(node) and (node in self.refused or len(self.refused) < REFUSALS_MAX):
            why = visible_line(entry.value[:REFUSAL_MAX_CHARS].decode("utf-8", "replace"))
            self.refused[node] = why[:REFUSAL_MAX_CHARS]

    def _learn_node(self, node: str, entry: Entry | None) -> None:
        before = self.nodes.pop(node, None)
        if before is not None:
            self._count(before, -1)
        there = self._read(entry, Node)
        if there is not None and len(self.nodes) >= MEMBERS_MAX:
            self._fault(f"there are more than {MEMBERS_MAX} nodes")
            there = None
        if entry is None or there is None:
            self.ages.pop(node, None)
            said = self.said.pop(node, 0)
            self.busy.pop(node, None)
            if before is not None:
                self._part(node, before, said)
            if node not in self._members:
                self.since.pop(node, None)
            return
        if before is None:
            self._unstamped.append(node)
        self.parted.pop(node, None)
        self.nodes[node] = there
        self._count(there, 1)
        _keep(self.busy, node, there.host if there.running > there.stopped else None)
        self.ages[node] = entry.created
        self.said[node] = entry.modified

    def _part(self, node: str, last: Node, said: int) -> None:
        """Remember a node that is gone but had stopped this generation: it was present when the generation ended."""
        if self.generation is not None and node in self._members and last.stopped >= self.generation.number:
            self.parted[node] = (last, said)

    def _count(self, node: Node, more: int) -> None:
        if node.fingerprint.program:
            _add(self.programs, node.fingerprint.program, more)
        if node.rank != NO_RANK:
            _add(self.ranks, node.rank, more)

    def _sort_all(self) -> None:
        members = () if self.generation is None else self.generation.members
        self._members = {member.node: member.host for member in members}
        self.since = {node: at for node, at in self.since.items() if node in self.nodes or node in self._members}
        self.seated = {node: self.seated[node] for node in self._members if node in self.seated}
        self._unseated = [node for node in self._members if node not in self.seated]
        for kind in (self.unfinished, self.lost, self.stopping, self.newcomers):
            kind.clear()
        self.parted.clear()
        self.doubtful = {node: at for node, at in self.doubtful.items() if node in self._members}
        for node in (*self._members, *self.nodes):
            self._sort(node)

    def _sort(self, node: str) -> None:
        """Update the groups that a node is in."""
        there = self.nodes.get(node)
        host = self._members.get(node)
        if host is None:
            _keep(self.newcomers, node, None if there is None else there.host)
            return
        number = 0 if self.generation is None else self.generation.number
        is_done = node in self.done
        is_here = there is not None or node in self.alive  # somebody may have deleted one of the two
        has_stopped = there is not None and there.stopped >= number
        _keep(self.unfinished, node, None if is_done else host)
        _keep(self.lost, node, None if is_done or is_here else host)
        _keep(self.stopping, node, host if is_here and not has_stopped else None)


def _add(counter: Counter[Counted], key: Counted, more: int) -> None:
    """Change a count, and forget it at zero."""
    counter[key] += more
    if not counter[key]:
        del counter[key]


def _keep(hosts: dict[str, str], node: str, host: str | None) -> None:
    if host is None:
        hosts.pop(node, None)
    else:
        hosts[node] = host
