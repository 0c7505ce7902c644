"""What the node of rank 0 holds for all workers."""

from __future__ import annotations

import resource
import threading
from concurrent.futures import ThreadPoolExecutor
from queue import Queue

import pytest

from holdfast.rendezvous.hosting import Hosting

PATIENCE_S = 60.0


@pytest.fixture
def hosting():
    held = Hosting("127.0.0.1", serves_store=True)
    yield held
    held.close()


@pytest.mark.parametrize(("workers", "is_told"), [(64, False), (480, False), (481, True), (100_000, True)])
def test_a_job_that_is_too_large_for_the_hard_limit_is_told_at_its_start(
    hosting, caplog, monkeypatch, workers, is_told
):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1024))
    with caplog.at_level("WARNING"):
        hosting.expect(workers)
    told = (
        f"the job has {workers} workers, and the store at MASTER_PORT can serve 960 connections, of which torch opens "
        "2 or more for each worker: raise the hard limit of open files on this machine (ulimit -Hn), or let rank 0 "
        "serve the store (--store-host rank0)"
    )
    assert [record.getMessage() for record in caplog.records] == is_told * [told]


def test_the_store_of_rank_0_is_not_our_concern(caplog):
    hosting = Hosting("127.0.0.1", serves_store=False)
    hosting.expect(1_000_000)
    hosting.close()
    assert caplog.records == []


@pytest.mark.parametrize(("nodes", "most"), [(1, 960), (2, 928)])
def test_of_several_machines_none_may_have_all_connections(hosting, monkeypatch, nodes, most):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1024))
    hosting.expect(16, nodes)
    hosting.store.start()
    assert hosting.store._loop._address_max == most


def test_addresses_are_admitted_at_any_time(hosting):
    """Before the store answers, while it does, and when it is gone."""
    asked = []
    hosting.restrict(["10.0.0.1", "a-name"], lambda: asked.append(1))
    assert hosting.store.access.peers == {b"\x0a\0\0\1"}
    hosting.store.start()
    door, admitted = hosting.store._loop._door, Queue()
    admit = door.admit
    door.admit = lambda peers: admitted.put((admit(peers), door._peers))
    hosting.admit(["10.0.0.2"])
    assert admitted.get(timeout=PATIENCE_S) == (None, {b"\x0a\0\0\2"})
    hosting.close()
    hosting.admit(["10.0.0.3"])
    hosting.restrict(["10.0.0.3"])


def test_two_threads_may_close_it_at_once():
    """An agent that was asked to end, and its member, which had begun to seek another place."""
    hosting = Hosting("127.0.0.1", serves_store=True)
    hosting.store.start()
    stop = hosting.store.stop
    stopping, go_on = threading.Event(), threading.Event()

    def stop_slowly():
        stopping.set()
        assert go_on.wait(PATIENCE_S)
        stop()

    hosting.store.stop = stop_slowly
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(hosting.close)
        assert stopping.wait(PATIENCE_S)
        second = pool.submit(hosting.close)
        go_on.set()
        first.result(PATIENCE_S)
        second.result(PATIENCE_S)
    assert hosting.store is None
