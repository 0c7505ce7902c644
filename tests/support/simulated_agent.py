"""One life of an agent process on a host: the automaton under test, its workers, and the keeper that fences them."""

from __future__ import annotations

from collections import deque

from simulated_line import Line

from holdfast.rendezvous.decide import Leave, Start, Stop
from holdfast.rendezvous.membership import Membership
from holdfast.rendezvous.records import Failure, Node

WORKERS = 8
"""How many workers each node runs."""


class Agent:
    """Carries out effects and reports back. Its workers are the generation they belong to, or 0 without any."""

    def __init__(self, world, host, name):
        self.world = world
        self.host = host
        self.name = name
        self.workers = 0
        self.is_running = False
        self.is_over = False
        self.left = None
        self.is_paused = False
        self._is_stopping = False
        self._is_leaving = False
        self._inbox = deque()
        self._late = deque()
        self._wakes_at = None
        self._fence_at = float("inf")
        self._worker_lives = 0
        self._rank = 0
        self.line = Line(world, world.way(host), self)
        self.membership = Membership(
            world.keys,
            world.settings,
            name,
            ttl_s=world.ttl_s,
            keep_alive_s=world.keep_alive_s,
            store_may_return=world.store.flavour == "etcd",
        )
        self._seek()
        self._step()

    # What its process does, unless it stands still

    def act(self, act, *arguments):
        if self.is_over:
            return
        if self.is_paused:
            self._inbox.append((act, arguments))
        else:
            act(*arguments)

    def act_late(self, act, *arguments):
        """For timers: after a pause, what has arrived is read before them."""
        if self.is_paused:
            self._late.append((act, arguments))
        else:
            self.act(act, *arguments)

    def pause(self):
        if not self.is_over:
            self.is_paused = True
            self.world.tell(self.name, "stands still")

    def resume(self):
        if self.is_over or not self.is_paused:
            return
        self.is_paused = False
        self.world.tell(self.name, "runs again")
        waiting = [*self._inbox, *self._late]
        self._inbox.clear()
        self._late.clear()
        for act, arguments in waiting:
            self.act(act, *arguments)
        self.act(self._step)

    def crash(self):
        """The agent is killed: its workers die with it, and the kernel closes its connection."""
        if self.is_over:
            return
        self.is_over = True
        self.world.tell(self.name, "is killed")
        self._end_workers()
        self.line.close()
        self.world.store.holder_ended(self.membership.me.lease)

    # What it hears

    def hear(self, name, effect, value, sent_at):
        membership, now = self.membership, self.world.clock.now
        match name:
            case "granted":
                membership.granted(value, sent_at)
            case "kept":
                membership.kept(value, sent_at)
            case "lease_lost":
                membership.lease_lost(effect)
            case "answered":
                self.world.on_answer(self, effect, value)
                membership.answered(value)
            case "read":
                membership.read(value, effect.prefix)
            case "changed":
                membership.changed(value, effect.prefix)
            case "unavailable":
                membership.unavailable(effect, now)
            case "gone":
                membership.unavailable(effect, now, is_gone=True)
        self._step()

    def _step(self):
        if self.is_over:
            return
        effects = self.membership.step(self.world.clock.now)
        self._fence()
        for effect in effects:
            self._carry_out(effect)
        wake_at = self.membership.wake_at
        if not self.is_over and wake_at is not None and wake_at != self._wakes_at:
            self._wakes_at = wake_at
            self.world.clock.at(wake_at, self.act_late, self._wake, wake_at)
        self.world.on_step(self)

    def _wake(self, at):
        if at == self._wakes_at:
            self._wakes_at = None
            self._step()

    def _carry_out(self, effect):
        match effect:
            case Start():
                self._start(effect.generation)
            case Stop():
                self._stop(effect)
            case Leave():
                self._leave(effect)
            case _:
                self.line.ask(effect)

    # Its workers

    def _start(self, generation):
        world = self.world
        assert not self.workers, f"{self.name} starts generation {generation.number} with workers of {self.workers}"
        self.workers = generation.number
        self._rank = generation.rank_of(self.membership.me.node)
        self._worker_lives += 1
        world.on_start(self, generation)
        world.clock.at(self._fence_at, self._kill, self._fence_at)
        world.clock.after(world.start_delay_s(), self._run, generation, self._worker_lives)

    def _run(self, generation, life):
        if self.workers == generation.number and life == self._worker_lives and not self._is_stopping:
            self.is_running = True
            self.world.on_run(self, generation)

    def _stop(self, stop):
        how = "lets its workers finish" if stop.may_finish else "stops its workers"
        self.world.tell(self.name, f"{how}: {stop.reason}")
        self._is_stopping = True
        delay_s = self.world.stop_delay_s(self.host) if self.workers else 0.0
        if delay_s:
            self.world.clock.after(delay_s, self._stopped, self._worker_lives)
        else:
            self._stopped(self._worker_lives)

    def _stopped(self, life):
        if life == self._worker_lives and self._is_stopping:
            self._end_workers()
            self.act(self._seek_again)

    def _seek_again(self):
        if self._is_stopping and self._is_leaving:
            self._go()
        elif self._is_stopping:
            self._is_stopping = False
            self._seek()
            self._step()

    def _seek(self):
        self.membership.seek(self.world.offer(self.host), self.world.clock.now)

    def _end_workers(self):
        if self.workers:
            self.world.on_end_of_workers(self)
            self.workers = 0
            self.is_running = False

    def succeed(self, generation):
        """The workers of that generation have all exited with 0, if they still run."""
        if self.is_running and self.workers == generation and not self._is_stopping:
            self.world.tell(self.name, f"workers of generation {generation} succeed")
            self._end_workers()
            self.act(self._tell, self._succeeded)

    def fail(self, generation, message="exit code 1"):
        """One worker of that generation fails; the others go on until they are stopped."""
        if self.is_running and self.workers == generation and not self._is_stopping:
            self.world.tell(self.name, f"a worker of generation {generation} fails")
            failure = Failure(
                node=self.name,
                host=self.host,
                rank=self._rank * WORKERS,
                local_rank=0,
                pid=1000,
                exit_code=1,
                message=message,
                timestamp=self.world.clock.now,
            )
            self.act(self._tell, self.membership.fail, failure)

    def drain(self):
        """The agent is asked to leave. It says so before its workers end, which have a while, whoever hears of it."""
        self._is_leaving = True
        self.act(self._tell, self.membership.announce_leave, f"{self.host} leaves")
        self.world.clock.after(self.world.leave_delay_s() if self.workers else 0.0, self.act, self._end_and_go)

    def _end_and_go(self):
        if not self.is_over:
            self._end_workers()
            self._go()

    def _go(self):
        self.is_over = True
        self.world.on_gone(self)
        if self.membership.me.lease:
            self.line.goodbye(self.membership.me.lease)
        self.line.close()

    def close(self, end):
        """The agent gives up for all, with no workers."""
        self._end_workers()
        self._is_stopping = False
        self.act(self._tell, self.membership.close, end)

    def _succeeded(self):
        if not self._is_stopping:
            self.membership.succeed()

    def _tell(self, act, *arguments):
        act(*arguments)
        self._step()

    # Its keeper, which works also while the agent stands still

    def _fence(self):
        fence_at = self.membership.fence_at
        if fence_at != self._fence_at:
            self._fence_at = fence_at
            if self.workers:
                self.world.clock.at(fence_at, self._kill, fence_at)

    def _kill(self, fence_at):
        if self.workers and self._fence_at == fence_at:
            self.world.tell(self.name, f"keeper kills the workers of generation {self.workers}")
            self._end_workers()
            self._stopped(self._worker_lives)

    def _leave(self, leave):
        assert not self.workers, f"{self.name} leaves with workers of generation {self.workers}"
        self.left = leave
        self.is_over = True
        self.world.on_leave(self, leave)
        lease = self.membership.me.lease
        if lease:
            self.line.goodbye(lease)
        self.line.close()


def offer(host, port, rank=-1):
    return Node(host=host, address=host, port=port, role="worker", workers=WORKERS, rank=rank)
