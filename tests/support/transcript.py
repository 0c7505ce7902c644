"""Transcripts: what happens to a group of nodes, and everything that they do about it, as text that people read.

A transcript has comments (``#``), settings, and events (``>``). Under each event stands all that it leads to: what the
store then holds (``+`` and ``-``) and what each node does. Messages take no time, so what stands there is one of
many orders that are possible, always the same one.

With the setting ``given ranks``, hosts do not ask for a rank: they were told it.

| event | means |
|---|---|
| ``a starts`` | an agent starts on host a; ``a b c start`` for several |
| ``a's workers fail``, ``... succeed`` | of the generation that runs there |
| ``a is killed`` | the agent and its workers; then its keeper, if it has one, revokes the lease |
| ``a stands still``, ``a goes on`` | SIGSTOP and SIGCONT of the agent, not of its workers |
| ``a is cut off``, ``a is connected again`` | the network between a and the store |
| ``the store is gone`` | nobody serves there any more |
| ``nobody reaches the store``, ``everybody reaches the store again`` | all are cut off |
| ``a is asked to leave`` | SIGTERM of the agent: it goes when its workers have ended |
| ``a closes the job`` | its agent gives up for all |
| ``a's workers take 2 s to stop`` | from now on |
| ``a asks for rank 1`` | when it starts or seeks a place again |
| ``5 s pass`` | |
"""

from __future__ import annotations

import re

from simulated_world import World

from holdfast.rendezvous.decision import Settings
from holdfast.rendezvous.records import End, EndKind


def replay(text, stage_of=None):
    """The transcript with what its events lead to now. `stage_of` makes what they happen to, from a settings line."""
    lines = []
    stage = None
    for line in text.splitlines():
        if line.startswith("settings:"):
            stage = (stage_of or Stage)(line)
            lines.append(line)
        elif line.startswith(">"):
            lines.append(line)
            lines.extend(stage.play(line.removeprefix(">").strip()))
        elif not line.startswith(" "):
            lines.append(line)
    return "\n".join(lines) + "\n"


class Stage:
    """A world in which events of a transcript happen."""

    def __init__(self, settings):
        given = dict(re.findall(r"([a-z_]+) (\S+)", settings.removeprefix("settings:").replace(",", " ")))
        low, _, high = given.pop("nodes").partition(":")
        flavour = given.pop("store", "embedded")
        self.world = TracedWorld(
            Settings(
                min_nodes=int(low),
                max_nodes=int(high or low),
                max_restarts=int(given.pop("restarts", "0")),
                has_given_ranks=given.pop("given", "") == "ranks",
                **{f"{name}_s": float(value) for name, value in given.items()},
            ),
            flavour=flavour,
            trace=self._trace,
        )
        self.world.stop_delay_s = lambda host: self._stop_delays_s.get(host, 0.0)
        self._stop_delays_s = {}
        self._said = []
        self._said_at = 0.0

    def play(self, event):
        self._said_at = self.world.clock.now
        self._said = []
        for pattern, act in EVENTS:
            found = re.fullmatch(pattern, event)
            if found:
                act(self, *found.groups())
                break
        else:
            raise ValueError(f"no such event in a transcript: {event}")
        self.world.clock.run(self.world.clock.now)
        return self._said

    def _trace(self, now, who, what):
        if what in QUIET:
            return
        if now != self._said_at:
            self._said_at = now
            self._said.append(f"  at {now:g} s")
        self._said.append(f"    {who:<6} {what}")

    # Events

    def start(self, hosts):
        for host in hosts.split():
            self.world.start(host)
            self.world.clock.run(self.world.clock.now)

    def workers(self, hosts, what):
        for host in hosts.split():
            agent = self.world.agents[host]
            if what == "succeed":
                agent.succeed(agent.workers)
            else:
                agent.fail(agent.workers)
            self.world.clock.run(self.world.clock.now)

    def kill(self, host):
        self.world.agents[host].crash()

    def pause(self, host):
        self.world.agents[host].pause()

    def resume(self, host):
        self.world.agents[host].resume()

    def cut(self, host):
        self.world.cut(host)

    def heal(self, host):
        self.world.heal(host)

    def lose_store(self):
        self.world.lose_store()

    def cut_all(self):
        for host in self.world.agents:
            self.world.cut(host)

    def heal_all(self):
        for host in self.world.agents:
            self.world.heal(host)

    def close(self, host):
        self.world.agents[host].close(End(EndKind.CLOSED, f"{host} cannot go on"))

    def drain(self, host):
        self.world.agents[host].drain()

    def slow_stop(self, host, delay_s):
        self._stop_delays_s[host] = float(delay_s)

    def ask_for_rank(self, host, rank):
        self.world.ranks[host] = int(rank)

    def wait(self, seconds):
        self.world.clock.run(self.world.clock.now + float(seconds))


class TracedWorld(World):
    """Says also what agents tell people."""

    def __init__(self, settings, **others):
        super().__init__(settings, **others)
        self._statuses = {}

    def on_step(self, agent):
        status = agent.membership.status
        if status and not agent.is_over and self._statuses.get(agent.name) != status:
            self.tell(agent.name, f'says "{status}"')
        self._statuses[agent.name] = status


QUIET = ("is gone for good", "starts", "is killed", "stands still", "runs again", "is cut off", "is connected again")
"""What the event itself says already."""

EVENTS = (
    (r"([a-z ]+?) starts?", Stage.start),
    (r"([a-z]+)'s workers take (\S+) s to stop", Stage.slow_stop),
    (r"(?:the workers of )?([a-z ]+?)(?:'s workers)? (fail|succeed)", Stage.workers),
    (r"([a-z]+) is killed", Stage.kill),
    (r"([a-z]+) stands still", Stage.pause),
    (r"([a-z]+) goes on", Stage.resume),
    (r"nobody reaches the store", Stage.cut_all),
    (r"everybody reaches the store again", Stage.heal_all),
    (r"the store is gone", Stage.lose_store),
    (r"([a-z]+) is cut off", Stage.cut),
    (r"([a-z]+) is connected again", Stage.heal),
    (r"([a-z]+) is asked to leave", Stage.drain),
    (r"([a-z]+) closes the job", Stage.close),
    (r"([a-z]+) asks for rank (\d+)", Stage.ask_for_rank),
    (r"(\S+) s pass(?:es)?", Stage.wait),
)
