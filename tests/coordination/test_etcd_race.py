"""Several members that are asked at once: the first answer counts, and errors only if there is no answer."""

from __future__ import annotations

import asyncio
import gc

import pytest

from holdfast.coordination.errors import CoordinationError, LeaseLostError, StoreRefusedError, StoreUnavailableError
from holdfast.coordination.etcd_errors import NoLeaderError
from holdfast.coordination.etcd_race import Race

A, B = ("a", 1), ("b", 2)
PATIENCE_S = 60.0


async def answer(value):
    return value


async def fail(error):
    raise error


async def never():
    await asyncio.Event().wait()


def run(story):
    async def tell():
        race = Race()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await story(race, asyncio.get_running_loop())
        finally:
            race.close()

    asyncio.run(tell())


def test_the_first_answer_wins_whoever_was_asked_first():
    async def story(race, loop):
        race.start(A, never())
        assert not await race.has_answer(loop.time())
        race.start(B, answer("b's"))
        assert await race.has_answer(loop.time() + PATIENCE_S)
        assert race.answer == "b's"

    run(story)


def test_an_error_ends_the_wait_for_the_next_member_to_be_asked():
    async def story(race, loop):
        race.start(A, fail(StoreUnavailableError("a is down")))
        assert not await race.has_answer(loop.time() + PATIENCE_S)
        assert list(race.errors) == [A]
        assert not race.is_lost(members=2)
        race.start(B, fail(StoreRefusedError("b refuses")))
        assert not await race.has_answer(loop.time() + PATIENCE_S)
        assert race.is_lost(members=2)

    run(story)


def test_a_race_whose_member_may_serve_soon_is_not_lost():
    async def story(race, loop):
        race.start(A, fail(NoLeaderError("a has no leader")))
        assert not await race.has_answer(loop.time() + PATIENCE_S)
        assert not race.is_lost(members=1)

    run(story)


def test_an_answer_is_waited_for_in_spite_of_errors():
    async def story(race, loop):
        late = asyncio.Event()

        async def answer_late():
            await late.wait()
            return "late"

        race.start(A, fail(StoreUnavailableError("a is down")))
        race.start(B, answer_late())
        loop.call_soon(loop.call_soon, late.set)
        assert await race.has_answer(loop.time() + PATIENCE_S, in_spite_of_errors=True)
        assert race.answer == "late"

    run(story)


def test_an_error_that_every_member_would_give_is_raised():
    async def story(race, loop):
        race.start(A, fail(LeaseLostError("the lease is gone")))
        with pytest.raises(CoordinationError, match="the lease is gone"):
            await race.has_answer(loop.time() + PATIENCE_S)

    run(story)


def test_members_that_lost_are_cancelled_and_nobody_is_warned_of_their_errors():
    complaints = []

    async def tell():
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        race = Race()
        race.start(A, fail(StoreUnavailableError("too late")))
        race.start(B, never())
        await asyncio.sleep(0)
        race.close()
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(tell())
    gc.collect()
    assert complaints == []
