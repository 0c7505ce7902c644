"""What must hold in every world, whatever happens: looked at with every write, every start and every end of workers.

1. Workers of two generations never live at the same time. The workers of an agent that was killed count until they
   are dead.
2. A generation is decided once, after the last one was broken, with MIN to MAX nodes, and keeps the order of ranks.
3. An agent is one node at a time.
4. A restart is charged for a failure, and for nothing else: not for lost nodes and what their peers fail of, not for
   nodes that join or leave, not for records that are deleted. The budget is one for the job.
5. There is one end. An agent that leaves with an end leaves with that one. An agent that is done and is recorded as
   done does not leave without an end while the store answers.
6. Where nodes are told their ranks, every generation has each of these ranks once, and nobody starts with another one.
   Only the younger of two nodes with the same rank is refused, and not before two leases: then the older one lives.
7. Nobody leaves for want of nodes while enough of them are there, in worlds where nobody stands still or is cut off.

When the store loses its records, a new `Era` begins. Law 1 holds across eras for every agent that has seen a generation
of the old one. An agent that has not cannot know: for it, workers of the old era may live for `grace_s` more.
"""

from __future__ import annotations

from holdfast.rendezvous.records import BreakKind, Broken, End, EndKind, Generation, Node, decode

HEARD_OF_S = 5.0
"""A node that has been there this long is known to the leader."""


class LawBrokenError(AssertionError):
    """A law of the rendezvous does not hold."""


class Era:
    """What the store was seen to decide since it had no records. `ordinals` number generations across all eras.
    `ghosts` are nodes that a backup brought back.
    """

    def __init__(self, instance=1):
        self.instance = instance
        self.generations = {}
        self.ordinals = {}
        self.broken = {}
        self.deleted = {}
        self.end = None
        self.nodes = {}
        self.last = None
        self.done = set()
        self.failed = set()
        self.felt = set()
        self.touched = set()
        self.ghosts = set()
        self.lost_at = float("inf")

    def copy(self):
        """The same history, to go on from."""
        copied = Era(self.instance)
        for name in ("generations", "ordinals", "broken", "deleted", "nodes"):
            setattr(copied, name, dict(getattr(self, name)))
        for name in ("done", "failed", "felt", "touched"):
            setattr(copied, name, set(getattr(self, name)))
        copied.end, copied.last = self.end, self.last
        return copied


class Laws:
    """One world's record: all that was decided, and whose workers are alive, by the generation's ordinal."""

    def __init__(self, *settings, grace_s=10.0):
        self.fewest = min(each.min_nodes for each in settings)
        self.enough = max(each.min_nodes for each in settings)
        self.most = max(each.max_nodes for each in settings)
        self.room = min(each.max_nodes for each in settings)
        self.budgets = {each.max_restarts for each in settings}
        self.grace_s = grace_s
        self.checks_patience = False
        self.is_stranger = False
        self.ranks = {}
        self.eras = [Era()]
        self.alive = {}
        self._ordinal_of = {}
        self._jobs = {}
        self._came_at = {}
        self._now = 0.0
        self._genuine = set()
        self._ordinal = 0
        self._few_until = 0.0

    @property
    def era(self):
        return self.eras[-1]

    @property
    def end(self):
        return self.era.end

    # The store

    def history(self):
        return self.era.copy()

    def records_are_lost(self, world, history=None):
        """The store knows no more than what it knew at `history`."""
        old = self.era
        old.lost_at = world.clock.now
        self.eras.append(history.copy() if history else Era())
        self.era.ghosts = {node for node, _ in self.era.nodes.values()}
        self.era.instance = world.store.instance
        self._count_nodes(world)

    def store_changes(self, world, changes):
        keys, era = world.keys, self.era
        self._now = world.clock.now
        entries = {change.key: change.entry for change in changes.changes}
        generation, broken, end = (entries.get(key) for key in (keys.generation, keys.broken, keys.end))
        for key, entry in entries.items():
            if key.startswith(keys.nodes):
                self._node_changes(world, key.removeprefix(keys.nodes), entry)
            elif key.startswith(keys.done) and entry is not None:
                era.done.add(key.rpartition("/")[2])
            elif key.startswith(keys.refused) and entry is not None and self.ranks:
                self._is_refused(world, key.removeprefix(keys.refused))
        if self.is_stranger:
            self._stranger_deletes(world, entries)
        elif keys.generation in entries and generation is None and end is None:
            raise LawBrokenError("the generation was deleted without an end")
        if end is not None:
            self._end_is_written(world, decode(end, End))
        if broken is not None:
            self._is_broken(decode(broken, Broken))
        if generation is not None:
            self._is_decided(decode(generation, Generation))

    def _stranger_deletes(self, world, entries):
        keys, era = world.keys, self.era
        number = era.last.number if era.last else 0
        era.touched.add(number)
        if keys.generation in entries or keys.end in entries:
            nodes = era.nodes
            self.records_are_lost(world)
            self.era.nodes = nodes
        elif keys.broken in entries:
            era.deleted[number] = era.broken.pop(number, None)

    def _node_changes(self, world, node, entry):
        """An agent is one node at a time: it is another only after its lease has run out."""
        agent = node.rpartition(".")[0]
        nodes = self.era.nodes
        other, lease = nodes.get(agent, (node, 0))
        if entry is None:
            if other == node:
                nodes.pop(agent, None)
        elif world.store.lease_holds(entry.lease):  # otherwise it is too late, and as good as gone
            if other not in {node, *self.era.ghosts} and world.store.lease_holds(lease):
                raise LawBrokenError(f"{agent} is in the store twice: as {other} and as {node}")
            if other != node or agent not in nodes:
                self._came_at[agent] = world.clock.now
            nodes[agent] = (node, entry.lease)
        self._count_nodes(world)

    def _is_refused(self, world, node):
        """A node may replace one that was killed, whose lease ends within one: it has time for that."""
        agent, came = node.rpartition(".")[0], world.store.keyspace.get(f"{world.keys.nodes}{node}")
        if came is None:
            return  # it has left
        older = [
            entry.key
            for entry in world.store.keyspace.get_prefix(world.keys.nodes).entries
            if decode(entry, Node).rank == decode(came, Node).rank and entry.created < came.created
        ]
        if not older:
            raise LawBrokenError(f"{node} is refused, and nobody else has its rank for longer")
        if world.clock.now < self._came_at[agent] + 2 * world.ttl_s:
            raise LawBrokenError(f"{node} is refused after {world.clock.now - self._came_at[agent]:.1f} s")

    def _count_nodes(self, world):
        if len(self.era.nodes) < self.enough:
            self._few_until = float("inf")
        elif self._few_until == float("inf"):
            self._few_until = world.clock.now

    def _is_decided(self, made):
        era, last = self.era, self.era.last
        if made.number in era.generations:
            raise LawBrokenError(f"generation {made.number} was decided twice")
        if last is not None and not self._follows(made, last):
            raise LawBrokenError(f"generation {made.number} follows {last.number if last else 0}")
        if era.end is not None:
            raise LawBrokenError(f"generation {made.number} was decided after the end")
        # A decision that was on its way when a stranger deleted the word of the last one's end is as good as before.
        if last is not None and last.number not in {**era.broken, **era.deleted}:
            raise LawBrokenError(f"generation {made.number} was decided although {last.number} is not broken")
        nodes = [member.node for member in made.members]
        if len(set(nodes)) < len(nodes):
            raise LawBrokenError(f"generation {made.number} has a node twice: {' '.join(nodes)}")
        if not self.fewest <= len(nodes) <= self.most:
            raise LawBrokenError(f"generation {made.number} has {len(nodes)} nodes")
        self._counts_restarts(made, last)
        self._keeps_order(made, last)
        self._ordinal += 1
        era.ordinals[made.number] = self._ordinal
        era.generations[made.number] = era.last = made

    def _follows(self, made, last):
        """Numbers have no gaps, unless the store has lost some of its records and nodes remember higher ones."""
        return made.number == last.number + 1 if len(self.eras) == 1 else made.number > last.number

    def _counts_restarts(self, made, last):
        if last is not None and made.job != last.job:
            self._may_begin_anew(made, last)
            last = None
        before, allowed = (0, {0}) if last is None else (last.restarts, self._charges(last))
        if len(self.eras) > 1:  # nodes may remember more than the store does
            allowed |= {known - before for known in self._known_restarts(made.job)}
        if made.restarts - before not in allowed:
            expected = " or ".join(str(before + each) for each in sorted(allowed))
            raise LawBrokenError(f"generation {made.number} is restart {made.restarts}, not {expected}")
        if made.max_restarts not in ({last.max_restarts} if last else self.budgets):
            raise LawBrokenError(f"generation {made.number} is restart {made.restarts} of {made.max_restarts} now")
        if made.restarts > made.max_restarts:
            raise LawBrokenError(f"generation {made.number} is restart {made.restarts} of {made.max_restarts}")

    def _known_restarts(self, job):
        """How many restarts a job can have had, as far as any node knows."""
        known = {made.restarts for era in self.eras for made in era.generations.values() if made.job == job}
        return known | ({max(known) + 1} if known and self._genuine else set())

    def _may_begin_anew(self, made, last):
        """A run id is another job's once nobody is there who took part in the last one."""
        there = {
            agent
            for agent, (node, _) in self.era.nodes.items()
            if node not in self.era.ghosts and self._now >= self._came_at.get(agent, 0.0) + HEARD_OF_S
        }
        took_part = sorted(agent for agent in there if self._jobs.get(agent) == last.job)
        if took_part:
            raise LawBrokenError(
                f"generation {made.number} begins another job, though {took_part} took part in the last"
            )

    def _charges(self, last):
        """How many restarts may be charged for the end of a generation."""
        era, number = self.era, last.number
        broken = era.broken.get(number) or era.deleted[number]
        if number not in era.failed and not self._is_genuine(broken.failure):
            return {0}
        has_failed = int(broken.kind is BreakKind.FAILED)
        if number in era.touched or number not in era.failed:
            return {0, 1}
        here = {node for node, _ in era.nodes.values()}
        is_lost = any(member.node not in here for member in last.members)
        return {0, has_failed} if is_lost or number in era.felt else {has_failed}

    def _keeps_order(self, made, last):
        """Without ranks that were asked for, those who stay come first and in their old order.

        A leader may remember the generation before, also if a backup has brought back an older one.
        """
        if self.ranks:
            given = [self.ranks[member.host] for member in made.members]
            if given != list(range(self.most)):
                raise LawBrokenError(f"generation {made.number} has nodes that were told the ranks {given}")
            return
        if last is None or self.most > 100:
            return
        new = [member.node for member in made.members]
        remembered = [era.generations.get(made.number - 1) for era in self.eras]
        before = [[member.node for member in each.members] for each in (last, *filter(None, remembered))]
        if not any(_is_in_order(new, old) for old in before):
            raise LawBrokenError(f"generation {made.number} is {' '.join(new)} after {' '.join(before[0])}")

    def _is_broken(self, broken):
        era = self.era
        if era.last is None or broken.generation != era.last.number:
            if len(self.eras) == 1:
                raise LawBrokenError(f"generation {broken.generation} was broken, which is not the current one")
            return  # once revisions have begun again, what comes late may fit by accident
        if broken.generation in era.broken:
            raise LawBrokenError(f"generation {broken.generation} was broken twice")
        era.broken[broken.generation] = broken

    def _end_is_written(self, world, end):
        era, last = self.era, self.era.last
        if era.end is not None:
            raise LawBrokenError(f"a second end: {end.reason}")
        era.end = end
        if end.kind is EndKind.FAILED:
            # The end may have been on its way when a stranger deleted the word that the generation is broken.
            broken = (era.broken.get(last.number) or era.deleted.get(last.number)) if last else None
            is_told = broken is not None and broken.failure is not None
            if not is_told or (broken.failure != end.failure and last.number not in era.felt):
                raise LawBrokenError(f"the job failed, but not by what broke its last generation: {end.reason}")
            if not self._is_genuine(end.failure):
                raise LawBrokenError(f"the job failed of a lost node: {end.reason}")
            is_known = "twice within seconds" in end.reason and _is_alone(world)
            if last.restarts < last.max_restarts and not is_known:
                raise LawBrokenError(f"the job failed with restarts left: {end.reason}")

    # Workers

    def workers_start(self, world, agent, generation):
        era = next((era for era in reversed(self.eras) if _has(era, generation)), None)
        if era is None:
            raise LawBrokenError(f"{agent.name} starts a generation {generation.number} that was not decided")
        ordinal = era.ordinals[generation.number]
        for other, names in self.alive.items():
            if other != ordinal and not self._cannot_know(world, agent, other):
                raise LawBrokenError(
                    f"{agent.name} starts generation {generation.number} while workers of "
                    f"{self._number(other)} live on {sorted(names)}"
                )
        if generation.rank_of(agent.node) is None:
            raise LawBrokenError(f"{agent.name} starts generation {generation.number}, which it is not in")
        if self.ranks and generation.rank_of(agent.node) != self.ranks[agent.host]:
            raise LawBrokenError(f"{agent.name} starts generation {generation.number} with a rank that is not its own")
        if agent.line.instance != era.instance:
            raise LawBrokenError(f"{agent.name} starts generation {generation.number} of another store than it joined")
        era.generations[generation.number] = generation  # equal, and sooner seen to be
        self.alive.setdefault(ordinal, set()).add(agent.name)
        self._ordinal_of[agent.name] = ordinal
        self._jobs[agent.name] = generation.job

    def _cannot_know(self, world, agent, ordinal):
        """Whether workers of that generation belong to an era that was lost before this agent saw any of it."""
        if ordinal in self.era.ordinals.values():
            return False
        lost_at = max(era.lost_at for era in self.eras if ordinal in era.ordinals.values())
        is_new = agent.first_generation_seen_at is None or agent.first_generation_seen_at > lost_at
        return is_new and world.clock.now <= lost_at + self.grace_s

    def _number(self, ordinal):
        numbers = (number for era in self.eras for number, known in era.ordinals.items() if known == ordinal)
        return next(numbers, ordinal)

    def workers_end(self, world, agent):
        ordinal = self._ordinal_of.pop(agent.name)
        names = self.alive[ordinal]
        names.remove(agent.name)
        if not names:
            del self.alive[ordinal]

    def worker_fails(self, agent, failure, *, is_felt):
        if not is_felt:
            self._genuine.add((failure.node, failure.rank, failure.timestamp))
        ordinal = self._ordinal_of[agent.name]
        for era in self.eras:
            if era.ordinals.get(agent.workers) == ordinal:
                (era.felt if is_felt else era.failed).add(agent.workers)

    def _is_genuine(self, failure):
        """Whether a worker failed of itself like that."""
        return failure is not None and (failure.node, failure.rank, failure.timestamp) in self._genuine

    # Agents

    def agent_leaves(self, world, agent, leave):
        if leave.end is not None:
            if all(leave.end != era.end for era in self.eras):
                raise LawBrokenError(f"{agent.name} leaves with {leave.end}, but the end is {self.end}")
            return
        me = agent.membership.me
        if me.store_is_gone and not world.has_lost_a_store:
            raise LawBrokenError(f"{agent.name} leaves since the store is gone, and it is there")
        if me.store_is_gone or agent.was_cut_off:
            return
        if me.is_done_published and self.end is not None:
            raise LawBrokenError(f"{agent.name} is done and recorded, and leaves without the end: {leave.reason}")
        patience_s = world.settings_of(agent.host).join_timeout_s
        is_enough = self.checks_patience and self.end is None
        if is_enough and world.clock.now - self._few_until >= patience_s - 1.0:
            raise LawBrokenError(f"{agent.name} leaves while enough nodes are there: {leave.reason}")


def _is_in_order(new, old):
    survivors = [node for node in old if node in new]
    return new[: len(survivors)] == survivors


def _is_alone(world):
    """Whether nobody could go on without the one node that there is. If it fails twice at the same line, that is the
    end.
    """
    return len(world.store.keyspace.get_prefix(world.keys.nodes).entries) <= 1


def _has(era, generation):
    known = era.generations.get(generation.number)
    return known is generation or known == generation
