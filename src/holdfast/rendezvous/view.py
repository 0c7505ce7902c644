"""What a node knows of its group: the store's entries as records, all as of one revision."""

from __future__ import annotations

from holdfast.rendezvous.records import Broken, End, Generation, Node, decode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.coordination.model import Changes, Entry, Snapshot
    from holdfast.rendezvous.records import Keys


class View:
    """A group as of `revision`. Only a leader's has `nodes` and `done`; see `is_whole`.

    `generation_revision` and `leader_revision` guard transactions: what they rest on must not have changed.
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
        self.nodes: dict[str, Node] = {}
        self.ages: dict[str, int] = {}
        self.done: set[str] = set()
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
        elif key == keys.leader:
            self.leader = None if entry is None else entry.value.decode()
            self.leader_revision = 0 if entry is None else entry.created
        elif key == keys.generation:
            self.generation = None if entry is None else decode(entry, Generation)
            self.generation_revision = 0 if entry is None else entry.modified
        elif key == keys.broken:
            self.broken = None if entry is None else decode(entry, Broken)
        elif key == keys.end:
            self.end = None if entry is None else decode(entry, End)

    def _learn_node(self, node: str, entry: Entry | None) -> None:
        if entry is None:
            self.nodes.pop(node, None)
            self.ages.pop(node, None)
        else:
            self.nodes[node] = decode(entry, Node)
            self.ages[node] = entry.created
