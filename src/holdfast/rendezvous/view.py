"""What a node knows of its group: the store's entries as records, all as of one revision."""

from __future__ import annotations

from holdfast.rendezvous.records import Broken, End, Generation, Node, StacksRequest, decode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.coordination.model import Changes, Entry, Snapshot
    from holdfast.rendezvous.records import Keys


class View:
    """A group as of `revision`. Only a leader's has `nodes` and `done`, and what follows from them; see `is_whole`.

    `ages` and `said` are the revisions at which nodes came, and said last what they have to say.
    `generation_revision` and `leader_revision` guard transactions: what they rest on must not have changed.

    A leader looks at its group after every change in it, so what it asks for is kept up to date instead of counted: of
    the generation's members those who are not done, those who are neither done nor there, and those who are there and
    may still have workers; and the nodes that are not members. All are hosts by node.
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
        self.nodes: dict[str, Node] = {}
        self.ages: dict[str, int] = {}
        self.said: dict[str, int] = {}
        self.done: set[str] = set()
        self.unfinished: dict[str, str] = {}
        self.lost: dict[str, str] = {}
        self.stopping: dict[str, str] = {}
        self.newcomers: dict[str, str] = {}
        self._members: dict[str, str] = {}
        self._keys = keys

    @classmethod
    def read(cls, keys: Keys, snapshot: Snapshot, *, is_whole: bool) -> View:
        view = cls(keys)
        view.is_whole = is_whole
        view.revision = snapshot.revision
        for entry in snapshot.entries:
            view._learn(entry.key, entry)
        return view

    def apply(self, changes: Changes) -> None:
        self.revision = changes.revision
        for change in changes.changes:
            self._learn(change.key, change.entry)

    def _learn(self, key: str, entry: Entry | None) -> None:
        keys = self._keys
        if key.startswith(keys.nodes):
            self._learn_node(key.removeprefix(keys.nodes), entry)
        elif key.startswith(keys.done):
            node = key.rpartition("/")[2]
            self.done.discard(node) if entry is None else self.done.add(node)
            self._sort(node)
        elif key == keys.leader:
            self.leader = None if entry is None else entry.value.decode()
            self.leader_revision = 0 if entry is None else entry.created
        elif key == keys.generation:
            self.generation = None if entry is None else decode(entry, Generation)
            self.generation_revision = 0 if entry is None else entry.modified
            if self.is_whole:
                self._sort_all()
        elif key == keys.broken:
            self.broken = None if entry is None else decode(entry, Broken)
        elif key == keys.end:
            self.end = None if entry is None else decode(entry, End)
        elif key == keys.stacks:
            self.stacks = None if entry is None else decode(entry, StacksRequest)

    def _learn_node(self, node: str, entry: Entry | None) -> None:
        if entry is None:
            self.nodes.pop(node, None)
            self.ages.pop(node, None)
            self.said.pop(node, None)
        else:
            self.nodes[node] = decode(entry, Node)
            self.ages[node] = entry.created
            self.said[node] = entry.modified
        self._sort(node)

    def _sort_all(self) -> None:
        members = () if self.generation is None else self.generation.members
        self._members = {member.node: member.host for member in members}
        for kind in (self.unfinished, self.lost, self.stopping, self.newcomers):
            kind.clear()
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
        _keep(self.unfinished, node, None if is_done else host)
        _keep(self.lost, node, None if is_done or there is not None else host)
        _keep(self.stopping, node, None if there is None or there.stopped >= number else host)


def _keep(hosts: dict[str, str], node: str, host: str | None) -> None:
    if host is None:
        hosts.pop(node, None)
    else:
        hosts[node] = host
