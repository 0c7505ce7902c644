from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress

import pytest

from holdfast.coordination import blocking
from holdfast.coordination.blocking import BlockingStore, LoopThread
from holdfast.coordination.errors import CompactedError, LeaseLostError, StoreUnavailableError
from holdfast.coordination.keyspace import KeySpace
from holdfast.coordination.memory import MemoryStore
from holdfast.coordination.model import Change, Changes, Entry, Lease, Outcome, Put, Snapshot, Transaction, absent

LONG_S = 60.0


class Interruption(Exception):  # noqa: N818 - a signal is no error
    pass


@pytest.fixture
def loop_thread():
    with LoopThread("test-loop") as thread:
        yield thread


@pytest.fixture
def store(loop_thread):
    with BlockingStore(MemoryStore(), loop_thread) as store:
        yield store


@pytest.fixture
def interrupting_alarm():
    def interrupt(*_):
        raise Interruption

    previous = signal.signal(signal.SIGALRM, interrupt)
    yield lambda delay_s: signal.setitimer(signal.ITIMER_REAL, delay_s)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, previous)


class Endless:
    """A coroutine that ends by being cancelled only, and tells."""

    def __init__(self):
        self.has_begun = threading.Event()
        self.was_cancelled = threading.Event()

    async def run(self):
        self.has_begun.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.was_cancelled.set()


async def answer(value):
    return value


async def fail():
    raise LookupError("from the loop")


def test_a_call_returns_what_the_coroutine_returns(loop_thread):
    assert loop_thread.call(answer(42)) == 42


def test_a_call_raises_what_the_coroutine_raises(loop_thread):
    with pytest.raises(LookupError, match="from the loop"):
        loop_thread.call(fail())


def test_coroutines_run_in_a_daemon_thread_with_the_name(loop_thread):
    async def where():
        return threading.current_thread()

    thread = loop_thread.call(where())
    assert (thread.name, thread.daemon) == ("test-loop", True)


def test_a_call_that_takes_too_long_is_cancelled(loop_thread):
    endless = Endless()
    with pytest.raises(TimeoutError, match=r"^nothing after 0\.01 s$"):
        loop_thread.call(endless.run(), timeout_s=0.01)
    assert endless.was_cancelled.wait(LONG_S)


def test_an_exception_out_of_a_signal_handler_ends_the_wait_and_the_coroutine(loop_thread, interrupting_alarm):
    endless = Endless()
    interrupting_alarm(0.05)
    with pytest.raises(Interruption):
        loop_thread.call(endless.run())
    assert endless.was_cancelled.wait(LONG_S)
    assert loop_thread.call(answer("still usable")) == "still usable"


def test_a_signal_handler_that_returns_runs_at_once_and_the_wait_goes_on(loop_thread):
    handled = threading.Event()
    previous = signal.signal(signal.SIGALRM, lambda *_: handled.set())
    try:

        async def signal_and_wait():
            os.kill(os.getpid(), signal.SIGALRM)
            # The handler can run only while the main thread waits for this very coroutine.
            return await asyncio.to_thread(handled.wait, LONG_S)

        assert loop_thread.call(signal_and_wait()) is True
    finally:
        signal.signal(signal.SIGALRM, previous)


def test_many_threads_may_call_at_once(loop_thread):
    answers = []

    def ask(number):
        answers.extend(loop_thread.call(answer(number)) == number for _ in range(100))

    threads = [threading.Thread(target=ask, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [True] * 800


def test_what_was_started_is_waited_for_later(loop_thread):
    event = asyncio.Event()

    async def wait_for_it():
        await event.wait()
        return "came"

    pending = loop_thread.start(wait_for_it())
    with pytest.raises(TimeoutError):
        pending.wait(0.01)
    assert not pending.has_ended
    loop_thread.loop.call_soon_threadsafe(event.set)
    assert pending.wait(LONG_S) == "came"
    assert pending.wait(LONG_S) == "came"
    assert pending.has_ended


def test_close_ends_what_is_pending_and_those_who_wait_for_it():
    loop_thread = LoopThread()
    endless = Endless()
    errors = []

    def wait():
        try:
            loop_thread.call(endless.run())
        except StoreUnavailableError as error:
            errors.append(str(error))

    waiter = threading.Thread(target=wait)
    waiter.start()
    assert endless.has_begun.wait(LONG_S)
    loop_thread.close()
    assert endless.was_cancelled.is_set()
    waiter.join()
    assert errors == ["the store was closed"]


def test_a_loop_that_dies_tells_and_leaves_nobody_waiting():
    died = []
    told = threading.Event()

    async def tell(error):
        died.append(error)
        told.set()

    loop_thread = LoopThread(on_death=tell)
    endless = Endless()
    pending = loop_thread.start(endless.run())
    assert endless.has_begun.wait(LONG_S)

    def leave():
        raise SystemExit("out of a callback")

    assert loop_thread.tell(leave)
    late = None
    with suppress(StoreUnavailableError):  # it may be dead by now
        late = loop_thread.start(asyncio.sleep(LONG_S))
    for each in filter(None, (pending, late)):
        with pytest.raises(StoreUnavailableError, match="the store was closed"):
            each.wait(LONG_S)
    assert told.wait(LONG_S)
    assert [str(error) for error in died] == ["out of a callback"]
    assert not loop_thread.tell(leave)
    with pytest.raises(StoreUnavailableError):
        loop_thread.call(answer(1))
    assert loop_thread.close()


def test_those_who_wait_for_what_cannot_be_cancelled_are_let_go(monkeypatch):
    monkeypatch.setattr(blocking, "CLOSE_TIMEOUT_S", 0.05)
    loop_thread = LoopThread()
    begun = threading.Event()

    async def stay():
        while True:
            begun.set()
            with suppress(asyncio.CancelledError):
                await asyncio.get_running_loop().create_future()

    pending = loop_thread.start(stay())
    assert begun.wait(LONG_S)
    loop_thread.close()
    with pytest.raises(StoreUnavailableError, match="the store was closed"):
        pending.wait(LONG_S)


def test_after_close_calls_fail_and_close_does_nothing():
    loop_thread = LoopThread()
    loop_thread.close()
    loop_thread.close()
    with pytest.raises(StoreUnavailableError, match="the store was closed"):
        loop_thread.call(answer(1))


def test_a_call_from_the_loops_own_thread_is_an_error(loop_thread):
    async def call_oneself():
        loop_thread.call(answer(1))

    with pytest.raises(RuntimeError, match="wait for itself"):
        loop_thread.call(call_oneself())


def test_a_process_ends_though_the_loop_still_runs():
    program = """if True:
        import asyncio
        from holdfast.coordination.blocking import LoopThread
        thread = LoopThread()
        thread.start(asyncio.sleep(1000))
    """
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LONG_S, check=True)
    assert ended.stdout == ""


def test_the_methods_of_a_store(store):
    assert store.get("key") is None
    assert store.transact(Transaction((absent("key"),), (Put("key", b"1"),))) == Outcome(True, 2)
    assert store.get("key") == Entry("key", b"1", 2, 2)
    assert store.get_prefix("k") == Snapshot(2, (Entry("key", b"1", 2, 2),))
    lease = store.grant(LONG_S)
    assert lease == Lease(lease.id, LONG_S)
    assert store.keep_alive(lease.id) == LONG_S
    store.revoke(lease.id)
    with pytest.raises(LeaseLostError):
        store.keep_alive(lease.id)
    assert store.local_address() is None


def put(store, key, value=b""):
    return store.transact(Transaction((), (Put(key, value),))).revision


def test_a_watch_is_an_iterator(store):
    first = put(store, "a/1")
    put(store, "b/1")
    second = put(store, "a/2")
    with store.watch("a/", 1, timeout_s=LONG_S) as watch:
        assert [next(watch).revision, next(watch).revision] == [first, second]


def test_a_watch_that_brings_nothing_in_time_can_be_asked_again(store):
    with store.watch("", 2) as watch:
        for _ in range(3):
            with pytest.raises(TimeoutError):
                watch.next(0.01)
        put(store, "key", b"1")
        assert watch.next(LONG_S) == Changes(2, (Change("key", Entry("key", b"1", 2, 2)),))


def test_an_interrupted_step_of_a_watch_loses_nothing(store, interrupting_alarm):
    with store.watch("", 2) as watch:
        interrupting_alarm(0.05)
        with pytest.raises(Interruption):
            watch.next()
        revisions = [put(store, "key") for _ in range(3)]
        assert [watch.next(LONG_S).revision for _ in range(3)] == revisions


def test_a_watch_that_is_closed_ends_an_iteration_that_waits(store):
    watch = store.watch("", 2)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(list(watch)))
    thread.start()
    watch.close()
    thread.join()
    assert seen == [[]]
    watch.close()


def test_a_watch_raises_its_end_at_every_further_step(loop_thread):
    with BlockingStore(MemoryStore(KeySpace(history_max_revisions=1)), loop_thread) as store:
        put(store, "a")
        put(store, "b")
        with store.watch("", 2) as watch:
            for _ in range(2):
                with pytest.raises(CompactedError):
                    watch.next(LONG_S)


def test_a_watch_may_be_closed_after_its_loop():
    loop_thread = LoopThread()
    watch = BlockingStore(MemoryStore(), loop_thread).watch("", 2)
    loop_thread.close()
    watch.close()
    with pytest.raises(StoreUnavailableError):
        watch.next()


def test_a_method_that_takes_too_long_raises(loop_thread):
    class Silent(MemoryStore):
        async def get(self, key):
            await asyncio.get_running_loop().create_future()

    with pytest.raises(TimeoutError), BlockingStore(Silent(), loop_thread, timeout_s=0.01) as store:
        store.get("key")
