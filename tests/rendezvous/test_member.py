"""The edge of a membership: what others write into the store costs a line now and then, and never the member."""

from __future__ import annotations

import asyncio
import logging

from simulated_agent import offer

from holdfast.coordination.memory import MemoryStore
from holdfast.coordination.model import Put, Transaction
from holdfast.rendezvous.decision import Settings
from holdfast.rendezvous.member import Member
from holdfast.rendezvous.membership import Membership
from holdfast.rendezvous.records import Keys

KEYS = Keys("job")
DEADLINE_S = 60.0


class Listener:
    """Whoever runs the workers: takes note."""

    def __init__(self):
        self.started = asyncio.Event()
        self.stopped = asyncio.Event()
        self.broke = []

    def start(self, generation):
        self.started.set()

    def stop(self, reason):
        self.stopped.set()

    def leave_group(self, reason):
        pass

    def fence(self, fence_at):
        pass

    def status(self, text):
        pass

    def stacks(self, request):
        pass

    def recorded(self, generation):
        pass

    def closed(self, end):
        pass

    def break_down(self, error):
        self.broke.append(error)


async def pestered(writes):
    """A job of one node, into whose store somebody writes; until the last of it has been seen."""
    async with MemoryStore() as store:
        listener = Listener()
        settings = Settings(min_nodes=1, max_nodes=4, last_call_s=0.0)
        membership = Membership(KEYS, settings, "a", ttl_s=30.0, keep_alive_s=10.0, store_may_return=True)
        member = Member(membership, store, listener)
        member.seek(offer("a", 1))
        await asyncio.wait_for(listener.started.wait(), DEADLINE_S)
        for key, value in writes:
            await store.transact(Transaction((), (Put(key, value),)))
        revision = (await store.get_prefix(KEYS.group)).revision
        while membership.view.revision < revision and not listener.broke:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        await member.end()
        return listener


def test_a_thousand_unreadable_records_are_one_line(caplog):
    writes = [(KEYS.node(f"n{number}.1"), b'{"host": "\xff"}') for number in range(1000)]
    with caplog.at_level(logging.WARNING, "holdfast"):
        listener = asyncio.run(pestered(writes))
    assert listener.broke == []
    assert not listener.stopped.is_set()
    (told,) = caplog.messages
    assert "is not what holdfast writes" in told


def test_an_unreadable_generation_stops_the_workers_and_not_the_member():
    listener = asyncio.run(pestered([(KEYS.generation, b"\xff\xfe")]))
    assert listener.broke == []
    assert listener.stopped.is_set()
