"""The bridge between an agent, which blocks, and its member, which never does: each has a thread of its own.

The agent's words and questions run in the member's event loop, in order. The member's events come back in one queue,
whose descriptor the agent polls together with its other ones.
"""

from __future__ import annotations

import select
import time
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from holdfast.coordination.blocking import BlockingStore, LoopThread
from holdfast.coordination.errors import CoordinationError, StoreUnavailableError
from holdfast.errors.tree import HoldfastError
from holdfast.logger import get_logger
from holdfast.processes.interruption import SignalWakeUp, Uninterrupted, handlers
from holdfast.rendezvous.handover import Handover
from holdfast.rendezvous.session import Session
from holdfast.waiting import poll_ms

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine
    from typing import Any

    from holdfast.rendezvous.elastic_settings import ElasticSettings
    from holdfast.rendezvous.fencing import Fencing
    from holdfast.rendezvous.handler import Meanwhile
    from holdfast.rendezvous.reasons import Reasons
    from holdfast.rendezvous.records import End

T = TypeVar("T")

LEAVE_TIMEOUT_S = 5.0
"""How long giving back the lease may take, and any question. A lease that is not given back expires."""

log = get_logger(__name__)


class Bridge:
    """The agent's end. Only the agent's thread uses it, except `start`, which any thread may call.

    `news` is the queue of events, and what the agent knows by them. `session` is what runs at the other end: its
    methods are for `start`, `tell` and `ask`. `is_open` until the node has left.
    """

    def __init__(
        self,
        settings: ElasticSettings,
        reasons: Reasons,
        fencing: Fencing,
        local_addr: str | None = None,
        made_s: float | None = None,
    ) -> None:
        self.is_open = True
        self.news = Handover()
        self._fencing = fencing
        self._place = reasons.place
        self.session = Session(
            settings,
            reasons,
            fencing,
            tell=self.news.tell,
            start_in_loop=self.start,
            local_addr=local_addr,
            made_s=made_s,
        )
        self._thread = LoopThread(on_death=self.session.die)
        self._thread.loop.set_exception_handler(_log_uncaught)

    def start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Start a coroutine in the member's thread. A thread that has ended ignores it, and `news` has the reason."""
        with suppress(StoreUnavailableError):
            self._thread.start(coroutine)

    def tell(self, method: Callable[..., None], *args: Any) -> None:
        """Have the session do something. A dead member ignores it: `Broke` is in the queue, or will be."""
        self._thread.tell(method, *args)

    def ask(self, question: Coroutine[Any, Any, T]) -> T:
        """The answer to a question to the session.

        Raises:
            CoordinationError: the store has no answer.
            TimeoutError: there is none within `LEAVE_TIMEOUT_S`.
        """
        return self._thread.call(question, LEAVE_TIMEOUT_S)

    def blocking_store(self) -> BlockingStore:
        """The store for the agent's thread. Call this after a round has started."""
        assert self.session.store is not None
        return BlockingStore(self.session.store, self._thread)

    def is_closed(self) -> bool:
        """Whether the job has ended, as far as this node knows."""
        if self.is_open:
            self.news.take_in()
        return self.news.end is not None

    def wait(self, deadline: float | None, meanwhile: Meanwhile | None = None) -> None:
        """Wait for an event, for something to do, or for the deadline. A signal raises."""
        poll = select.poll()
        poll.register(self.news, select.POLLIN)
        waits_s = [] if deadline is None else [deadline - time.monotonic()]
        if meanwhile is not None:
            meanwhile.register(poll)
            look_in_s = meanwhile.wait_s()
            waits_s += [] if look_in_s is None else [look_in_s]
        with Uninterrupted(), SignalWakeUp() as signals:
            if signals.fd is not None:
                poll.register(signals.fd, select.POLLIN)
            handlers.raise_pending(sections=1)
            poll.poll(poll_ms(min(waits_s, default=None)))

    def close_job(self, end: End, timeout_s: float) -> None:
        """End the job for all nodes, and wait until that is written. Nothing to do before the node takes part."""
        self.news.take_in()
        if not self.news.is_reached:
            return
        deadline = time.monotonic() + timeout_s
        self.tell(self.session.close_job, end)
        while True:
            self.news.tell_end()
            broke = self.news.broke
            if broke is not None and not isinstance(broke.error, (CoordinationError, HoldfastError)):
                with suppress(CoordinationError, TimeoutError):  # a bug has stopped the member
                    self.ask(self.session.write_end(end))
            if broke is not None or self.news.left is not None or time.monotonic() >= deadline:
                return
            self.wait(deadline)

    def leave(self, patience_s: float, saving_s: float = 0.0) -> bool:
        """Give back the lease, and end the thread. The host of the store first waits for the other nodes to leave, and
        for their workers to end, which may be saving.

        Returns whether that worked.
        """
        if not self.is_open:
            return True
        self.is_open = False
        self._fencing.on_lease(None)
        try:
            limit_s = patience_s + saving_s + LEAVE_TIMEOUT_S
            self._thread.call(self.session.end(patience_s, saving_s), limit_s)
        except (CoordinationError, TimeoutError, OSError, ValueError) as error:
            log.info("could not tell %s that this node leaves: %s", self._place, error)
            return False
        finally:
            has_ended = self._thread.close()
            self.session.let_go()
            self._fencing.close(is_thread_over=has_ended)
            self.news.take_in()
            if has_ended:  # a live thread might still write to the descriptor
                self.news.close()
        return True


def _log_uncaught(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an exception in a callback or task that nothing awaits.

    It does not end the job: a peer may have caused it, and the member handles its own exceptions.
    """
    log.error("bug in holdfast; the job continues: %s", context.get("message"), cause=context.get("exception"))
