"""What a node knows of its group: the store's entries as records, all as of one revision."""

from __future__ import annotations

from holdfast.rendezvous.records import Broken, End, Generation, Node, Short, StacksRequest, decode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.coordination.model import Changes, Entry, Snapshot
    from holdfast.rendezvous.records import Keys


class View:
    """A group as of `revision`. Only a leader's has `nodes` and `done`, and what follows from them; see `is_whole`.

    `ages` and `said` are the revisions at which nodes came, and said last what they have to say. `since` is when this
    view first showed each node, on the clock of the caller of `stamp`; nodes that are gone stay in it until the next
    generation. `seated` is when each member of the generation became one, None if that was before this view.
    `programs` counts the nodes by the program that they run. `parted` are the members that said that they have stopped
    and were gone after that, with what they said last and the revision of it: see `judging`.
    `generation_revision` and `leader_revision` guard transactions: what they rest on must not have changed.

    A leader looks at its group after every change in it, so what it asks for is kept up to date instead of counted: of
    the generation's members those who are not done, those who are neither done nor there, and those who are there and
    may still have workers; the nodes that are not members; and those that say themselves that they still have workers
    of a generation whose record is gone. All are hosts by node.
    """

    def __init__(self, keys: Keys) -> None:
        self.revision = 0
        self.is_whole = False
        self.leader: str | None = None
        self.leader_revision = 0
        self.generation: Generation | None = None
        self.generation_revision = 0
        self.broken: Broken | None = None
        self.end: End | None = None
        self.stacks: StacksRequest | None = None
        self.short: Short | None = None
        self.refused: dict[str, str] = {}
        self.nodes: dict[str, Node] = {}
        self.ages: dict[str, int] = {}
        self.said: dict[str, int] = {}
        self.since: dict[str, float] = {}
        self.seated: dict[str, float | None] = {}
        self.programs: dict[str, int] = {}
        self.parted: dict[str, tuple[Node, int]] = {}
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
        self._keys = keys

    @classmethod
    def read(cls, keys: Keys, snapshot: Snapshot, *, is_whole: bool, before: View | None = None) -> View:
        """What a snapshot says. Times are those of the view `before` it, if that was whole."""
        view = cls(keys)
        view.is_whole = is_whole
        view.revision = snapshot.revision
        if before is not None and before.is_whole:
            view.since.update(before.since)
            view.seated.update(before.seated)
        for entry in snapshot.entries:
            view._learn(entry.key, entry)
        view.seated.update(dict.fromkeys(view._unseated))  # they became members when nobody looked
        view._unseated.clear()
        if before is not None and before.is_whole and before.generation_revision == view.generation_revision:
            view.parted.update((node, said) for node, said in before.parted.items() if node not in view.nodes)
            for node, there in before.nodes.items():
                if node not in view.nodes:
                    view._part(node, there, before.said[node])
        return view

    def apply(self, changes: Changes) -> None:
        self.revision = changes.revision
        for change in changes.changes:
            self._learn(change.key, change.entry)

    def stamp(self, now: float) -> None:
        """Note the time for the nodes that came, and for those that became members, since the last call."""
        for node in self._unstamped:
            self.since.setdefault(node, now)
        self._unstamped.clear()
        for node in self._unseated:
            self.seated[node] = now
        self._unseated.clear()

    def _learn(self, key: str, entry: Entry | None) -> None:
        keys = self._keys
        if key.startswith(keys.nodes):
            self._learn_node(key.removeprefix(keys.nodes), entry)
        elif key.startswith(keys.done):
            node = key.rpartition("/")[2]
            self.done.discard(node) if entry is None else self.done.add(node)
            self._sort(node)
        elif key.startswith(keys.alive):
            node = key.removeprefix(keys.alive)
            self.alive.discard(node) if entry is None else self.alive.add(node)
            self._sort(node)
        elif key.startswith(keys.refused):
            self._learn_refusal(key.removeprefix(keys.refused), entry)
        elif key == keys.leader:
            self.leader = None if entry is None else entry.value.decode("utf-8", "replace")
            self.leader_revision = 0 if entry is None else entry.created
        elif key == keys.generation:
            self.generation = None if entry is None else decode(entry, Generation)
            self.generation_revision = 0 if entry is None else entry.modified
            if self.is_whole:
                self._sort_all()
        else:
            self._learn_word(key, entry)

    def _learn_word(self, key: str, entry: Entry | None) -> None:
        """What somebody says to all."""
        keys = self._keys
        if key == keys.broken:
            self.broken = None if entry is None else decode(entry, Broken)
        elif key == keys.end:
            self.end = None if entry is None else decode(entry, End)
        elif key == keys.short:
            self.short = None if entry is None else decode(entry, Short)
        elif key == keys.stacks:
            self.stacks = None if entry is None else decode(entry, StacksRequest)

    def _learn_refusal(self, node: str, entry: Entry | None) -> None:
        if entry is None:
            self.refused.pop(node, None)
        else:
            self.refused[node] = entry.value.decode("utf-8", "replace")

    def _learn_node(self, node: str, entry: Entry | None) -> None:
        before = self.nodes.pop(node, None)
        if before is not None:
            self._count_program(before, -1)
        if entry is None:
            self.ages.pop(node, None)
            said = self.said.pop(node, 0)
            self.busy.pop(node, None)
            if before is not None:
                self._part(node, before, said)
        else:
            if before is None:
                self._unstamped.append(node)
            self.parted.pop(node, None)
            self.nodes[node] = there = decode(entry, Node)
            self._count_program(there, 1)
            _keep(self.busy, node, there.host if there.running > there.stopped else None)
            self.ages[node] = entry.created
            self.said[node] = entry.modified
        self._sort(node)

    def _part(self, node: str, last: Node, said: int) -> None:
        """A node is gone. If it had stopped this generation in order, it was there when the generation ended."""
        if self.generation is not None and node in self._members and last.stopped >= self.generation.number:
            self.parted[node] = (last, said)

    def _count_program(self, node: Node, more: int) -> None:
        program = node.fingerprint.program
        count = self.programs.get(program, 0) + more
        if program and count:
            self.programs[program] = count
        else:
            self.programs.pop(program, None)

    def _sort_all(self) -> None:
        members = () if self.generation is None else self.generation.members
        self._members = {member.node: member.host for member in members}
        self.since = {node: at for node, at in self.since.items() if node in self.nodes or node in self._members}
        self.seated = {node: self.seated[node] for node in self._members if node in self.seated}
        self._unseated = [node for node in self._members if node not in self.seated]
        for kind in (self.unfinished, self.lost, self.stopping, self.newcomers):
            kind.clear()
        self.parted.clear()
        for node in (*self._members, *self.nodes):
            self._sort(node)

    def _sort(self, node: str) -> None:
        """Put a node where it belongs."""
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


def _keep(hosts: dict[str, str], node: str, host: str | None) -> None:
    if host is None:
        hosts.pop(node, None)
    else:
        hosts[node] = host
