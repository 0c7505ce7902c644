"""The store for callers without an event loop: a thread that runs one, and a store with blocking methods."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from typing import Generic, TypeVar

from holdfast.coordination.errors import StoreUnavailableError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any, Self

    from holdfast.coordination.model import Changes, Entry, Lease, Outcome, Snapshot, Transaction
    from holdfast.coordination.store import CoordinationStore, Watch

T = TypeVar("T")

CLOSE_TIMEOUT_S = 5.0
"""How long cancelled tasks have to end when their loop is closed."""

SIGNAL_WAIT_MAX_S = 1.0
"""The longest single wait of the main thread. A signal interrupts it, except one that arrives between the last Python
instruction and the system call: its handler runs when this wait ends."""


class Pending(Generic[T]):
    """A coroutine that runs in a loop's thread, for callers in other threads. `LoopThread.start` makes it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        coroutine: Coroutine[Any, Any, T],
        at_end: Callable[[Pending[Any]], None],
    ) -> None:
        self._loop = loop
        self._coroutine = coroutine
        self._at_end = at_end
        self._task: asyncio.Task[T] | None = None
        self._has_ended = False
        # A bare lock that the loop releases at the end: an exception raised by a signal handler leaves nothing half
        # done.
        self._end = threading.Lock()
        self._end.acquire()

    @property
    def has_ended(self) -> bool:
        return self._has_ended

    def wait(self, timeout_s: float | None = None) -> T:
        """Return or raise the result. After TimeoutError the coroutine still runs, and you can wait again.

        Raises:
            StoreUnavailableError: the loop was closed before the end.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._has_ended and not self._end.acquire(timeout=_stretch_s(deadline)):
            if deadline is not None and time.monotonic() >= deadline and not self._has_ended:
                raise TimeoutError(f"nothing after {timeout_s:g} s")
        task = self._task
        if task is None or not task.done() or task.cancelled():
            raise StoreUnavailableError("the store was closed", is_gone=True)
        return task.result()

    def cancel(self) -> None:
        """Cancel the coroutine, without waiting for its end."""
        with suppress(RuntimeError):  # the loop is closed, and everything in it has ended
            self._loop.call_soon_threadsafe(self._cancel)

    def _begin(self) -> None:
        self._task = self._loop.create_task(self._coroutine)
        self._task.add_done_callback(self._ended)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _ended(self, task: asyncio.Task[T]) -> None:
        if not task.cancelled():
            task.exception()  # retrieve the exception: the waiter may be gone, and asyncio would warn
        self._release()

    def abandon(self) -> None:
        """Fail all waiters with StoreUnavailableError: the loop has ended."""
        if self._task is None:
            self._coroutine.close()  # it never began, and Python would warn
        self._release()

    def _release(self) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._at_end(self)
            self._end.release()


class LoopThread:
    """An event loop in a daemon thread, until it is closed. Any other thread may use it.

    A loop that ends in any other way is a bug. All waiters get StoreUnavailableError. `on_death` gets the exception,
    and the coroutine that it returns runs last in the loop: it reports, and closes what is open.
    """

    def __init__(
        self,
        name: str = "holdfast-store",
        on_death: Callable[[BaseException], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        self._loop = asyncio.new_event_loop()
        # Held for the few steps that must not overlap the loop's end. No signal handler runs code that takes it.
        self._lock = threading.Lock()
        self._closed = False
        self._on_death = on_death
        self._pending: set[Pending[Any]] = set()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop that the thread runs."""
        return self._loop

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Pending[T]:
        """Start a coroutine, without waiting for it.

        Raises:
            StoreUnavailableError: the loop is closed.
        """
        pending = Pending(self._loop, coroutine, self._pending.discard)
        with self._lock:
            if not self._closed:
                self._pending.add(pending)
                self._loop.call_soon_threadsafe(pending._begin)  # noqa: SLF001 - the two are one mechanism
                return pending
        coroutine.close()
        raise StoreUnavailableError("the store was closed", is_gone=True)

    def tell(self, callback: Callable[..., None], *args: Any) -> bool:
        """Call a function in the loop, without waiting for it. False if the loop is closed.

        The function must handle its own exceptions: nobody waits for them.
        """
        with self._lock:
            if self._closed:
                return False
            self._loop.call_soon_threadsafe(callback, *args)
            return True

    def call(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run a coroutine. Returns its result, or raises its exception.

        If TimeoutError or an exception of a signal handler ends the wait, the coroutine is cancelled.
        """
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("a call from the loop's own thread would wait for itself")
        pending = self.start(coroutine)
        try:
            return pending.wait(timeout_s)
        finally:
            if not pending.has_ended:
                pending.cancel()

    def close(self) -> bool:
        """Cancel all coroutines, and end the thread. Their waiters get StoreUnavailableError.

        Returns whether the thread has ended: False if a coroutine blocks it.
        """
        with self._lock:
            if not self._closed:
                # In this order: a signal's exception between the two must not leave a loop that nobody ends.
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._closed = True
        if threading.current_thread() is not self._thread:
            self._thread.join(2 * CLOSE_TIMEOUT_S)
        return not self._thread.is_alive()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            try:
                self._loop.run_forever()
            except BaseException as error:  # noqa: BLE001 - such as SystemExit in a callback, which ends the thread
                self._die(error)
            self._end_tasks()
        finally:
            asyncio.set_event_loop(None)
            self._loop.close()
            for pending in list(self._pending):  # those that never began, or resist cancellation
                pending.abandon()

    def _die(self, error: BaseException) -> None:
        with self._lock:
            self._closed = True
        if self._on_death is not None:
            self._loop.run_until_complete(asyncio.wait_for(self._on_death(error), CLOSE_TIMEOUT_S))

    def _end_tasks(self) -> None:
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self._loop.run_until_complete(asyncio.wait(tasks, timeout=CLOSE_TIMEOUT_S))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())


class BlockingStore:
    """A `CoordinationStore` with the same methods, which block. The caller owns the loop's thread.

    `timeout_s` bounds every method for engines that do not: it raises TimeoutError.
    """

    def __init__(self, store: CoordinationStore, loop_thread: LoopThread, timeout_s: float | None = None) -> None:
        self._store = store
        self._loop_thread = loop_thread
        self._timeout_s = timeout_s

    def get(self, key: str) -> Entry | None:
        """As `CoordinationStore.get`."""
        return self._call(self._store.get(key))

    def get_prefix(self, prefix: str) -> Snapshot:
        """As `CoordinationStore.get_prefix`."""
        return self._call(self._store.get_prefix(prefix))

    def transact(self, transaction: Transaction) -> Outcome:
        """As `CoordinationStore.transact`."""
        return self._call(self._store.transact(transaction))

    def grant(self, ttl_s: float) -> Lease:
        """As `CoordinationStore.grant`."""
        return self._call(self._store.grant(ttl_s))

    def keep_alive(self, lease_id: int) -> float:
        """As `CoordinationStore.keep_alive`."""
        return self._call(self._store.keep_alive(lease_id))

    def revoke(self, lease_id: int) -> None:
        """As `CoordinationStore.revoke`."""
        self._call(self._store.revoke(lease_id))

    def watch(self, prefix: str, from_revision: int, timeout_s: float | None = None) -> BlockingWatch:
        """Watch the changes under `prefix`; `timeout_s` limits each step of an iteration."""
        return BlockingWatch(self._call(self._watch(prefix, from_revision)), self._loop_thread, timeout_s)

    def local_address(self) -> str | None:
        """As `CoordinationStore.local_address`."""
        return self._call(self._local_address())

    def close(self) -> None:
        """As `CoordinationStore.close`."""
        self._call(self._store.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._loop_thread.call(coroutine, self._timeout_s)

    async def _watch(self, prefix: str, from_revision: int) -> Watch:
        return self._store.watch(prefix, from_revision)

    async def _local_address(self) -> str | None:
        return self._store.local_address()


class BlockingWatch:
    """An iterator over changes, for one thread. A step that times out loses nothing: the next one continues it."""

    def __init__(self, watch: Watch, loop_thread: LoopThread, timeout_s: float | None = None) -> None:
        self._watch = watch
        self._loop_thread = loop_thread
        self._timeout_s = timeout_s
        self._step: Pending[Changes | None] | None = None

    def next(self, timeout_s: float | None = None) -> Changes | None:
        """The next batch of changes, or None if the watch was closed. Raises TimeoutError if there is none in time.

        An error of the watch is raised again at every further step.
        """
        step = self._step
        if step is None:
            step = self._step = self._loop_thread.start(self._take_step())
        changes = step.wait(timeout_s)
        self._step = None  # not sooner: an exception of a signal handler must not lose the step's result
        return changes

    def close(self) -> None:
        """End the watch. An iteration that waits in another thread ends, too."""
        with suppress(StoreUnavailableError):  # the loop was closed, and so was the watch
            self._loop_thread.call(self._end())

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Changes:
        changes = self.next(self._timeout_s)
        if changes is None:
            raise StopIteration
        return changes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _take_step(self) -> Changes | None:
        try:
            return await anext(self._watch)
        except StopAsyncIteration:  # a task cannot raise it
            return None

    async def _end(self) -> None:
        self._watch.close()


def _stretch_s(deadline: float | None) -> float:
    """How long to wait for a lock before checking the clock again."""
    left_s = (
        threading.TIMEOUT_MAX if deadline is None else min(max(deadline - time.monotonic(), 0.0), threading.TIMEOUT_MAX)
    )
    if threading.current_thread() is threading.main_thread():
        return min(left_s, SIGNAL_WAIT_MAX_S)
    return left_s
