"""What a member says becomes events, and the ports of a round stay with the node of rank 0."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace

import pytest
from store_peer import StorePeer, check, set_

from holdfast.coordination.errors import StoreUnavailableError
from holdfast.coordination.model import Snapshot
from holdfast.rendezvous import group_listener
from holdfast.rendezvous.decision import Leave, Me, Stop
from holdfast.rendezvous.group_listener import GroupListener
from holdfast.rendezvous.handover import Broke, Ended, Left, Recorded, StacksAsked, Started, Stopped
from holdfast.rendezvous.hosting import free_port
from holdfast.rendezvous.membership import RETRY_S
from holdfast.rendezvous.records import End, EndKind, Generation, Keys, Member, StacksRequest

ADDRESS = "127.0.0.1"
DEADLINE_S = 60.0
END = End(EndKind.CLOSED, "somebody closed it")


def generation(*nodes):
    return Generation(1, tuple(Member(node, node, ADDRESS, "default", 1) for node in nodes), ADDRESS, 1, 0, 0)


class Told:
    """A listener of the node a.1, and what it has told."""

    def __init__(self, store=None, *, shares_stacks=True, **me):
        self.events = []
        self.renewals = []
        self.started = []
        self.broken = []
        self.membership = SimpleNamespace(me=Me(node="a.1", **me), has_joined=True)
        self.listener = GroupListener(
            *("run", Keys("run"), self.membership, store),
            tell=self.events.append,
            start_in_loop=self.started.append,
            fencing=SimpleNamespace(renewed=lambda *args: self.renewals.append(args)),
            shares_stacks=shares_stacks,
        )
        self.listener.member = SimpleNamespace(trouble="it does not answer", replaced="", break_down=self.broken.append)

    def offer(self):
        return self.listener.offer_ports(ADDRESS, serves_store=True, access=None)


@pytest.fixture
def told():
    made = Told(running=1, lease=7)
    yield made
    made.listener.let_go()


def is_open(port):
    with socket.socket() as client:
        return client.connect_ex((ADDRESS, port)) == 0


def test_every_word_is_one_event(told):
    error = ValueError("a bug")
    request = StacksRequest(1, "request", "b.1", "a person asks")
    told.listener.stop(Stop("broken", may_finish=True))
    told.listener.recorded(1)
    told.listener.closed(END)
    told.listener.stacks(request)
    told.listener.break_down(error)
    assert told.events == [
        Stopped(1, "broken", may_finish=True),
        Recorded(1),
        Ended(END),
        StacksAsked(request),
        Broke(error, is_recorded=False),
    ]


def test_a_farewell_has_all_that_its_explanation_needs():
    told = Told(running=1, store_is_gone=True, cut_off_since=3.0, is_done_published=True)
    told.listener.leave_group(Leave(None, "the store is gone"))
    assert told.events == [
        Left(
            None,
            "the store is gone",
            store_is_gone=True,
            is_cut_off=True,
            is_recorded=True,
            has_joined=True,
            trouble="it does not answer",
        )
    ]


def test_a_request_of_this_node_itself_is_not_told(told):
    told.listener.stacks(StacksRequest(1, "request", "a.1", "a person asks"))
    assert told.events == []


def test_a_request_of_nodes_that_are_not_trusted_is_not_told():
    told = Told(running=1, shares_stacks=False)
    told.listener.stacks(StacksRequest(1, "request", "b.1", "a person asks"))
    assert told.events == []


def test_a_port_that_was_given_is_that_of_every_round(told):
    port = free_port(ADDRESS)
    for _ in range(2):
        assert told.listener.offer_ports(ADDRESS, port, serves_store=True, access=None).port == port
        told.listener.start(generation("a.1", "b.1"))
        assert is_open(port)


def test_a_renewal_names_the_lease(told):
    told.listener.fence(5.0)
    assert told.renewals == [(7, 5.0)]


def test_rank_0_keeps_its_ports_for_the_round(told):
    ports = told.offer()
    told.listener.start(generation("a.1", "b.1"))
    assert told.events == [Started(generation("a.1", "b.1"), 0, ports)]
    assert is_open(ports.port)


def test_another_rank_lets_its_ports_go(told):
    ports = told.offer()
    port = ports.port
    told.listener.start(generation("b.1", "a.1"))
    assert told.events == [Started(generation("b.1", "a.1"), 1, None)]
    assert not is_open(port)


def test_each_round_has_ports_of_its_own(told):
    port = told.offer().port
    again = told.offer().port
    assert not is_open(port)
    assert is_open(again)


class Store:
    """A store that does not answer at first."""

    def __init__(self, *answers):
        self._answers = list(answers)

    async def get_prefix(self, prefix):
        assert prefix == Keys("run").nodes
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def admitted(store, monkeypatch):
    """What becomes of a connection from an unknown address: the addresses that are let in, and the member's errors."""
    monkeypatch.setattr(group_listener, "RETRY_S", RETRY_S / 100)
    told, seen = Told(store), []
    ports = told.offer()
    try:
        ports.store.admit = seen.append
        told.listener.start(generation("a.1"))
        told.listener._find_others(generation("a.1"), ports)
        (admitting,) = told.started

        async def run():
            async with asyncio.timeout(DEADLINE_S):
                await admitting

        asyncio.run(run())
    finally:
        told.listener.let_go()
    return seen, told.broken


def test_members_are_let_in_once_the_store_names_them(monkeypatch):
    seen, broken = admitted(Store(StoreUnavailableError("not now"), Snapshot(1, ())), monkeypatch)
    assert len(seen) == 1
    assert broken == []


def test_a_bug_while_a_worker_waits_to_be_let_in_is_told(monkeypatch):
    bug = ValueError("a bug")
    assert admitted(Store(bug), monkeypatch) == ([], [bug])


def test_a_long_wait_is_logged_once_and_a_short_one_not_at_all(caplog, monkeypatch):
    monkeypatch.setattr(group_listener, "SAY_AFTER_S", 0.0)
    told = Told()

    async def story():
        told.listener.status("short")
        told.listener.status("")
        told.listener.status("1 of 2 nodes")
        told.listener.status("still 1 of 2 nodes")
        later = asyncio.Event()
        asyncio.get_running_loop().call_later(0.0, later.set)  # timers of one moment run in order
        await later.wait()
        told.listener.hush()

    asyncio.run(story())
    assert [record.getMessage() for record in caplog.records] == ["run 'run': still 1 of 2 nodes"]


def test_a_worker_of_the_round_before_leaves_nothing_in_the_store_of_the_next(told):
    port = free_port(ADDRESS)
    ports = told.listener.offer_ports(ADDRESS, port, serves_store=True, access=None)
    with StorePeer(port) as old:
        old.send(set_(b"key", b"old"))
        told.listener.start(generation("a.1", "b.1"))
        ports.store.start()
        with StorePeer(port) as worker:
            worker.send(check(b"key"))
            assert worker.read(1) == b"\x01"
