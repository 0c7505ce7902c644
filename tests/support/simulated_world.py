"""A world of agents and a store on virtual time; all that is random in it comes from one generator.

A world alone is calm: messages take no time, threads are never late, workers start and stop at once. Transcripts are
written in it as it is.
`simulated_storms` gives it weather, and `simulated_laws` looks at all that happens in it.
"""

from __future__ import annotations

from random import Random

import simulated_agent
from simulated_agent import Agent
from simulated_clock import Clock
from simulated_line import Way
from simulated_store import SimulatedStore

from holdfast.rendezvous.records import Keys

FIRST_PORT = 29_500

KEEPER_REVOKES_S = 0.25
"""How long after an agent was killed its keeper has given back the lease, with the embedded store."""

GRACE_S = 0.25
"""How long a store that shortens leases leaves one whose connection broke; a planted bug."""


class World:
    """Hosts by name, each with the lives of its agent. `laws` is told of all that matters; `trace` of everything."""

    def __init__(
        self, settings, *, random=None, flavour="embedded", ttl_s=10.0, keep_alive_s=2.5, laws=None, trace=None
    ):
        self.settings = settings
        self.random = random or Random(0)
        self.clock = Clock()
        self.store = SimulatedStore(self.clock, flavour)
        self.keys = Keys("job")
        self.ttl_s = ttl_s
        self.has_lost_a_store = False
        self.keep_alive_s = keep_alive_s
        self.agents = {}
        self.messages = 0
        self.latency_s = _no_time
        self.echo_s = 0.0
        self.start_delay_s = _no_time
        self.stop_delay_s = lambda _host: 0.0
        self.leave_delay_s = lambda: 30.0
        self.thread_delay_s = _no_time
        self.kill_delay_s = _no_time
        self.last_will_s = lambda: KEEPER_REVOKES_S if flavour == "embedded" else None
        self.ranks = {}
        # What the product does, and a planted bug does not. Only the client of etcd looks at revisions, and the rules
        # have to hold also without that.
        self.client_checks_identity = True
        self.client_checks_revision = False
        self.agent_ends_when_refused = True
        self.agent_looks_ahead = True
        self.agent_heeds_the_fence = True
        self.will_is_first = False
        self.reset_shortens_leases = False
        self.laws = laws
        self._trace = trace
        self._ways = {}
        self._lives = {}
        self._ports = {}
        self._observe()

    # Hosts

    def settings_of(self, host):
        return self.settings

    def ttl_s_of(self, host):
        return self.ttl_s

    def way(self, host):
        if host not in self._ways:
            self._ways[host] = Way(lambda: self.latency_s())  # noqa: PLW0108 - it may be given later
        return self._ways[host]

    def start(self, host):
        """An agent starts on a host; a later life has another name."""
        life = self._lives[host] = self._lives.get(host, 0) + 1
        name = host if life == 1 else f"{host}-{life}"
        self.tell(name, "starts")
        agent = self.agents[host] = Agent(self, host, name)
        return agent

    def offer(self, host):
        """What a host offers each time: another port, since workers of the last generation may still hold theirs."""
        port = self._ports[host] = self._ports.get(host, FIRST_PORT - 1) + 1
        return simulated_agent.offer(host, port, self.ranks.get(host, -1))

    def living(self):
        return [agent for agent in self.agents.values() if not agent.is_over]

    def cut(self, host, *, up=True, down=True):
        way = self.way(host)
        if (way.is_up_blocked and not up) or (way.is_down_blocked and not down):
            way.free()  # or what is sent now would overtake what is held
        way.is_up_blocked, way.is_down_blocked = up, down
        self.tell(host, f"is cut off{'' if up and down else ' one way: ' + ('to' if up else 'from') + ' the store'}")

    def heal(self, host):
        way = self.way(host)
        if way.is_up_blocked or way.is_down_blocked:
            self.tell(host, "is connected again")
        way.free()

    def break_connection(self, agent):
        """The connection of an agent breaks."""
        self.tell(agent.name, "connection is reset")
        lease, store = agent.membership.me.lease, self.store
        if self.reset_shortens_leases and lease:
            self.clock.after(GRACE_S, self._revoke_if_not_renewed, store, lease, store.lease_end(lease))
        agent.act(agent.line.reset)

    def _revoke_if_not_renewed(self, store, lease, ends):
        if store.lease_end(lease) == ends:
            store.revoke(lease)

    # The store

    def lose_store(self):
        """Nobody serves there any more; the kernel of its host says so."""
        self.tell("store", "is gone for good")
        self.store.is_gone = self.has_lost_a_store = True
        self._break_connections()

    def replace_store(self):
        """Another store answers at the same address, and knows nothing."""
        old = self.store
        self.tell("store", "is replaced by an empty one")
        old.is_gone = old.is_replaced = self.has_lost_a_store = True
        self.store = SimulatedStore(self.clock, old.flavour, old.instance + 1)
        self.store.expiry_lag_s = old.expiry_lag_s
        if self.laws is not None:
            self.laws.records_are_lost(self)
        self._observe()
        self._break_connections()

    def restore_store(self, backup=None):
        """The store has the data of a backup, or none; its identity is the same."""
        self.tell("store", "loses all its data" if backup is None else "is restored from a backup")
        data, history = backup or (None, None)
        self.store.restore(data)
        if self.laws is not None:
            self.laws.records_are_lost(self, history)
        self._observe()
        self._break_connections()

    def backup(self):
        self.tell("store", "is backed up")
        return self.store.backup(), None if self.laws is None else self.laws.history()

    def delete(self, *operations):
        """A stranger deletes records of the run."""
        if self.laws is not None:
            self.laws.is_stranger = True
        self.store.delete(operations)
        if self.laws is not None:
            self.laws.is_stranger = False

    def _break_connections(self):
        """The kernel of the store's host says that nobody is there, to all whom it reaches."""
        for agent in self.living():
            if not self.way(agent.host).is_down_blocked:
                agent.act(agent.line.reset)

    def _observe(self):
        if self.laws is not None or self._trace is not None:
            keyspace = self.store.keyspace
            keyspace.watch(self.keys.group, keyspace.revision + 1, self._written)

    def chance(self, probability):
        return self.random.random() < probability

    # What happens

    def tell(self, who, what):
        if self._trace is not None:
            self._trace(self.clock.now, who, what)

    def on_failure(self, agent, failure, *, is_felt):
        """A worker fails: of itself, or because its peer is gone."""
        if self.laws is not None:
            self.laws.worker_fails(agent, failure, is_felt=is_felt)

    def on_run(self, agent, generation):
        """Workers run; worlds with a plan for them say here what becomes of them."""

    def on_step(self, agent):
        """An agent has thought about what to do."""

    def on_answer(self, agent, effect, outcome):
        if not outcome.succeeded and not effect.transaction.otherwise:
            self.tell(agent.name, f"is too late: {effect.what}")

    def on_start(self, agent, generation):
        rank = generation.rank_of(agent.node)
        if self._trace is not None:
            self.tell(
                agent.name,
                f"starts generation {generation.number} as rank {rank} of {len(generation.members)}, "
                f"restart {generation.restarts} of {generation.max_restarts}, "
                f"master {generation.master_address}:{generation.master_port}",
            )
        if self.laws is not None:
            self.laws.workers_start(self, agent, generation)

    def on_end_of_workers(self, agent):
        if self.laws is not None:
            self.laws.workers_end(self, agent)

    def on_break_down(self, agent):
        """An agent found that the store refuses it: it is full, or has lost data."""
        self.tell(agent.name, "breaks down: the store refuses it")

    def on_gone(self, agent):
        """An agent was asked to leave, and has."""
        self.tell(agent.name, "is gone")

    def on_leave(self, agent, leave):
        how = "without an end" if leave.end is None else leave.end.kind.value
        self.tell(agent.name, f"leaves, {how}: {leave.reason}")
        if self.laws is not None:
            self.laws.agent_leaves(self, agent, leave)

    def _written(self, changes):
        if self._trace is not None:
            for line in describe(changes, self.keys):
                self.tell("store", line)
        if self.laws is not None:
            self.laws.store_changes(self, changes)


def describe(changes, keys):
    """What a transaction changed, as lines for people."""
    from holdfast.rendezvous.records import Broken, End, Generation, Node, decode

    for change in changes.changes:
        name = change.key.removeprefix(keys.group).removeprefix("shared/")
        entry = change.entry
        if name.startswith("alive/"):  # it comes and goes with the node's record
            continue
        if entry is None:
            if not name.startswith(("done/", "broken", "generation")):
                yield f"- {name}"
        elif change.key == keys.generation:
            made = decode(entry, Generation)
            members = " ".join(member.node for member in made.members)
            yield f"+ generation {made.number}: {members} (restart {made.restarts} of {made.max_restarts})"
        elif change.key == keys.broken:
            broken = decode(entry, Broken)
            yield f"+ broken {broken.generation}, {broken.kind.value}: {broken.reason}"
        elif change.key == keys.end:
            end = decode(entry, End)
            yield f"+ end, {end.kind.value}: {end.reason}"
        elif change.key == keys.leader:
            yield f"+ leader {entry.value.decode()}"
        elif change.key.startswith(keys.nodes):
            node = decode(entry, Node)
            rank = f", asks for rank {node.rank}" if node.rank >= 0 else ""
            stopped = f", has stopped {node.stopped}" if node.stopped else ""
            yield f"+ {name}: port {node.port}{rank}{stopped}"
        else:
            yield f"+ {name}"


def _no_time():
    return 0.0
