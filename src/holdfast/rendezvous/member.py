"""The edge between a node's membership and the store: it carries out effects, and reports the results back."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, TypeVar

from holdfast.coordination.errors import BadAnswerError, LeaseLostError, StoreReplacedError, StoreUnavailableError
from holdfast.coordination.mirror import follow
from holdfast.coordination.model import Snapshot
from holdfast.logger import get_logger
from holdfast.rendezvous.decision import Leave, Start, Stop
from holdfast.rendezvous.membership import RETRY_S, Follow, Grant, KeepAlive, Transact

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any, Protocol

    from holdfast.coordination.store import CoordinationStore
    from holdfast.rendezvous.membership import Effect, Membership
    from holdfast.rendezvous.records import End, Failure, Generation, Node, StacksRequest

    class Listener(Protocol):
        """The owner of the workers. Called in the event loop; must not block."""

        def start(self, generation: Generation) -> None: ...

        def stop(self, reason: Stop) -> None: ...

        def leave_group(self, reason: Leave) -> None: ...

        def fence(self, fence_at: float) -> None:
            """The lease was renewed: workers may live until `fence_at`, on the monotonic clock."""

        def status(self, text: str) -> None: ...

        def stacks(self, request: StacksRequest) -> None: ...

        def recorded(self, generation: int) -> None:
            """The store has recorded that all workers of this node succeeded."""

        def closed(self, end: End) -> None:
            """The job has ended. Called once, before `stop` or `leave_group`."""

        def break_down(self, error: BaseException) -> None:
            """The member stops here and reports nothing more. Called once.

            The store refuses us, it holds a malformed record, or holdfast has a bug.
            """


COMPLAIN_S = 60.0
"""The interval between log lines about unreadable records: a peer that writes them in a loop must not fill the log."""

log = get_logger(__name__)

E = TypeVar("E", Grant, KeepAlive, Transact)


class Member:
    """A node in a group, on an asyncio event loop.

    Everything it does begins in `_step`: a call of the agent, a timer, an answer of the store. So an exception cannot
    get lost in a callback: the listener is told, and the member stops. It no longer renews its lease, so the keeper
    kills the workers and the lease expires, unless the agent stops the workers and gives the lease back before.
    """

    def __init__(self, membership: Membership, store: CoordinationStore, listener: Listener) -> None:
        self._membership = membership
        self._store = store
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._following: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._status = ""
        self._stacks_id = ""
        self._recorded = 0
        self._is_closed = False
        self._faults = 0
        self._complain_at = 0.0
        self._has_ended = False
        self._has_broken = False
        self.replaced = ""
        self._trouble = ""
        self._bad_answer = (float("-inf"), "")

    @property
    def trouble(self) -> str:
        """Why the store does not do what this node asks for; "" if it does. A wrong answer says more than silence."""
        at, text = self._bad_answer
        is_recent = self._loop.time() < at + self._membership.settings.join_timeout_s
        return text if is_recent and self._trouble else self._trouble

    @property
    def membership(self) -> Membership:
        return self._membership

    # Calls of the agent

    def seek(self, offer: Node) -> None:
        self._step(self._membership.seek, offer, self._loop.time())

    def fail(self, failure: Failure) -> None:
        self._step(self._membership.fail, failure)

    def succeed(self) -> None:
        self._step(self._membership.succeed)

    def announce_leave(self, reason: str) -> None:
        self._step(self._membership.announce_leave, reason)

    def close(self, end: End) -> None:
        self._step(self._membership.close, end)

    def break_down(self, error: BaseException) -> None:
        """Stop for good because of an error, and tell the listener. Later errors are consequences of the first."""
        if self._has_broken or self._has_ended:
            return
        self._has_broken = True
        self._stop_work()
        self._listener.break_down(error)

    async def end(self) -> None:
        """Leave the group. The lease is given back, so that nobody waits for it to expire."""
        self._has_ended = True
        self._stop_work()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._membership.me.lease:
            await self._store.revoke(self._membership.me.lease)

    # Effects

    def _step(self, change: Callable[..., None] | None = None, *args: Any) -> None:
        """Apply a change, if there is one, and carry out the effects that follow."""
        if self._has_ended or self._has_broken:
            return
        try:
            if change is not None:
                change(*args)
            self._go_on()
        except Exception as error:  # noqa: BLE001 - most callers are callbacks, whose exceptions nobody would see
            self.break_down(error)

    def _go_on(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        effects = self._membership.step(self._loop.time())
        self._tell_facts()
        for effect in effects:
            self._carry_out(effect)
        if self._membership.status != self._status:
            self._status = self._membership.status
            self._listener.status(self._status)
        view = self._membership.view
        if view is not None:
            count, faults = view.take_faults()
            self._membership.unreadable(count)
            self._complain(count, faults)
        if view is not None and view.stacks is not None and view.stacks.id != self._stacks_id:
            self._stacks_id = view.stacks.id
            self._listener.stacks(view.stacks)
        if self._membership.wake_at is not None:
            self._timer = self._loop.call_at(self._membership.wake_at, self._step)

    def _tell_facts(self) -> None:
        """Tell the listener what the store says about this node and its job, before the effects that follow from it."""
        me, view = self._membership.me, self._membership.view
        if me.is_done_published and me.done != self._recorded:
            self._recorded = me.done
            self._listener.recorded(me.done)
        if view is not None and view.end is not None and not self._is_closed:
            self._is_closed = True
            self._listener.closed(view.end)

    def _complain(self, count: int, faults: list[str]) -> None:
        """Log unreadable records: the first one at once, later ones together every `COMPLAIN_S`."""
        self._faults += count
        if not self._faults or self._loop.time() < self._complain_at:
            return
        self._complain_at = self._loop.time() + COMPLAIN_S
        more = f" ({self._faults - 1} more could not be read)" if self._faults > 1 else ""
        log.warning("%s%s", faults[0] if faults else "records in the store cannot be read", more)
        self._faults = 0

    def _stop_work(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for task in list(self._tasks):
            task.cancel()

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Grant():
                self._do(self._ask(effect, self._grant))
            case KeepAlive():
                self._do(self._ask(effect, self._keep_alive))
            case Transact():
                self._do(self._ask(effect, self._transact))
            case Follow():
                if self._following is not None:
                    self._following.cancel()
                self._following = self._do(self._follow(effect))
            case Start():
                self._listener.start(effect.generation)
            case Stop():
                self._listener.stop(effect)
            case Leave():
                self._listener.leave_group(effect)

    def _do(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._did)
        return task

    def _did(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self.break_down(error)
        else:
            self._step()

    async def _ask(self, effect: E, request: Callable[[E], Coroutine[Any, Any, None]]) -> None:
        """Make a request of the store, and handle the failures that a store may have."""
        try:
            await request(effect)
            self._trouble = ""
        except StoreUnavailableError as error:
            self._unavailable(effect, error)
        except LeaseLostError:
            self._membership.lease_lost(effect)

    async def _grant(self, effect: Grant) -> None:
        sent_at = self._loop.time()
        lease = await self._store.grant(effect.ttl_s)
        self._membership.granted(lease, sent_at)
        self._listener.fence(self._membership.fence_at)

    async def _keep_alive(self, effect: KeepAlive) -> None:
        sent_at = self._loop.time()
        ttl_s = await self._store.keep_alive(effect.lease)
        if effect.lease == self._membership.me.lease:
            self._membership.kept(ttl_s, sent_at)
            self._listener.fence(self._membership.fence_at)

    async def _transact(self, effect: Transact) -> None:
        self._membership.answered(await self._store.transact(effect.transaction))

    async def _follow(self, effect: Follow) -> None:
        """Read the keys and follow their changes. Start again when the watch breaks."""
        while True:
            try:
                async with aclosing(follow(self._store, effect.prefix)) as news:
                    async for item in news:
                        if isinstance(item, Snapshot):
                            self._membership.read(item, effect.prefix)
                        else:
                            self._membership.changed(item, effect.prefix)
                        self._step()
            except StoreUnavailableError as error:
                self._unavailable(effect, error)
                self._step()
            await asyncio.sleep(RETRY_S)

    def _unavailable(self, effect: Effect, error: StoreUnavailableError) -> None:
        self._trouble = str(error)
        if isinstance(error, BadAnswerError):
            self._bad_answer = (self._loop.time(), str(error))
        is_proven = False
        if isinstance(error, StoreReplacedError):
            is_proven, self.replaced = error.is_proven, str(error)
        elif error.is_gone:
            self.replaced = ""
        self._membership.unavailable(effect, self._loop.time(), is_gone=error.is_gone, is_proven=is_proven)
