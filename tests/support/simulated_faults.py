"""Everything that can go wrong in a simulated world. Each fault is a method, and draws from the world's generator."""

from __future__ import annotations

from msgspec.structs import replace

from holdfast.coordination.model import Delete, DeletePrefix
from holdfast.errors.kind import FailureKind
from holdfast.rendezvous.records import End, EndKind

FELT_WITHIN_S = (0.02, 0.1)
"""How soon after a node is gone its peers' workers fail because of it."""

FELT_AS = (FailureKind.COMMUNICATION, FailureKind.CRASH, FailureKind.EXIT)
"""How they fail."""

FLAPS_S = (0.5, 5.0)
"""How long the agent of a flapping host lives each time."""

REFUSED_S = 2.8
"""How long somebody on the way refuses connections at most: less than a third of a lease, with time to reconnect."""


class Faults:
    """The faults of a `Storm`."""

    def _somebody(self):
        living = self.living()
        return self.random.choice(living) if living else None

    def _leader(self):
        entry = self.store.keyspace.get(self.keys.leader)
        leaders = [agent for agent in self.living() if entry and agent.membership.me.node == entry.value.decode()]
        return leaders[0] if leaders else self._somebody()

    def _a_while(self):
        return self.random.choice((self.random.uniform(0.0, 3.0), self.random.uniform(3.0, 12.0), 25.0))

    # Agents and workers

    def fail(self):
        running = [agent for agent in self.living() if agent.is_running]
        if running and not self.is_calm:
            agent = self.random.choice(running)
            agent.fail(agent.workers)

    def crash(self, agent=None):
        agent = agent or self._somebody()
        if agent is not None:
            agent.crash()

    def crash_leader(self):
        self.crash(self._leader())

    def crash_felt(self):
        """An agent is killed, and workers of its peers fail because of that, before anybody knows why."""
        running = [agent for agent in self.living() if agent.is_running]
        if not running:
            return
        agent = self.random.choice(running)
        generation = agent.workers
        agent.crash()
        for peer in running:
            if peer is not agent and peer.workers == generation and self.chance(0.7):
                kind = self.random.choice(FELT_AS)
                at_s = self.random.uniform(*FELT_WITHIN_S)
                self.clock.after(at_s, lambda peer=peer, kind=kind: peer.fail(generation, is_felt=True, kind=kind))

    def host_dies(self):
        """A machine loses its power: nobody is left to give back the lease."""
        agent = self._somebody()
        if agent is not None:
            self.tell(agent.host, "loses its power")
            agent.crash(with_host=True)

    def drain(self, agent=None):
        agent = agent or self._somebody()
        if agent is not None and not agent.is_paused:
            self.tell(agent.name, "is asked to leave")
            agent.drain()

    def restart(self):
        for host in self.hosts:
            if host in self.agents and self.agents[host].is_over:
                self.start_if_over(host)
                return

    def pause(self, agent=None):
        agent = agent or self._somebody()
        if agent is not None:
            agent.pause()
            self.clock.after(self._a_while(), agent.resume)

    def stall(self):
        """The agent's thread is busy for a while, and the member's goes on; the host may be cut off meanwhile."""
        agent = self._somebody()
        if agent is not None:
            agent.stalls_until = self.clock.now + self._a_while()
            self.tell(agent.name, f"does not look at its events until {agent.stalls_until:.3f}")
            if self.chance(0.5):
                self._cut(agent)

    def pause_leader(self):
        self.pause(self._leader())

    def close(self):
        agent = self._somebody()
        if agent is not None and not agent.is_paused:
            self.is_closed = True
            self.tell(agent.name, "closes the job")
            agent.close(End(EndKind.CLOSED, f"{agent.name} cannot go on"))

    # The network

    def _cut(self, agent, **directions):
        if agent is not None:
            self.cut(agent.host, **directions)
            self.clock.after(self._a_while(), self.heal, agent.host)

    def cut_one(self):
        self._cut(self._somebody())

    def cut_up(self):
        self._cut(self._somebody(), down=False)

    def cut_down(self):
        self._cut(self._somebody(), up=False)

    def cut_leader(self):
        self._cut(self._leader())

    def reset(self, agent=None):
        agent = agent or self._somebody()
        if agent is not None:
            self.break_connection(agent)

    def reset_slowly(self):
        """A connection breaks, and the next one takes its time."""
        agent = self._somebody()
        if agent is not None:
            self.way(agent.host).connects_at = self.clock.now + self.random.uniform(0.5, 4.0)
            self.break_connection(agent)

    def refuse(self):
        """A connection breaks, and somebody on the way refuses the next ones for less than the lease bears."""
        agent = self._somebody()
        if agent is None or self.clock.now < self.way(agent.host).refuses_until + self.ttl_s:
            return
        self.way(agent.host).refuses_until = self.clock.now + self.random.uniform(0.0, REFUSED_S)
        self.tell(agent.host, f"is refused by somebody on the way until {self.way(agent.host).refuses_until:.3f}")
        self.break_connection(agent)

    def outage(self):
        self.tell("store", "cannot be reached by anybody")
        for host in self.hosts:
            self.cut(host)
            self.clock.after(self._a_while(), self.heal, host)

    # The store

    def pause_store(self):
        self.tell("store", "stands still")
        self.store.pause()
        self.clock.after(self._a_while(), self.store_resumes)

    def store_resumes(self):
        if self.store.is_paused:
            self.tell("store", "runs again")
            self.store.resume()

    def swap_store(self):
        """The host of an embedded store is killed, and another store answers there, at once or a little later."""
        if self.store.flavour != "embedded" or self.store.is_gone:
            return
        if self.chance(0.5):
            self.replace_store()
        else:
            self.lose_store()
            self.clock.after(self.random.uniform(0.0, 3.0), self.store_is_served_again)

    def store_is_served_again(self):
        if self.store.is_gone and not self.store.is_replaced:
            self.replace_store()
            if self.is_calm:
                self.start_all()

    def back_up(self):
        if self.store.flavour == "etcd":
            self.backups.append(self.backup())

    def wipe_store(self):
        if self.store.flavour == "etcd":
            self.restore_store()

    def rewind_store(self):
        if self.store.flavour == "etcd" and self.backups:
            self.restore_store(self.random.choice(self.backups))

    def fill_store(self):
        """Nothing more can be written, for a while."""
        if self.store.flavour == "etcd" and not self.store.is_full:
            self.tell("store", "is full")
            self.store.is_full = True
            self.full_since = self.clock.now
            self.clock.after(self.random.uniform(5.0, 40.0), self.store_has_space)

    def store_has_space(self):
        if self.store.is_full:
            self.tell("store", "has space again")
            self.store.is_full = False

    # Strangers

    def _delete(self, *operations):
        if not self.store.is_gone:
            names = (getattr(each, "key", "") or each.prefix for each in operations)
            self.tell("stranger", f"deletes {', '.join(name.removeprefix(self.keys.group) or 'all' for name in names)}")
            self.delete(*operations)

    def _delete_one(self, prefix):
        entries = self.store.keyspace.get_prefix(prefix).entries
        if entries:
            self._delete(Delete(self.random.choice(entries).key))

    def delete_generation(self):
        self._delete_one(self.keys.generation)

    def delete_leader(self):
        self._delete_one(self.keys.leader)

    def delete_broken(self):
        self._delete_one(self.keys.broken)

    def delete_node(self):
        self._delete_one(self.keys.nodes)

    def delete_done(self):
        self._delete_one(self.keys.done)

    def delete_end(self):
        self._delete_one(self.keys.end)

    def delete_all(self):
        self._delete(DeletePrefix(self.keys.group))

    def delete_one_by_one(self):
        """Somebody deletes all keys, or some of each kind, with a request for each: not at once."""
        groups = (self.keys.alive, self.keys.nodes, self.keys.shared)
        listed = [[entry.key for entry in self.store.keyspace.get_prefix(group).entries] for group in groups]
        keys = [key for each in listed for key in each[: self.random.choice((1, len(each)))]]
        gap_s = self.random.choice((0.0005, 0.002, 0.01))
        for number, key in enumerate(keys):
            self.clock.after(number * gap_s, self._delete, Delete(key))

    # Worlds with a plan of their own

    def flap(self):
        """One of four hosts comes and goes all the time; the others suffice."""
        self.settings = replace(self.settings, min_nodes=self.random.randint(1, 3), max_nodes=4)
        self.flapper = self.hosts[-1]
        self.clock.at(self.random.uniform(0.0, 3.0), self._flap)

    def _flap(self):
        if self.is_calm:
            return
        self.start_if_over(self.flapper)
        self.clock.after(self.random.uniform(*FLAPS_S), self._flap_away)

    def _flap_away(self):
        agent = self.agents.get(self.flapper)
        if agent is not None and not agent.is_over and not self.is_calm:
            self.random.choice((self.crash, self.drain))(agent)
        self.clock.after(self.random.uniform(0.0, 1.0), self._flap)

    def differ(self):
        """Each host was given settings of its own."""
        random = self.random
        for host in self.hosts:
            least = random.randint(1, len(self.hosts))
            self.others[host] = replace(
                self.settings,
                min_nodes=least,
                max_nodes=random.randint(least, len(self.hosts)),
                max_restarts=random.choice((0, 1, 3, 10)),
                last_call_s=random.choice((0.0, 1.0, 5.0)),
                recall_s=random.choice((0.0, 0.0, 2.0)),
                join_timeout_s=random.choice((30.0, 600.0)),
            )

    def differ_in_leases(self):
        """Each host was given a lease of its own length."""
        for host in self.hosts:
            self.others[host] = replace(self.settings, lease_s=self.random.choice((5.0, 10.0, 20.0)))

    def give_ranks(self):
        """Each host was told its rank. More hosts may be told the same ones later."""
        size = self.settings.max_nodes
        self.settings = replace(self.settings, min_nodes=size, has_given_ranks=True)
        self.hosts = self.hosts[:size]
        self.ranks.update((host, rank) for rank, host in enumerate(self.hosts))

    def start_a_twin(self):
        """Somebody takes a host for lost, and starts an agent with its rank on another one, sooner or later."""
        if self.is_calm:
            return
        host = self.random.choice(self.hosts)
        self._lose(self.agents.get(host))
        twin = chr(ord("a") + len(self.hosts))
        self.hosts.append(twin)
        self.ranks[twin] = self.ranks[host]
        self.clock.after(self.random.uniform(0.0, 15.0), self.start_if_over, twin)

    def _lose(self, agent):
        """What may have befallen a host that is taken for lost; sometimes nothing."""
        if agent is not None and not agent.is_over:
            how = self.random.choice(("kill", "power", "cut", "pause", "nothing"))
            if how in ("kill", "power"):
                agent.crash(with_host=how == "power")
            elif how == "cut":
                self._cut(agent)
            elif how == "pause":
                self.pause(agent)

    def one_fails(self):
        """The workers of one host fail at the same line whenever they run; the others are well, and suffice."""
        least = self.random.randint(1, len(self.hosts) - 1)
        self.settings = replace(self.settings, min_nodes=min(least, self.settings.max_nodes), max_restarts=10)
        self.bad_host = self.random.choice(self.hosts)

    def fail_at_once(self, agent, generation):
        agent.fail(generation, kind=FailureKind.EXCEPTION, where="/job/train.py:7", exception="ValueError")
