"""Weather for simulated worlds: everything that can go wrong, at times that a seed decides.

A run has three parts: a start, a time of faults, and a calm time in which everything is healed and every host has an
agent. By its end the job has to be over, for everybody and in the same way.

    python tests/support/simulated_storms.py --mix storm --seed 7      what happens with one seed, line by line
    python tests/support/simulated_storms.py --seeds 1000              many seeds of each mix
"""

from __future__ import annotations

from random import Random

from simulated_laws import LawBrokenError, Laws
from simulated_world import World

from holdfast.rendezvous.decide import Settings
from holdfast.rendezvous.records import End, EndKind

FAULTS_S = 60.0
"""How long things go wrong."""

SETTLED_S = 60.0
"""How long after that it takes at most until all nodes run together."""

CALM_S = 210.0
"""How long after the faults a job may take to end; workers run for at most 30 s of it."""


class Mix:
    """A kind of weather: which faults there are and how many, as weights."""

    def __init__(self, faults=(0, 0), late=0.0, etcd=0.5, work_s=(5.0, 30.0), latency_s=0.005, echo_s=2.0, **weights):
        self.faults = faults
        self.late = late
        self.etcd = etcd
        self.work_s = work_s
        self.latency_s = latency_s
        self.echo_s = echo_s
        self.weights = weights


MIXES = {
    "calm": Mix(),
    "failures": Mix(faults=(1, 5), fail=1),
    "losses": Mix(faults=(1, 5), late=0.2, crash=3, restart=2),
    "cuts": Mix(faults=(2, 8), cut_one=2, cut_up=1, cut_down=1, reset=2),
    "pauses": Mix(faults=(2, 8), pause=3, fail=1),
    "leaders": Mix(faults=(2, 8), work_s=(20.0, 60.0), crash_leader=2, cut_leader=1, pause_leader=1, restart=2),
    "scaling": Mix(faults=(3, 10), late=0.5, work_s=(20.0, 60.0), crash=2, restart=4),
    "outages": Mix(faults=(1, 3), etcd=1.0, outage=2, pause_store=2, cut_one=1, fail=1),
    "endings": Mix(faults=(2, 8), etcd=0.7, work_s=(0.1, 12.0), cut_one=2, outage=2, pause=1, crash=1, reset=1),
    "slow": Mix(faults=(1, 6), latency_s=0.8, cut_one=1, crash=1, fail=1, pause=1, restart=1),
    "echoes": Mix(faults=(10, 30), work_s=(20.0, 60.0), echo_s=10.0, cut_up=3, outage=1, fail=6, crash=1, restart=1),
    "leaving": Mix(faults=(2, 8), late=0.3, work_s=(20.0, 60.0), drain=4, restart=3, cut_one=1, pause=1, crash=1),
    "closing": Mix(faults=(2, 6), close=2, cut_one=2, pause=1, fail=1, crash=1, outage=1),
    "gone": Mix(faults=(1, 4), etcd=0.0, lose_store=1, cut_one=1, pause=1, fail=1),
    "storm": Mix(
        faults=(5, 25),
        late=0.3,
        fail=2,
        crash=2,
        restart=4,
        cut_one=2,
        cut_up=1,
        cut_down=1,
        reset=2,
        pause=2,
        crash_leader=1,
        outage=1,
        pause_store=1,
    ),
}


class Storm(World):
    """A world with weather. Workers of a generation work for a while, and succeed."""

    def __init__(self, mix, seed, trace=None):
        self.mix = mix = MIXES[mix]
        random = Random(seed)
        most = random.randint(1, 6)
        settings = Settings(
            min_nodes=random.randint(1, most),
            max_nodes=most,
            max_restarts=random.choice((0, 1, 3, 10)),
            last_call_s=random.choice((0.0, 1.0, 5.0)),
            recall_s=random.choice((0.0, 0.0, 2.0)),
            join_timeout_s=random.choice((30.0, 600.0)),
        )
        flavour = "etcd" if random.random() < mix.etcd else "embedded"
        keep_alive_s = random.choice((1.0, 2.5))
        super().__init__(
            settings, random=random, flavour=flavour, keep_alive_s=keep_alive_s, laws=Laws(settings), trace=trace
        )
        if flavour == "etcd":
            self.store.expiry_lag_s = lambda: random.uniform(0.0, 1.0)
        self.hosts = [chr(ord("a") + number) for number in range(most + random.choice((0, 0, 1, 2)))]
        high_s = random.choice((0.002, mix.latency_s))
        self.latency_s = lambda: random.uniform(0.0, high_s)
        self.start_delay_s = lambda: random.uniform(0.0, 1.0)
        self.stop_delay_s = lambda _host: random.choice((0.0, random.uniform(0.0, 1.0), random.uniform(0.0, 5.0)))
        self.leave_delay_s = lambda: random.uniform(0.0, 10.0)
        self.echo_s = mix.echo_s
        self.is_calm = False
        self.is_settled = False
        self.is_closed = False
        self.settles = self.chance(0.5)

    def weather(self):
        """Plan everything that will go wrong."""
        random, clock = self.random, self.clock
        for host in self.hosts:
            late = self.chance(self.mix.late)
            clock.at(random.uniform(0.0, FAULTS_S if late else 3.0), self.start_if_over, host)
        names = sorted(self.mix.weights)
        weights = [self.mix.weights[name] for name in names]
        for _ in range(random.randint(*self.mix.faults)):
            name = random.choices(names, weights)[0]
            clock.at(random.uniform(0.0, FAULTS_S), getattr(self, name))

    def calm_down(self):
        """Everything is healed, and every host has an agent."""
        self.is_calm = True
        self.tell("world", "calms down")
        self.store_resumes()
        for host in self.hosts:
            self.heal(host)
            if host in self.agents:
                self.agents[host].resume()
            self.start_if_over(host)

    def start_if_over(self, host):
        agent = self.agents.get(host)
        knows_no_end = agent is None or (agent.is_over and (agent.left is None or agent.left.end is None))
        if knows_no_end and not self.store.is_gone:
            self.start(host)

    def on_run(self, agent, generation):
        low_s, high_s = (1.0, 30.0) if self.is_calm else self.mix.work_s
        self.clock.after(self.random.uniform(low_s, high_s), self._finish, agent, generation.number)

    def _finish(self, agent, generation):
        """Workers are done, unless they are to run until all do."""
        if self.is_settled or not self.settles:
            agent.succeed(generation)

    def on_leave(self, agent, leave):
        super().on_leave(agent, leave)
        if self.is_calm:
            self.clock.after(1.0, self.start_if_over, agent.host)

    def on_gone(self, agent):
        super().on_gone(agent)
        if self.is_calm:
            self.clock.after(1.0, self.start_if_over, agent.host)

    # Faults

    def _somebody(self):
        living = self.living()
        return self.random.choice(living) if living else None

    def _leader(self):
        entry = self.store.keyspace.get(self.keys.leader)
        leaders = [agent for agent in self.living() if entry and agent.membership.me.node == entry.value.decode()]
        return leaders[0] if leaders else self._somebody()

    def fail(self):
        running = [agent for agent in self.living() if agent.is_running]
        if running and not self.is_calm:
            agent = self.random.choice(running)
            agent.fail(agent.workers)

    def crash(self, agent=None):
        agent = agent or self._somebody()
        if agent is not None:
            agent.crash()

    def drain(self):
        agent = self._somebody()
        if agent is not None and not agent.is_paused:
            self.tell(agent.name, "is asked to leave")
            agent.drain()

    def restart(self):
        for host in self.hosts:
            if host in self.agents and self.agents[host].is_over:
                self.start_if_over(host)
                return

    def crash_leader(self):
        self.crash(self._leader())

    def pause(self, agent=None):
        agent = agent or self._somebody()
        if agent is not None:
            agent.pause()
            self.clock.after(self._a_while(), agent.resume)

    def pause_leader(self):
        self.pause(self._leader())

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

    def reset(self):
        agent = self._somebody()
        if agent is not None:
            self.tell(agent.name, "connection is reset")
            agent.act(agent.line.reset)

    def outage(self):
        self.tell("store", "cannot be reached by anybody")
        for host in self.hosts:
            self.cut(host)
            self.clock.after(self._a_while(), self.heal, host)

    def close(self):
        agent = self._somebody()
        if agent is not None and not agent.is_paused:
            self.is_closed = True
            self.tell(agent.name, "closes the job")
            agent.close(End(EndKind.CLOSED, f"{agent.name} cannot go on"))

    def pause_store(self):
        self.tell("store", "stands still")
        self.store.pause()
        self.clock.after(self._a_while(), self.store_resumes)

    def store_resumes(self):
        if self.store.is_paused:
            self.tell("store", "runs again")
            self.store.resume()

    def _a_while(self):
        return self.random.choice((self.random.uniform(0.0, 3.0), self.random.uniform(3.0, 12.0), 25.0))

    # The end

    def settle(self):
        """Everybody runs in the newest generation, or is a spare; from here on, workers succeed."""
        self.is_settled = True
        self.tell("world", "has settled")
        if self.laws.end is not None or self.store.is_gone:
            return
        newest = self.laws.generations.get(len(self.laws.generations))
        if newest is None or newest.number in self.laws.broken:
            raise LawBrokenError("no generation is on, long after the faults")
        members = {member.node for member in newest.members}
        for agent in self.living():
            me = agent.membership.me
            if me.node in members:
                if not agent.is_running or agent.workers != newest.number:
                    raise LawBrokenError(f"{agent.name} does not run generation {newest.number}")
                self.clock.after(self.random.uniform(0.0, 30.0), agent.succeed, newest.number)
            elif len(members) < self.settings.max_nodes:
                raise LawBrokenError(f"{agent.name} is not in generation {newest.number}, which has room")

    def is_over(self):
        return not self.living() and (self.laws.end is not None or self.store.is_gone)

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
        without = [agent.name for agent in self.agents.values() if agent.left is None or agent.left.end is None]
        if without:
            raise LawBrokenError(f"the job is over ({self.laws.end}), but {without} left without its end")
        if self.laws.end.kind is EndKind.CLOSED and not self.is_closed:
            raise LawBrokenError("nobody closed the job")


def run(mix, seed, trace=None, faults=()):
    """One world from its start to its end; returns how many messages it took.

    `faults` come on top of its weather: when, and which.
    """
    world = Storm(mix, seed, trace)
    world.weather()
    clock = world.clock
    for at, name in faults:
        clock.at(at, getattr(world, name))
    clock.run(FAULTS_S)
    world.calm_down()
    if world.settles:
        clock.after(SETTLED_S, world.settle)
    clock.run(clock.now + CALM_S, world.is_over)
    world.check_end()
    return world.messages


def replay_command(mix, seed):
    return f"python tests/support/simulated_storms.py --mix {mix} --seed {seed}"


def show(now, who, what):
    print(f"{now:9.3f}  {who:<6} {what}")


def main():
    import argparse
    import sys
    import time

    parser = argparse.ArgumentParser(description="Simulated worlds of the rendezvous.")
    parser.add_argument("--mix", choices=sorted(MIXES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, help="run that many seeds, and say which of them fail")
    options = parser.parse_args()
    if options.seeds is None:
        print(f"{run(options.mix or 'storm', options.seed, show)} messages")
        return
    failed = 0
    for mix in [options.mix] if options.mix else MIXES:
        began, failures = time.perf_counter(), 0
        for seed in range(options.seed, options.seed + options.seeds):
            try:
                run(mix, seed)
            except AssertionError as error:
                failures += 1
                if failures <= 3:
                    print(f"{replay_command(mix, seed)}: {error!r:.300}")
        failed += failures
        print(f"{mix}: {failures} of {options.seeds} failed, {time.perf_counter() - began:.1f} s")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
