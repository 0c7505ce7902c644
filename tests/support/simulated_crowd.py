"""A large world: thousands of nodes meet, one fails, one is lost, all succeed. Its cost must grow with their number.

python tests/support/simulated_crowd.py --nodes 10000 --seed 7
"""

from __future__ import annotations

from contextlib import contextmanager
from random import Random
from time import perf_counter

from simulated_laws import Laws
from simulated_world import World

from holdfast.rendezvous import view
from holdfast.rendezvous.decision import Settings
from holdfast.rendezvous.records import EndKind, Generation

ARRIVAL_S = 2.0
"""All nodes start within this time."""


class Crowd(World):
    """Nodes that start at about the same time. `phases` are names, messages, virtual and real seconds."""

    def __init__(self, nodes, seed):
        settings = Settings(min_nodes=nodes - 1, max_nodes=nodes, max_restarts=1)
        random = Random(seed)
        super().__init__(settings, random=random, laws=Laws(settings), keep_alive_s=5.0, ttl_s=20.0)
        self.latency_s = lambda: random.uniform(0.0001, 0.001)
        self.start_delay_s = lambda: random.uniform(0.0, 0.1)
        self.stop_delay_s = lambda _host: random.uniform(0.0, 0.1)
        self.phases = []
        for number in range(nodes):
            self.clock.at(random.uniform(0.0, ARRIVAL_S), self.start, f"n{number}")
        self._hosts = [f"n{number}" for number in range(nodes)]
        self._running = 0
        self._left = 0

    def on_run(self, agent, generation):
        self._running += 1

    def on_end_of_workers(self, agent):
        super().on_end_of_workers(agent)
        self._running -= agent.is_running

    def on_leave(self, agent, leave):
        super().on_leave(agent, leave)
        self._left += 1

    def live(self):
        """All of it, phase by phase."""
        nodes = len(self._hosts)
        somebody, another = self.random.sample(self._hosts, 2)
        with _shared_records():
            self._phase("start", lambda: self._running == nodes)
            self.agents[somebody].fail(1)
            self._phase("failure", lambda: self._running == nodes and 2 in self.laws.alive)
            self.agents[another].crash()
            self._phase("loss", lambda: self._running == nodes - 1 and 3 in self.laws.alive)
            for agent in self.living():
                agent.succeed(3)
            self._phase("end", lambda: self._left == nodes - 1)
        assert self.laws.end.kind is EndKind.SUCCEEDED
        return self

    def _phase(self, name, is_over):
        began, messages, time_s = perf_counter(), self.messages, self.clock.now
        assert self.clock.run(self.clock.now + 120.0, is_over), f"the {name} of {len(self._hosts)} nodes does not end"
        self.phases.append((name, self.messages - messages, self.clock.now - time_s, perf_counter() - began))


@contextmanager
def _shared_records():
    """All nodes of this process read a record once, where each would have a copy: 10,000 times 10,000 members."""
    decode, rank_of = view.decode, Generation.rank_of
    ranks = {}
    generations = {}

    def shared_rank_of(generation, node):
        if generation.number not in ranks:
            ranks.clear()
            ranks[generation.number] = {member.node: rank for rank, member in enumerate(generation.members)}
        return ranks[generation.number].get(node)

    def shared_decode(entry, kind):
        if kind is not Generation:
            return decode(entry, kind)
        if entry.value not in generations:
            generations.clear()
            generations[entry.value] = decode(entry, kind)
        return generations[entry.value]

    view.decode = shared_decode
    Generation.rank_of = shared_rank_of
    try:
        yield
    finally:
        view.decode, Generation.rank_of = decode, rank_of


def grows_with_the_nodes(small, large):
    """Whether ten times the nodes took ten times the messages, in each phase, within a twentieth.

    At the end the leader is told of every node that leaves before it has heard of the end itself: by chance of none, or
    of all. That is one message a node more or less.
    """
    pairs = zip(small.phases, large.phases, strict=True)
    nodes = len(large.agents)
    return all(many[1] <= 10.5 * few[1] + nodes * (many[0] == "end") for few, many in pairs)


def main():
    import argparse
    import sys

    parser = argparse.ArgumentParser(description="A simulated world of many nodes.")
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(f"{'phase':<10}{'messages':>10}{'a node':>10}{'virtual s':>12}{'real s':>10}")
    crowds = []
    for nodes in (options.nodes // 10, options.nodes):
        print(f"{nodes} nodes")
        crowds.append(Crowd(nodes, options.seed).live())
        phases = list(crowds[-1].phases)
        phases.append(("all", *(sum(column) for column in list(zip(*phases, strict=True))[1:])))
        for name, messages, virtual_s, real_s in phases:
            print(f"{name:<10}{messages:>10}{messages / nodes:>10.2f}{virtual_s:>12.3f}{real_s:>10.2f}")
    if not grows_with_the_nodes(*crowds):
        sys.exit("the messages grow faster than the number of nodes")


if __name__ == "__main__":
    main()
