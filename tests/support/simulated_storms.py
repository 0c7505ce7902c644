"""Weather for simulated worlds: everything that can go wrong, at times that a seed decides.

A run has three parts: a start, a time of faults, and a calm time in which everything is healed and every host has an
agent. By its end the job has to be over, for everybody and in the same way.

    python tests/support/simulated_storms.py --mix storm --seed 7      what happens with one seed, line by line
    python tests/support/simulated_storms.py --seeds 1000 --jobs 2     many seeds of each mix, in two processes
"""

from __future__ import annotations

from random import Random

from simulated_faults import Faults
from simulated_laws import LawBrokenError, Laws
from simulated_mixes import FAULTS_S, MIXES, NOT_YET
from simulated_world import World

from holdfast.rendezvous.decision import Settings
from holdfast.rendezvous.records import EndKind

__all__ = ["FAULTS_S", "MIXES", "NOT_YET", "Storm", "replay_command", "run"]

CALM_S = 150.0
"""How long after all nodes run together a job may take to end; workers run for at most 30 s of it."""

TTL_S = 10.0
"""How long a lease lasts."""

LATE_S = 10.0
"""How late a thread is at most, when it is late ..."""

VERY_LATE_S = 30.0
"""... and now and then: longer than a lease."""

PART = 500
"""How many seeds of a mix a process takes at a time."""

SHOWN = 3
"""How many of the seeds that fail are shown for each mix."""

UNDISTURBED = 0.8
"""The share of the time that workers of the others run while one host of four comes and goes."""


class Storm(Faults, World):
    """A world with weather. Workers of a generation work for a while, and succeed."""

    def __init__(self, mix, seed, trace=None):
        self.mix = mix = MIXES[mix]
        random = Random(seed)
        most = random.randint(*mix.nodes)
        settings = Settings(
            min_nodes=random.randint(1, most),
            max_nodes=most,
            max_restarts=random.choice((0, 1, 3, 10)),
            last_call_s=random.choice((0.0, 1.0, 5.0)),
            recall_s=random.choice((0.0, 0.0, 2.0)),
            join_timeout_s=random.choice(mix.join_timeouts_s),
            lease_s=TTL_S,
        )
        flavour = "etcd" if random.random() < mix.etcd else "embedded"
        keep_alive_s = random.choice((1.0, 2.5))
        super().__init__(
            settings,
            random=random,
            flavour=flavour,
            ttl_s=TTL_S,
            keep_alive_s=keep_alive_s,
            laws=Laws(settings),
            trace=trace,
        )
        if flavour == "etcd":
            self.store.expiry_lag_s = lambda: random.uniform(0.0, 1.0)
        more = 0 if mix.nodes[0] == mix.nodes[1] else random.choice((0, 0, 1, 2))
        self.hosts = [chr(ord("a") + number) for number in range(most + more)]
        high_s = random.choice((0.002, mix.latency_s))
        self.latency_s = lambda: random.uniform(0.0, high_s)
        self.start_delay_s = lambda: random.uniform(0.0, 1.0)
        self.stop_delay_s = lambda _host: random.choice(
            (0.0, random.uniform(0.0, 1.0), random.uniform(0.0, mix.stop_s))
        )
        self.leave_delay_s = lambda: random.uniform(0.0, 10.0)
        if mix.late_threads:
            self.thread_delay_s = self._thread_delay_s
        self.kill_delay_s = lambda: random.uniform(0.0, random.choice((0.1, 0.1, 2.0)))
        self.last_will_s = self._last_will_s
        self.echo_s = mix.echo_s
        self.is_calm = False
        self.is_settled = False
        self.is_closed = False
        self.settles = self.chance(mix.settles)
        self.backups = []
        self.others = {}
        self.bad_host = None
        self.flapper = None
        self.full_since = 0.0
        self._ran_s = {}
        self._first_ran_at = None
        self.client_checks_revision = flavour == "etcd" and self.chance(0.5)
        if mix.special:
            getattr(self, mix.special)()
        late_s = VERY_LATE_S if mix.late_threads else 0.0
        lease_s = max(self.ttl_s_of(host) for host in self.hosts)
        self.laws = Laws(self.settings, *self.others.values(), grace_s=lease_s + mix.stop_s + late_s)
        self.laws.checks_patience = mix.patience
        self.laws.ranks = self.ranks

    def settings_of(self, host):
        return self.others.get(host, self.settings)

    def ttl_s_of(self, host):
        return self.settings_of(host).lease_s

    def _thread_delay_s(self):
        """Mostly none, or a few milliseconds; sometimes seconds."""
        random = self.random
        if self.is_calm or random.random() < 0.5:
            return 0.0
        if random.random() >= self.mix.late_threads:
            return random.uniform(0.0, 0.05)
        return random.uniform(0.0, random.choice((LATE_S, LATE_S, VERY_LATE_S)))

    def _last_will_s(self):
        """How long after the workers' death a keeper has given back their lease; sometimes it cannot."""
        share = 0.8 if self.store.flavour == "embedded" else 0.3
        return self.random.uniform(0.05, 0.5) if self.chance(share) else None

    def weather(self):
        """Plan everything that will go wrong."""
        random, clock = self.random, self.clock
        for host in self.hosts:
            if host != self.flapper:
                late = self.chance(self.mix.late)
                clock.at(random.uniform(0.0, FAULTS_S if late else 3.0), self.start_if_over, host)
        names = sorted(self.mix.weights)
        weights = [self.mix.weights[name] for name in names]
        for _ in range(random.randint(*self.mix.faults)):
            name = random.choices(names, weights)[0]
            clock.at(random.uniform(0.0, self.mix.faults_s), getattr(self, name))

    def calm_down(self):
        """Everything is healed, and every host has an agent."""
        self._check_flapping()
        self.is_calm = True
        self.tell("world", "calms down")
        self.store_resumes()
        self.store_has_space()
        for host in self.hosts:
            self.heal(host)
            if host in self.agents:
                self.agents[host].resume()
        self.start_all()

    def start_all(self):
        for host in self.hosts:
            self.start_if_over(host)

    def start_if_over(self, host):
        agent = self.agents.get(host)
        if self.is_calm and any(self._is_twin_of(host, other) for other in self.living()):
            return
        knows_no_end = agent is None or (agent.is_over and (agent.left is None or agent.left.end != self.laws.end))
        if (knows_no_end or (agent.is_over and self.laws.end is None)) and not self.store.is_gone:
            self.start(host)

    def _is_twin_of(self, host, other):
        """Whether an agent on another host was told the same rank."""
        return host in self.ranks and other.host != host and self.ranks[other.host] == self.ranks[host]

    def on_run(self, agent, generation):
        if self._first_ran_at is None:
            self._first_ran_at = self.clock.now
        if agent.host == self.bad_host:
            self.clock.after(self.random.uniform(0.1, 2.0), self.fail_at_once, agent, generation.number)
            return
        low_s, high_s = (1.0, 30.0) if self.is_calm else self.mix.work_s
        self.clock.after(self.random.uniform(low_s, high_s), self._finish, agent, generation.number)

    def on_end_of_workers(self, agent):
        super().on_end_of_workers(agent)
        if agent.is_running:
            self._ran_s[agent.host] = self._ran_s.get(agent.host, 0.0) + self.clock.now - agent.ran_since

    def _finish(self, agent, generation):
        """Workers are done, unless they are to run until all do."""
        if self.is_settled or not self.settles:
            agent.succeed(generation)

    def on_leave(self, agent, leave):
        super().on_leave(agent, leave)
        self._replace(agent)

    def on_gone(self, agent):
        super().on_gone(agent)
        self._replace(agent)

    def _replace(self, agent):
        """Once it is calm, whoever left without the end is started again."""
        if self.is_calm:
            self.clock.after(1.0, self.start_if_over, agent.host)

    def on_break_down(self, agent):
        """With a full store, nodes end one after the other: who is left has to write that a node is lost, or lead."""
        super().on_break_down(agent)
        if agent.workers and not self.mix.late_threads:
            bound_s = self.ttl_s + self.mix.stop_s + 2.0
            self.clock.after(bound_s, self._check_everybody_is_out, self.full_since, self.clock.now)

    # Laws of progress

    def _check_everybody_is_out(self, full_since, since):
        """Everybody who was there when a node found the store full has left, if it still is."""
        if not self.store.is_full or self.full_since != full_since or self.laws.end is not None:
            return
        for agent in self.living():
            if agent.started_at < since and agent.workers and not agent.is_paused and not self.laws.era.done:
                raise LawBrokenError(f"{agent.name} runs workers long after the store was found to be full")

    def _check_flapping(self):
        """The others run most of the time, although one host comes and goes."""
        if self.flapper is None:
            return
        if self._first_ran_at is None:
            raise LawBrokenError("nobody ever ran while one host came and went")
        total_s = self.clock.now - self._first_ran_at
        for host in self.hosts:
            agent = self.agents.get(host)
            ran_s = self._ran_s.get(host, 0.0)
            if agent is not None and agent.is_running:
                ran_s += self.clock.now - agent.ran_since
            if host != self.flapper and ran_s < UNDISTURBED * total_s:
                raise LawBrokenError(
                    f"{host} ran for {ran_s:.0f} of {total_s:.0f} s while {self.flapper} came and went"
                )

    def settle(self):
        """Everybody runs in the newest generation, or is a spare; from here on, workers succeed."""
        self.is_settled = True
        self.tell("world", "has settled")
        if self.laws.end is not None or self.store.is_gone:
            return
        newest = self.laws.era.last
        if newest is None or newest.number in self.laws.era.broken:
            raise LawBrokenError("no generation is on, long after the faults")
        members = {member.node for member in newest.members}
        for agent in self.living():
            me = agent.membership.me
            if me.node in members:
                if not agent.is_running or agent.workers != newest.number:
                    raise LawBrokenError(f"{agent.name} does not run generation {newest.number}")
                self.clock.after(self.random.uniform(0.0, 30.0), agent.succeed, newest.number)
            elif self.settings.has_given_ranks:
                raise LawBrokenError(f"{agent.name} is still here, and another node has its rank")
            elif len(members) < self.laws.room and not self._is_left_out(agent, newest):
                raise LawBrokenError(f"{agent.name} is not in generation {newest.number}, which has room")
        self._check_views(newest)

    def _is_left_out(self, agent, generation):
        """Whether the others go on without this node on purpose."""
        names = {agent.membership.me.node, agent.host}
        return agent.host in (self.bad_host, self.flapper) or not names.isdisjoint(generation.past.left_out)

    def _check_views(self, newest):
        """Everybody sees what the store has."""
        leader = self.store.keyspace.get(self.keys.leader)
        leader = None if leader is None else leader.value.decode()
        there = {
            entry.key.removeprefix(self.keys.nodes) for entry in self.store.keyspace.get_prefix(self.keys.nodes).entries
        }
        alive = {
            entry.key.removeprefix(self.keys.alive) for entry in self.store.keyspace.get_prefix(self.keys.alive).entries
        }
        if len(self.laws.eras) > 1 and not self.client_checks_revision:
            return  # a watch of a store that was rewound may wait for revisions that have passed; etcd's client looks
        for agent in self.living():
            view = agent.membership.view
            if view is None or view.leader != leader or view.generation != newest or view.broken is not None:
                raise LawBrokenError(f"{agent.name} does not see what the store has, long after the faults")
            if agent.membership.me.node == leader and view.nodes.keys() != there:
                raise LawBrokenError(f"{agent.name} leads, and does not see the nodes that are there")
            if agent.membership.me.node not in there | alive:
                raise LawBrokenError(f"{agent.name} believes to be there as {agent.membership.me.node}, and is not")

    def is_over(self):
        if self.store.is_gone:
            return not self.living()
        return self.laws.end is not None and not self._without_end()

    def check_end(self):
        """Everybody has left, and in the same way; nobody's workers live."""
        if self.laws.alive:
            raise LawBrokenError(f"workers live after the end: {self.laws.alive}")
        here = self.living()
        if self.store.is_gone:  # whoever never saw the store waits for one to come, as long as it waits for nodes
            here = [agent for agent in here if agent.membership.view is not None]
        if here:
            agent = here[0]
            raise LawBrokenError(f"{agent.name} is still here: {agent.membership.status or agent.membership.me}")
        if self.store.is_gone:
            return
        without = self._without_end()
        if without:
            raise LawBrokenError(f"the job is over ({self.laws.end}), but {without} left without its end")
        if self.laws.end.kind is EndKind.CLOSED and not self.is_closed:
            raise LawBrokenError("nobody closed the job")

    def _without_end(self):
        """The agents that have to know an end and do not. Of hosts with the same rank, one has to."""
        served = {self.ranks.get(agent.host) for agent in self.agents.values() if _knows_an_end(agent)} - {None}
        return [
            agent.name
            for agent in self.agents.values()
            if not _knows_an_end(agent) and not (agent.is_over and self.ranks.get(agent.host) in served)
        ]


def _knows_an_end(agent):
    return agent.left is not None and agent.left.end is not None


def run(mix, seed, trace=None, faults=(), prepare=None):
    """One world from its start to its end; returns how many messages it took.

    `faults` come on top of its weather: when, and which. `prepare` may change the world before anything happens.
    """
    world = Storm(mix, seed, trace)
    if prepare is not None:
        prepare(world)
    world.weather()
    clock = world.clock
    for at, name in faults:
        clock.at(at, getattr(world, name))
    clock.run(world.mix.faults_s)
    world.calm_down()
    if world.settles:
        clock.after(world.mix.settled_s, world.settle)
    clock.run(clock.now + world.mix.settled_s + CALM_S, world.is_over)
    world.check_end()
    return world.messages


def replay_command(mix, seed):
    return f"python tests/support/simulated_storms.py --mix {mix} --seed {seed}"


def show(now, who, what):
    print(f"{now:9.3f}  {who:<6} {what}")


def count_failures(mix, first, seeds):
    """How many of those seeds break a law, what the first ones say, and how long it took."""
    import time

    began, failures, said = time.perf_counter(), 0, []
    for seed in range(first, first + seeds):
        try:
            run(mix, seed)
        except AssertionError as error:
            failures += 1
            if failures <= SHOWN:
                said.append(f"{replay_command(mix, seed)}: {error!r:.300}")
    return failures, said, time.perf_counter() - began


def main():
    import argparse
    import os
    import sys
    from concurrent.futures import ProcessPoolExecutor

    parser = argparse.ArgumentParser(description="Simulated worlds of the rendezvous.")
    parser.add_argument("--mix", choices=sorted(MIXES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, help="run that many seeds, and say which of them fail")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="in that many processes")
    options = parser.parse_args()
    if options.seeds is None:
        print(f"{run(options.mix or 'storm', options.seed, show)} messages")
        return
    failed = 0
    with ProcessPoolExecutor(options.jobs) as pool:
        mixes = [options.mix] if options.mix else list(MIXES)
        parts = [(mix, first) for mix in mixes for first in range(options.seed, options.seed + options.seeds, PART)]
        last = options.seed + options.seeds
        futures = [(mix, pool.submit(count_failures, mix, first, min(PART, last - first))) for mix, first in parts]
        for mix in mixes:
            failures, took_s, said = 0, 0.0, []
            for done in (future.result() for name, future in futures if name == mix):
                failures, took_s, said = failures + done[0], took_s + done[2], [*said, *done[1]]
            for line in said[:SHOWN]:
                print(line)
            known = f" (known: {NOT_YET[mix]})" if failures and mix in NOT_YET else ""
            print(f"{mix}: {failures} of {options.seeds} failed, {took_s:.1f} s{known}", flush=True)
            failed += failures
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
