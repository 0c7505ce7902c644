"""What must hold in every world, whatever happens: looked at with every write, every start and every end of workers."""

from __future__ import annotations

from holdfast.rendezvous.records import BreakKind, Broken, End, EndKind, Generation, decode


class LawBrokenError(AssertionError):
    """A law of the rendezvous does not hold."""


class Laws:
    """One world's record: all that was decided, and whose workers are alive."""

    def __init__(self, settings):
        self.settings = settings
        self.generations = {}
        self.broken = {}
        self.end = None
        self.alive = {}
        self._nodes = {}
        self._last = None

    # The store

    def store_changes(self, world, changes):
        keys = world.keys
        entries = {change.key: change.entry for change in changes.changes}
        generation, broken, end = (entries.get(key) for key in (keys.generation, keys.broken, keys.end))
        for key, entry in entries.items():
            if key.startswith(keys.nodes):
                self._node_changes(world, key.removeprefix(keys.nodes), entry)
        if end is not None:
            self._end_is_written(decode(end, End))
        if broken is not None:
            self._is_broken(decode(broken, Broken))
        if generation is not None:
            self._is_decided(decode(generation, Generation))
        elif keys.generation in entries and end is None:
            raise LawBrokenError("the generation was deleted without an end")

    def _node_changes(self, world, node, entry):
        """An agent is one node at a time: it is another only after its lease has run out."""
        agent = node.rpartition(".")[0]
        other, lease = self._nodes.get(agent, (node, 0))
        if entry is None:
            if other == node:
                self._nodes.pop(agent, None)
            return
        if not world.store.lease_holds(entry.lease):
            return  # too late, and as good as gone
        if other != node and world.store.lease_holds(lease):
            raise LawBrokenError(f"{agent} is in the store twice: as {other} and as {node}")
        self._nodes[agent] = (node, entry.lease)

    def _is_decided(self, made):
        last, settings = self._last, self.settings
        if made.number in self.generations:
            raise LawBrokenError(f"generation {made.number} was decided twice")
        if made.number != (last.number if last else 0) + 1:
            raise LawBrokenError(f"generation {made.number} follows {last.number if last else 0}")
        if self.end is not None:
            raise LawBrokenError(f"generation {made.number} was decided after the end")
        if last is not None and last.number not in self.broken:
            raise LawBrokenError(f"generation {made.number} was decided although {last.number} is not broken")
        nodes = [member.node for member in made.members]
        if len(set(nodes)) < len(nodes):
            raise LawBrokenError(f"generation {made.number} has a node twice: {' '.join(nodes)}")
        if not settings.min_nodes <= len(nodes) <= settings.max_nodes:
            raise LawBrokenError(f"generation {made.number} has {len(nodes)} nodes")
        self._counts_restarts(made, last)
        self._keeps_order(made, last)
        self.generations[made.number] = self._last = made

    def _counts_restarts(self, made, last):
        has_failed = last is not None and self.broken[last.number].kind is BreakKind.FAILED
        expected = (last.restarts if last else 0) + has_failed
        if made.restarts != expected or made.max_restarts != self.settings.max_restarts:
            raise LawBrokenError(f"generation {made.number} is restart {made.restarts}, not {expected}")
        if made.restarts > made.max_restarts:
            raise LawBrokenError(f"generation {made.number} is restart {made.restarts} of {made.max_restarts}")

    def _keeps_order(self, made, last):
        """Without ranks that were asked for, those who stay come first and in their old order."""
        if last is None or self.settings.max_nodes > 100:
            return
        old = [member.node for member in last.members]
        new = [member.node for member in made.members]
        survivors = [node for node in old if node in new]
        if new[: len(survivors)] != survivors:
            raise LawBrokenError(f"generation {made.number} is {' '.join(new)} after {' '.join(old)}")

    def _is_broken(self, broken):
        if broken.generation in self.broken:
            raise LawBrokenError(f"generation {broken.generation} was broken twice")
        if self._last is None or broken.generation != self._last.number:
            raise LawBrokenError(f"generation {broken.generation} was broken, which is not the current one")
        self.broken[broken.generation] = broken

    def _end_is_written(self, end):
        if self.end is not None:
            raise LawBrokenError(f"a second end: {end.reason}")
        self.end = end
        if end.kind is EndKind.FAILED:
            broken = self.broken.get(self._last.number)
            if broken is None or broken.failure is None or broken.failure != end.failure:
                raise LawBrokenError(f"the job failed, but not by what broke its last generation: {end.reason}")
            if self._last.restarts < self._last.max_restarts:
                raise LawBrokenError(f"the job failed with restarts left: {end.reason}")

    # Workers

    def workers_start(self, world, agent, generation):
        others = [number for number in self.alive if number != generation.number]
        if others:
            whose = sorted(self.alive[others[0]])
            raise LawBrokenError(
                f"{agent.name} starts generation {generation.number} while workers of {others[0]} live on {whose}"
            )
        known = self.generations.get(generation.number)
        if known is not generation and known != generation:
            raise LawBrokenError(f"{agent.name} starts a generation {generation.number} that was not decided")
        if generation.rank_of(agent.membership.me.node) is None:
            raise LawBrokenError(f"{agent.name} starts generation {generation.number}, which it is not in")
        self.generations[generation.number] = generation  # equal, and sooner seen to be
        self.alive.setdefault(generation.number, set()).add(agent.name)

    def workers_end(self, world, agent):
        names = self.alive[agent.workers]
        names.remove(agent.name)
        if not names:
            del self.alive[agent.workers]

    def agent_leaves(self, world, agent, leave):
        if leave.end is not None and leave.end != self.end:
            raise LawBrokenError(f"{agent.name} leaves with {leave.end}, but the end is {self.end}")
