"""The queue from the member's thread to the agent's thread: immutable events in order, and the agent's state from them.

A fact travels in the queue and nowhere else. The descriptor is only a hint: it is readable while events are unread, and
while the agent has not yet been told of the end of its round. So it does not matter when the agent wakes up, or how
much has happened by then.

Every event names its generation. A late stop of the last round cannot be mistaken for a stop of the new one.
"""

from __future__ import annotations

import os
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from holdfast.processes.interruption import Uninterrupted

if TYPE_CHECKING:
    from holdfast.rendezvous.hosting import Hosting
    from holdfast.rendezvous.records import End, Generation, StacksRequest


class Reached(Struct, frozen=True):
    """The store has answered for the first time. From now on this node takes part, and can end the job."""


class Started(Struct, frozen=True):
    """A generation begins, and this node has a rank in it. `hosting` has the ports that rank 0 holds for all."""

    generation: Generation
    rank: int
    hosting: Hosting | None


class Stopped(Struct, frozen=True):
    """The workers of that generation have to stop."""

    generation: int
    reason: str
    may_finish: bool


class Left(Struct, frozen=True):
    """This node has left the group. `end` is the job's end, or None if it could not be read.

    `is_recorded` if the store has recorded that all workers of this node succeeded, `is_refused` if the job can never
    let this node in. `has_joined` if this node was ever in the group. `trouble` is why the store did not do what this
    node asked for, and `replaced` that another store answers in its place; "" for neither.
    """

    end: End | None
    reason: str
    store_is_gone: bool = False
    is_cut_off: bool = False
    is_recorded: bool = False
    is_refused: bool = False
    has_joined: bool = False
    trouble: str = ""
    replaced: str = ""


class Broke(Struct, frozen=True):
    """The member cannot go on, and sends nothing more. `is_recorded` is as in `Left`."""

    error: BaseException
    is_recorded: bool = False


class Recorded(Struct, frozen=True):
    """The store has recorded that all workers of this node succeeded in that generation."""

    generation: int


class Ended(Struct, frozen=True):
    """The job has ended. The workers of this node may still run: `Stopped` or `Left` follows."""

    end: End


class StacksAsked(Struct, frozen=True):
    """Another node asks for the stacks of this node's workers."""

    request: StacksRequest


Event: TypeAlias = Reached | Started | Stopped | Recorded | Ended | Left | Broke | StacksAsked


class Handover:
    """The queue and the agent's end of it. The member's thread calls `tell`; the agent's thread calls everything else.

    `started`, `stopped`, `is_recorded`, `left` and `broke` are the agent's knowledge of its round, `is_reached` and
    `end` that of the job. Only `take_in` and `seek` change them, so no other thread can reset a fact.
    """

    def __init__(self) -> None:
        self.started: Started | None = None
        self.stopped: Stopped | None = None
        self.left: Left | None = None
        self.broke: Broke | None = None
        self.is_reached = False
        self.is_recorded = False
        self.end: End | None = None
        self._stacks: StacksRequest | None = None
        self._is_end_told = True
        # One thread appends and the other pops from the other end. Each of these is atomic in the interpreter.
        self._events: deque[Event] = deque()
        self._hint = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def tell(self, event: Event) -> None:
        """Hand over an event. The event goes first, so that a reader who sees the hint finds it."""
        self._events.append(event)
        os.eventfd_write(self._hint, 1)

    def fileno(self) -> int:
        """Readable while the agent has unread news."""
        return self._hint

    def seek(self) -> None:
        """Forget the last round: the agent has no workers and wants another round."""
        self.started = self.stopped = self._stacks = None
        self.is_recorded = False
        self._is_end_told = self.left is None and self.broke is None

    def take_in(self) -> None:
        """Read all events. The descriptor stays readable if the round's end is among them: see `tell_end`."""
        with Uninterrupted():  # a signal must not come between the hint and the events
            with suppress(BlockingIOError):
                os.eventfd_read(self._hint)
            while self._events:
                self._learn(self._events.popleft())
            if not self._is_end_told:
                os.eventfd_write(self._hint, 1)

    def tell_end(self) -> Stopped | Left | Broke | None:
        """Why the round is over, or None while it goes on. After that the descriptor is no longer readable."""
        with Uninterrupted():
            self.take_in()
            if not self._is_end_told:
                self._is_end_told = True
                self.take_in()
        return self.broke or self.left or self.stopped

    def take_stacks(self) -> StacksRequest | None:
        """The request of another node in this round, once."""
        self.take_in()
        request, self._stacks = self._stacks, None
        return request

    def close(self) -> None:
        """Close the descriptor. Call this only after the member's thread has ended: the number may be reused."""
        os.close(self._hint)

    def _learn(self, event: Event) -> None:  # noqa: C901 - one case for each event
        match event:
            case Started():
                self.started, self.stopped, self._stacks = event, None, None
                self.is_recorded = False
            case Reached():
                self.is_reached = True
            case Recorded():
                self.is_recorded = self.is_recorded or self._is_current(event.generation)
            case Ended():
                self.end = event.end
            case Stopped():
                if self._is_current(event.generation):
                    self.stopped = event
                    self._is_end_told = False
            case StacksAsked():
                if self._is_current(event.request.generation):
                    self._stacks = event.request
            case Left():
                self.left = event
                self._is_end_told = False
            case Broke():
                self.broke = self.broke or event  # later errors are consequences
                self._is_end_told = False

    def _is_current(self, generation: int) -> bool:
        return self.started is not None and self.started.generation.number == generation
