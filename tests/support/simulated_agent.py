"""One life of an agent process on a host: the automaton under test, its workers, and the keeper that fences them.

The process has two threads. The member's thread runs the automaton and talks to the store. The agent's thread runs the
workers. Each hands events to the other, in order, and either hand-over can be late while the other thread goes on. An
event carries the number of the round that it belongs to: what the member said before it heard that the agent seeks a
place again is of no use to the agent.
"""

from __future__ import annotations

from collections import deque

from simulated_line import Line

from holdfast.errors.kind import FailureKind
from holdfast.rendezvous.decision import Leave, Start, Stop
from holdfast.rendezvous.membership import Membership
from holdfast.rendezvous.records import Failure, Node

WORKERS = 8
"""How many workers each node runs."""

BREAK_DOWN = "break down"
"""What the member's thread says when the store refuses what cannot be done without."""


class Agent:
    """Carries out effects and reports back. Its workers are the generation they belong to, or 0 without any."""

    def __init__(self, world, host, name):
        self.world = world
        self.host = host
        self.name = name
        self.node = ""
        self.workers = 0
        self.is_running = False
        self.is_over = False
        self.left = None
        self.started_at = world.clock.now
        self.is_paused = False
        self.stalls_until = 0.0
        self.first_generation_seen_at = None
        self._is_stopping = False
        self._is_leaving = False
        self._is_closing = False
        self._inbox = deque()
        self._late = deque()
        self._events = deque()
        self._is_waking = False
        self._words = deque()
        self._is_speaking = False
        self._round = 0
        self._member_round = 0
        self._wakes_at = None
        self._fence_at = float("inf")
        self._worker_lives = 0
        self._rank = 0
        self._failed = 0
        self._unreported = []
        self.was_cut_off = False
        self.ran_since = 0.0
        self.line = Line(world, world.way(host), self)
        self.membership = Membership(
            world.keys,
            world.settings_of(host),
            name,
            ttl_s=world.ttl_s_of(host),
            keep_alive_s=world.keep_alive_s,
            store_may_return=world.store.flavour == "etcd",
        )
        self._seek(0)
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

    def crash(self, *, with_host=False):
        """The agent is killed. Its keeper kills the workers, and then gives back the lease, if it still can."""
        if self.is_over:
            return
        world = self.world
        self.is_over = True
        world.tell(self.name, "is killed")
        self.line.close()
        kill_s = world.kill_delay_s() if self.workers and not with_host else 0.0
        if kill_s:
            world.clock.after(kill_s, self._end_workers)
        else:
            self._end_workers()
        will_s = None if with_host else world.last_will_s()
        lease = self.membership.me.lease
        if will_s is not None and lease:
            delay_s = will_s if world.will_is_first else kill_s + will_s
            world.clock.after(delay_s, self.line.goodbye, lease)

    # What the member's thread hears

    def hear(self, name, effect, value, sent_at):
        if name == "refused":
            self._post(BREAK_DOWN)
            return
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
            case "gone" | "replaced":
                membership.unavailable(effect, now, is_gone=True, is_proven=name == "replaced")
        self._look_at_the_view()
        self._step()

    def _look_at_the_view(self):
        view = self.membership.view
        if self.first_generation_seen_at is None and view is not None and view.generation is not None:
            self.first_generation_seen_at = self.world.clock.now

    def _step(self):
        if self.is_over:
            return
        effects = self.membership.step(self.world.clock.now)
        self._fence()
        for effect in effects:
            if isinstance(effect, Start | Stop | Leave):
                self._post(effect)
            else:
                self.line.ask(effect)
        wake_at = self.membership.wake_at
        if not self.is_over and wake_at is not None and wake_at != self._wakes_at:
            self._wakes_at = wake_at
            self.world.clock.at(wake_at, self.act_late, self._wake, wake_at)
        self.world.on_step(self)

    def _wake(self, at):
        if at == self._wakes_at:
            self._wakes_at = None
            self._step()

    # From the member's thread to the agent's

    def _post(self, event):
        if isinstance(event, Start):
            self.node = self.membership.me.node
        elif isinstance(event, Leave):  # the agent's thread may be late, and the store be back by then
            self.was_cut_off = self.membership.me.cut_off_since is not None
        self._events.append((self._member_round, event))
        if self._is_waking:
            return
        delay_s = max(self.world.thread_delay_s(), self.stalls_until - self.world.clock.now)
        if delay_s > 0:
            self._is_waking = True
            self.world.clock.after(delay_s, self.act, self._read_events)
        else:
            self._read_events()

    def _read_events(self):
        self._is_waking = False
        while self._events and not self.is_over:
            number, event = self._events.popleft()
            if isinstance(event, Leave):
                self._leave(event)
            elif event is BREAK_DOWN:
                self._break_down()
            elif number == self._round and not self._is_closing:
                if isinstance(event, Stop):
                    self._stop(event)
                elif self._may_start():
                    self._start(event.generation)
                else:
                    self.world.tell(self.name, f"does not start generation {event.generation.number} any more")
                    self._is_stopping = True
                    self._seek_again()

    def _break_down(self):
        self.world.on_break_down(self)
        if self.world.agent_ends_when_refused:
            self._is_leaving = True
            self._stop(Stop("the store refuses this node"))

    def _may_start(self):
        """Not if the member has said since that workers have to stop, or if the keeper would kill them at once."""
        world = self.world
        is_stopped = any(
            event is BREAK_DOWN or (number == self._round and isinstance(event, Stop)) for number, event in self._events
        )
        return (not is_stopped or not world.agent_looks_ahead) and (
            world.clock.now < self._fence_at or not world.agent_heeds_the_fence
        )

    # From the agent's thread to the member's

    def _say(self, act, *arguments):
        self._words.append((act, arguments))
        if self._is_speaking:
            return
        delay_s = self.world.thread_delay_s()
        if delay_s:
            self._is_speaking = True
            self.world.clock.after(delay_s, self.act, self._hear_words)
        else:
            self._hear_words()

    def _hear_words(self):
        self._is_speaking = False
        while self._words and not self.is_over:
            act, arguments = self._words.popleft()
            act(*arguments)
        self._step()

    def _seek(self, number):
        self._member_round = number
        self.membership.seek(self.world.offer(self.host), self.world.clock.now)

    # Its workers

    def _start(self, generation):
        world = self.world
        assert not self.workers, f"{self.name} starts generation {generation.number} with workers of {self.workers}"
        self.workers = generation.number
        self._rank = generation.rank_of(self.node)
        self._worker_lives += 1
        self._failed = 0
        world.on_start(self, generation)
        world.clock.at(self._fence_at, self._kill, self._fence_at)
        world.clock.after(world.start_delay_s(), self._run, generation, self._worker_lives)

    def _run(self, generation, life):
        if self.workers == generation.number and life == self._worker_lives and not self._is_stopping:
            self.is_running = True
            self.ran_since = self.world.clock.now
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
            self._report()  # an agent that stood still looks at its workers before it seeks a place again
            self._round += 1
            self._say(self._seek, self._round)

    def _end_workers(self):
        if self.workers:
            self.world.on_end_of_workers(self)
            self.workers = 0
            self.is_running = False

    def succeed(self, generation):
        """The workers of that generation have all exited with 0, if they still run."""
        if self.is_running and self.workers == generation and not self._is_stopping and not self.is_over:
            self.world.tell(self.name, f"workers of generation {generation} succeed")
            self._end_workers()
            self.act(self._succeeded, self._round)

    def _succeeded(self, number):
        if number == self._round and not self._is_stopping:
            self._say(self.membership.succeed)

    def fail(self, generation, *, is_felt=False, kind=FailureKind.EXIT, where="", exception=""):
        """One worker of that generation fails; the others go on until they are stopped.

        `is_felt` if it fails because a peer is gone.
        """
        is_alive = self.is_running and self.workers == generation and self._failed < WORKERS
        if is_alive and not self._is_stopping and not self.is_over:
            now = self.world.clock.now
            self.world.tell(
                self.name, f"a worker of generation {generation} fails{' with its peer' if is_felt else ''}"
            )
            failure = Failure(
                node=self.node,
                host=self.host,
                rank=self._rank * WORKERS + self._failed,
                local_rank=self._failed,
                pid=1000,
                exit_code=1,
                message="exit code 1" if kind is FailureKind.EXIT else str(kind),
                timestamp=now,
                kind=kind,
                where=where,
                exception=exception,
                ran_s=now - self.ran_since,
            )
            self._failed += 1
            self.world.on_failure(self, failure, is_felt=is_felt)
            self._unreported.append(failure)
            self.act(self._report)

    def _report(self):
        for failure in self._unreported:
            self._say(self.membership.fail, failure)
        self._unreported.clear()

    def drain(self):
        """The agent is asked to leave. It says so before its workers end, which have a while, whoever hears of it."""
        self._is_leaving = True
        self.act(self._say, self.membership.announce_leave, f"{self.host} leaves")
        self.world.clock.after(self.world.leave_delay_s() if self.workers else 0.0, self.act, self._end_and_go)

    def _end_and_go(self):
        if not self.is_over:
            self._end_workers()
            self._go()

    def _go(self):
        self.is_over = True
        self.world.on_gone(self)
        self._give_back_lease()

    def close(self, end):
        """The agent gives up for all, with no workers."""
        self._end_workers()
        self._is_stopping = False
        self._is_closing = True
        self.act(self._say, self.membership.close, end)

    def _leave(self, leave):
        assert not self.workers, f"{self.name} leaves with workers of generation {self.workers}"
        self.left = leave
        self.is_over = True
        self.world.on_leave(self, leave)
        self._give_back_lease()

    def _give_back_lease(self):
        if self.membership.me.lease:
            self.line.goodbye(self.membership.me.lease)
        self.line.close()

    # Its keeper, which works also while the agent stands still, and after it was killed

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
            if self._is_stopping:
                self._stopped(self._worker_lives)
            else:
                self.act(self._notice_the_kill, self._round)

    def _notice_the_kill(self, number):
        """The agent finds its workers killed: it seeks a place again, whether it is told to stop or not."""
        if number == self._round and not self._is_stopping and not self._is_closing:
            self._is_stopping = True
            self._seek_again()


def offer(host, port, rank=-1):
    return Node(host=host, address=host, port=port, role="worker", workers=WORKERS, rank=rank)
