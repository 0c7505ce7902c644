"""A watch whose changes are brought to it."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.coordination.errors import CompactedError, StoreUnavailableError
from holdfast.coordination.model import Changes
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
