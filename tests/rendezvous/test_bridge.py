"""Two threads: the agent's words arrive in order, its waits end, and nothing outlives the bridge."""

from __future__ import annotations

import asyncio
import os
import select
import threading
import time

import pytest

from holdfast.coordination.errors import StoreUnavailableError
from holdfast.rendezvous import RendezvousParameters
from holdfast.rendezvous.bridge import Bridge
from holdfast.rendezvous.elastic_settings import ElasticSettings
from holdfast.rendezvous.fencing import Fencing
from holdfast.rendezvous.handover import Left, Reached
from holdfast.rendezvous.hosting import free_port
from holdfast.rendezvous.last_will import LeaseWill
from holdfast.rendezvous.reasons import Reasons
from holdfast.rendezvous.records import End, EndKind, Keys, Node

PATIENCE_S = 60.0
NODE = Node("node7", "", 0, "default", 1)
END = End(EndKind.CLOSED, "somebody closed it")


@pytest.fixture
def bridge():
    endpoint = f"127.0.0.1:{free_port('127.0.0.1')}"
    settings = ElasticSettings(RendezvousParameters("c10d", endpoint, "run", 1, 2, last_call_timeout=0.01), {})
    place = settings.place
    reasons = Reasons("run", place.name, place.may_return, settings.limits.join_timeout_s)
    fencing = Fencing(lambda: LeaseWill(place.access(), 1.0, settings.ttl_s))
    made = Bridge(settings, reasons, fencing)
    made.limits = settings.limits
    made.fencing = fencing
    yield made
    made.leave(0.0)


def meet(bridge):
    bridge.start(bridge.session.seek(NODE, bridge.limits))
    deadline = time.monotonic() + PATIENCE_S
    while bridge.news.started is None:
        bridge.wait(deadline)
        bridge.news.take_in()
        assert bridge.news.broke is None, bridge.news.broke
        assert time.monotonic() < deadline


def test_words_are_heard_in_order_in_another_thread(bridge):
    heard, done = [], threading.Event()
    for word in range(10):
        bridge.tell(lambda word=word: heard.append((word, threading.current_thread())))
    bridge.tell(done.set)
    assert done.wait(PATIENCE_S)
    assert [word for word, _ in heard] == list(range(10))
    assert threading.current_thread() not in {thread for _, thread in heard}


def test_a_round_has_a_store_for_the_agents_thread(bridge):
    meet(bridge)
    assert bridge.news.is_reached
    keys = Keys("run")
    assert bridge.blocking_store().get(keys.generation) is not None
    assert bridge.ask(bridge.session.count_waiting()) == 0


def test_a_wait_ends_with_an_event_and_with_its_deadline(bridge):
    bridge.wait(time.monotonic())
    bridge.tell(bridge.news.tell, Reached())
    bridge.wait(None)
    bridge.news.take_in()
    assert bridge.news.is_reached


class Work:
    """What an agent has to do while it waits: something comes through a pipe."""

    def __init__(self, fd, wait_s=None):
        self._fd = fd
        self._wait_s = wait_s

    def register(self, poll):
        poll.register(self._fd, select.POLLIN)

    def wait_s(self):
        return self._wait_s


def test_a_wait_ends_when_there_is_something_to_do_meanwhile(bridge):
    read, write = os.pipe()
    try:
        bridge.wait(None, Work(read, wait_s=0.0))
        os.write(write, b"x")
        bridge.wait(None, Work(read))
    finally:
        os.close(read)
        os.close(write)


def test_a_job_that_is_closed_has_ended_also_after_the_bridge(bridge):
    assert not bridge.is_closed()
    bridge.close_job(END, PATIENCE_S)
    assert not bridge.is_closed(), "the node did not take part: nothing to close"
    meet(bridge)
    bridge.close_job(END, PATIENCE_S)
    assert bridge.is_closed()
    assert isinstance(bridge.news.left, Left)
    assert bridge.leave(PATIENCE_S)
    assert bridge.is_closed()


def test_the_end_is_written_although_a_bug_stopped_the_member(bridge):
    meet(bridge)
    bridge.tell(bridge.session._listener.member.break_down, ValueError("a bug"))
    bridge.close_job(END, PATIENCE_S)
    assert bridge.blocking_store().get(Keys("run").end) is not None


def test_leaving_ends_the_thread_closes_the_descriptor_and_the_will(bridge):
    meet(bridge)
    will, thread = bridge.fencing.last_will(), bridge._thread
    descriptor = bridge.news.fileno()
    assert bridge.leave(PATIENCE_S)
    assert not bridge.is_open
    assert not thread._thread.is_alive()
    for fd in (descriptor, will.fd):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)
    assert bridge.leave(PATIENCE_S), "once is enough"


def test_nobody_hears_what_is_said_after_leaving(bridge):
    bridge.leave(0.0)
    bridge.tell(print, "nobody")

    async def never():
        await asyncio.Event().wait()

    bridge.start(never())
    with pytest.raises(StoreUnavailableError):
        bridge.ask(never())
