"""A watch whose changes are brought to it."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.coordination.errors import CompactedError, StoreUnavailableError
from holdfast.coordination.model import Change, Changes, Entry
from holdfast.coordination.queued_watch import QueuedWatch


class Ended(QueuedWatch):
    """Counts how often it was told to end."""

    ends = 0

    def _end(self):
        self.ends += 1


def test_what_was_delivered_is_read_before_the_failure():
    async def story():
        watch = Ended()
        watch.deliver(Changes(1, ()))
        watch.fail(StoreUnavailableError("gone"))
        watch.fail(CompactedError("later failures do not count"))
        watch.deliver(Changes(2, ()))
        assert watch.ends == 1
        assert await anext(watch) == Changes(1, ())
        with pytest.raises(StoreUnavailableError, match="gone"):
            await anext(watch)
        with pytest.raises(StopAsyncIteration):
            await anext(watch)

    asyncio.run(story())


def test_a_reader_that_does_not_read_has_to_read_anew():
    async def story():
        watch = Ended(backlog_max=2)
        for revision in (1, 2, 3, 4):
            watch.deliver(Changes(revision, ()))
        assert watch.ends == 1
        assert [(await anext(watch)).revision for _ in range(2)] == [1, 2]
        with pytest.raises(CompactedError):
            await anext(watch)

    asyncio.run(story())


def changes_of(revision, bytes_each, count=1):
    return Changes(revision, tuple(Change("key", Entry("key", bytes(bytes_each), 1, revision)) for _ in range(count)))


def test_what_waits_has_a_limit_in_bytes_too():
    async def story():
        watch = Ended(backlog_max_bytes=10_000)
        watch.deliver(changes_of(1, 20_000))  # by itself it is let in
        assert await anext(watch) == changes_of(1, 20_000)
        for revision in range(2, 20):  # what is read makes room
            watch.deliver(changes_of(revision, 4_000))
            watch.deliver(changes_of(revision, 4_000))
            assert [(await anext(watch)).revision for _ in range(2)] == [revision, revision]
        watch.deliver(changes_of(20, 4_000))
        watch.deliver(changes_of(21, 6_000))
        assert (await anext(watch)).revision == 20
        with pytest.raises(CompactedError):
            await anext(watch)

    asyncio.run(story())


def test_changes_without_a_value_take_memory_too():
    async def story():
        watch = Ended(backlog_max_bytes=10_000)
        watch.deliver(changes_of(1, 0))
        watch.deliver(changes_of(2, 0, count=100))
        assert (await anext(watch)).revision == 1
        with pytest.raises(CompactedError):
            await anext(watch)

    asyncio.run(story())


def test_a_key_that_is_not_all_ascii_takes_more():
    async def story():
        watch = Ended(backlog_max_bytes=10_000)
        for revision, key in ((1, "k" * 4_000), (2, "k" * 4_000), (3, "é" * 500)):
            watch.deliver(Changes(revision, (Change(key),)))
        assert [(await anext(watch)).revision for _ in range(2)] == [1, 2]
        with pytest.raises(CompactedError):
            await anext(watch)

    asyncio.run(story())


def test_close_ends_it_at_once_and_once():
    async def story():
        watch = Ended()
        watch.deliver(Changes(1, ()))
        watch.close()
        watch.close()
        watch.fail(StoreUnavailableError("gone"))
        assert watch.ends == 1
        assert [changes async for changes in watch] == []

    asyncio.run(story())


def test_two_readers_share_it():
    async def story():
        watch = Ended()
        readers = [asyncio.ensure_future(anext(watch, None)) for _ in range(3)]
        await asyncio.sleep(0)
        watch.deliver(Changes(1, ()))
        watch.deliver(Changes(2, ()))
        watch.deliver(Changes(3, ()))
        assert {changes.revision for changes in await asyncio.gather(*readers)} == {1, 2, 3}
        watch.close()

    asyncio.run(story())
