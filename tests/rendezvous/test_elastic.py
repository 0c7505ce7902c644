"""The handler that an agent waits on: real stores on loopback, one thread for each node."""

from __future__ import annotations

import os
import select
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from holdfast.coordination.errors import StoreRefusedError
from holdfast.coordination.model import Put, Transaction
from holdfast.errors import ProcessFailure
from holdfast.errors.tree import InputError, PlatformError
from holdfast.rendezvous import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousGracefulExitError,
    RendezvousParameters,
    RendezvousTimeoutError,
    rendezvous_handler_registry,
    static_settings,
)
from holdfast.rendezvous.decision import RECORD_UNREADABLE
from holdfast.rendezvous.errors import JobFailedError
from holdfast.rendezvous.handover import Stopped
from holdfast.rendezvous.hosting import free_port
from holdfast.rendezvous.membership import Membership
from holdfast.rendezvous.records import Keys
from holdfast.settings import JobSettings

PATIENCE_S = 60.0

HOST = os.uname().nodename


class Nodes:
    """Handlers that meet at one endpoint, each used by a thread of its own."""

    def __init__(self, stack):
        self.endpoint = f"127.0.0.1:{free_port('127.0.0.1')}"
        self._meeting_port = free_port("127.0.0.1")
        self._stack = stack
        self._handlers = []  # in the order in which they were added
        self._threads = {}

    def add(self, nodes="2:2", run_id="run", max_restarts=0, workers=2, **config):
        # The first one serves the store.
        config = {"last_call_timeout": 0.01, "is_host": not self._handlers, **config}
        return self._add("c10d", nodes, run_id, max_restarts, workers, config)

    def add_rank(self, rank, size=2, run_id="run", max_restarts=0, workers=2, **config):
        """A node that was told its rank. That of rank 0 serves the store."""
        config = {"rank": rank, "meeting_port": self._meeting_port, **config}
        return self._add("static", f"{size}:{size}", run_id, max_restarts, workers, config)

    def _add(self, backend, nodes, run_id, max_restarts, workers, config):
        least, most = map(int, nodes.split(":"))
        handler = rendezvous_handler_registry.create_handler(
            RendezvousParameters(backend, self.endpoint, run_id, least, most, **{"close_timeout": 5, **config})
        )
        handler.bring(JobSettings(least, most, workers, role="trainer", max_restarts=max_restarts))
        self._threads[handler] = self._stack.enter_context(ThreadPoolExecutor(1))
        self._handlers.append(handler)
        return handler

    def meet(self, *handlers):
        """What each of them gets from its next rendezvous, which all of them seek at once."""
        return [future.result(PATIENCE_S) for future in self.seek(*handlers)]

    def seek(self, *handlers):
        return [self._threads[handler].submit(handler.next_rendezvous) for handler in handlers]

    def submit(self, handler, function, *args, **options):
        """Run something in the handler's thread."""
        return self._threads[handler].submit(function, *args, **options)

    def together(self, method, *handlers):
        futures = [self._threads[handler].submit(getattr(handler, method)) for handler in handlers]
        return [future.result(PATIENCE_S) for future in futures]

    def close(self):
        # The others first: who serves the store waits for them.
        for handler in reversed(self._handlers):
            self._threads[handler].submit(handler.leave).result(PATIENCE_S)


@pytest.fixture
def nodes():
    with ExitStack() as stack:
        made = Nodes(stack)
        try:
            yield made
        finally:
            made.close()


def until_over(handler):
    """Why the round is over, once it is: the descriptor says when to ask."""
    over = handler.round_over()
    return over.reason if over is not None else until_told(handler)


def until_told(handler):
    """As an agent does it: it sleeps before it asks."""
    deadline = time.monotonic() + PATIENCE_S
    over = None
    while over is None:
        assert select.select([handler.fileno()], [], [], deadline - time.monotonic())[0], "the round goes on"
        over = handler.round_over()
    assert over.may_finish is over.reason.startswith(("letting in ", f"{HOST} leaves: "))
    return over.reason


def a_failure(message="RuntimeError: no more data"):
    failure = ProcessFailure(local_rank=1, pid=4711, exitcode=1, error_file="")
    failure.message = f"Traceback (most recent call last):\n  ...\n{message}"
    return failure


def test_nodes_that_meet_have_ranks_and_share_a_master_and_a_store(nodes):
    first, second = nodes.meet(nodes.add(workers=2), nodes.add(workers=3))
    assert {first.rank, second.rank} == {0, 1}
    assert first.world_size == second.world_size == 2
    assert first.bootstrap_store_info == second.bootstrap_store_info
    assert first.bootstrap_store_info.master_addr == "127.0.0.1"
    assert (first.generation, first.restart_count) == (second.generation, second.restart_count) == (1, 0)
    assert first.nodes == second.nodes
    assert sorted(first.nodes) == [("trainer", 2), ("trainer", 3)]
    first.store.set("greeting", "hello")
    assert second.store.get("greeting") == b"hello"


def test_a_node_gets_the_rank_that_it_asks_for(nodes):
    last, first = nodes.meet(nodes.add(rank=1), nodes.add(rank=0))
    assert (first.rank, last.rank) == (0, 1)


def test_a_failure_ends_the_round_on_every_node_and_the_next_one_counts_it(nodes):
    a, b = nodes.add(max_restarts=1), nodes.add(max_restarts=1)
    nodes.meet(a, b)
    assert a.round_over() is None
    a.report_failure(1, a_failure())
    assert until_over(a) == until_over(b)
    assert "no more data" in until_over(b)
    one, two = nodes.meet(a, b)
    assert (one.generation, one.restart_count) == (two.generation, two.restart_count) == (2, 1)
    assert not one.store.check(["greeting"])


def test_a_stop_that_comes_after_the_agent_has_stopped_is_not_for_the_next_round(nodes):
    a, b = nodes.add(max_restarts=1), nodes.add(max_restarts=1)
    nodes.meet(a, b)
    b.report_failure(3, a_failure())
    until_over(b)
    until_over(a)
    again = nodes.seek(a, b)
    a._bridge.news.tell(Stopped(1, "the last round is broken", may_finish=False))
    assert [seeking.result(PATIENCE_S).generation for seeking in again] == [2, 2]
    assert a.round_over() is None


def test_generations_that_are_broken_as_they_start_leave_nobody_behind(nodes):
    """Every start is followed by a stop at once, mostly before the agent's thread is awake."""
    handlers = [nodes.add("1:4", last_call_timeout=0.001) for _ in range(4)]
    nodes.meet(handlers[0])  # the first may be alone at first: others are let in as they come
    rounds = 40

    def run(handler, *, is_in):
        generation = 1 if is_in else 0
        while generation < rounds:
            if is_in:
                until_told(handler)
            is_in = True
            generation = handler.next_rendezvous().generation
        return generation

    handlers[0].announce_leave("to break every generation that it is in")
    running = [nodes.submit(handler, run, handler, is_in=handler is handlers[0]) for handler in handlers]
    assert all(each.result(PATIENCE_S) >= rounds for each in running)


def test_when_no_restart_is_left_every_node_learns_the_first_failure(nodes):
    a, b = nodes.add(), nodes.add()
    nodes.meet(a, b)
    b.report_failure(3, a_failure())
    until_over(a)
    for seeking in nodes.seek(a, b):
        with pytest.raises(JobFailedError) as failed:
            seeking.result(PATIENCE_S)
        assert (failed.value.failure.rank, failed.value.failure.pid) == (3, 4711)
        assert "no more data" in failed.value.failure.traceback
    assert nodes.together("shutdown", b, a) == [True, True]


def test_the_end_waits_for_all(nodes):
    a, b = nodes.add(), nodes.add()
    nodes.meet(a, b)
    with pytest.raises(TimeoutError, match=rf"not done after 0.2 s: {os.uname().nodename} \(rank [01]\)"):
        a.wait_for_end(0.2)
    with ThreadPoolExecutor(2) as pool:
        ends = [pool.submit(handler.wait_for_end, PATIENCE_S) for handler in (a, b)]
        assert [end.result(PATIENCE_S) for end in ends] == [True, True]
    assert nodes.together("shutdown", b, a) == [True, True]


def test_a_node_that_is_done_is_needed_again_when_another_fails(nodes):
    a, b = nodes.add(max_restarts=1), nodes.add(max_restarts=1)
    nodes.meet(a, b)
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(a.wait_for_end, PATIENCE_S)
        b.report_failure(0, a_failure())
        assert ended.result(PATIENCE_S) is False
    assert [info.restart_count for info in nodes.meet(a, b)] == [1, 1]


def test_a_newcomer_is_let_in_and_spends_no_restart(nodes):
    a, b, c = nodes.add("2:3"), nodes.add("2:3"), nodes.add("2:3")
    before = {info.rank: handler for handler, info in zip((a, b), nodes.meet(a, b), strict=True)}
    (joining,) = nodes.seek(c)
    assert until_over(a).startswith("letting in ")
    assert until_over(b) == until_over(a)
    again = nodes.meet(before[0], before[1])
    assert [info.rank for info in (*again, joining.result(PATIENCE_S))] == [0, 1, 2]
    assert {info.restart_count for info in again} == {0}
    assert {info.world_size for info in again} == {3}


def until_there(info, count):
    """Wait until so many nodes are in the group."""
    store, prefix = info.store._store, Keys("run").nodes
    snapshot = store.get_prefix(prefix)
    there = {entry.key for entry in snapshot.entries}
    with store.watch(prefix, snapshot.revision + 1, PATIENCE_S) as changes:
        while len(there) != count:
            for change in next(changes).changes:
                there.discard(change.key) if change.entry is None else there.add(change.key)


def test_a_spare_steps_in_when_a_node_is_lost(nodes):
    a, b, spare = nodes.add(), nodes.add(), nodes.add()
    info, _ = nodes.meet(a, b)
    (waiting,) = nodes.seek(spare)
    until_there(info, 3)
    assert a.num_nodes_waiting() + b.num_nodes_waiting() <= 1, "only the leader counts"
    nodes.together("leave", b)
    assert until_over(a).startswith("lost ")
    (info,) = nodes.meet(a)
    assert (info.world_size, waiting.result(PATIENCE_S).rank) == (2, 1)


def test_a_spare_that_was_not_needed_leaves_with_success(nodes):
    a, b, spare = nodes.add(), nodes.add(), nodes.add()
    info, _ = nodes.meet(a, b)
    (waiting,) = nodes.seek(spare)
    until_there(info, 3)
    with ThreadPoolExecutor(2) as pool:
        ends = [pool.submit(handler.wait_for_end, PATIENCE_S) for handler in (a, b)]
        assert [end.result(PATIENCE_S) for end in ends] == [True, True]
    with pytest.raises(RendezvousGracefulExitError):
        waiting.result(PATIENCE_S)


def test_too_few_nodes_are_waited_for_and_then_given_up(nodes):
    with pytest.raises(RendezvousTimeoutError, match=r"only 1 of 2 nodes joined within 0.3 s"):
        nodes.meet(nodes.add(join_timeout=0.3))


def test_a_store_that_nobody_serves_is_waited_for_and_then_given_up(nodes):
    with pytest.raises(RendezvousTimeoutError, match=r"the store at 127.0.0.1:\d+ could not be reached for 0.3 s"):
        nodes.meet(nodes.add(join_timeout=0.3, is_host="false"))


def test_the_loss_of_the_store_is_the_end_and_the_line_names_etcd(nodes):
    host = nodes.add()
    (alone,) = nodes.seek(host)
    client = nodes.add(is_host="false")
    nodes.meet(client)
    alone.result(PATIENCE_S)
    nodes.together("leave", host)
    until_over(client)
    with pytest.raises(RendezvousConnectionError, match=r"was lost with the node that served it.*--rdzv-backend etcd"):
        nodes.meet(client)


def test_a_run_that_has_ended_cannot_be_joined(nodes):
    a, b = nodes.add(), nodes.add()
    nodes.meet(a, b)
    until_closed = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        closing = pool.submit(lambda: (b.set_closed(), until_closed.set()))
        assert until_closed.wait(PATIENCE_S)
        closing.result(PATIENCE_S)
    assert b.is_closed()
    assert "closed the rendezvous" in until_over(a)
    with pytest.raises(RendezvousClosedError, match=r"'run' has already ended \(closed: .*choose another --rdzv-id"):
        nodes.meet(nodes.add())
    with pytest.raises(RendezvousClosedError, match="closed the rendezvous"):
        nodes.meet(a)


def test_why_a_node_cannot_go_on_is_told_to_the_others(nodes):
    a, b = nodes.add(), nodes.add()
    nodes.meet(a, b)
    b.explain("node7: cannot start 'train.py': Permission denied")
    with ThreadPoolExecutor(1) as pool:
        leaving = pool.submit(b.shutdown)
        assert until_over(a) == "node7: cannot start 'train.py': Permission denied"
        leaving.result(PATIENCE_S)


def test_what_nobody_can_read_costs_a_round_at_most(nodes):
    """Records that somebody else wrote: a word that the generation is broken goes away, a generation is stopped."""
    a, b = nodes.add(), nodes.add()
    (info, _) = nodes.meet(a, b)
    nonsense = tuple(Put(key, b"nonsense\xff") for key in (Keys("run").broken, Keys("run").generation))
    info.store._store.transact(Transaction((), nonsense))
    assert [until_over(handler) for handler in (a, b)] == [RECORD_UNREADABLE] * 2
    again = nodes.meet(a, b)
    assert [(each.generation, each.restart_count) for each in again] == [(2, 0)] * 2


def test_a_handler_that_has_left_may_be_asked_again(nodes):
    a, b = nodes.add(), nodes.add()
    nodes.meet(a, b)
    nodes.together("leave", b, a)
    a.set_closed()
    a.leave()
    assert a.shutdown()
    a.round_over()


def test_the_lease_tells_until_when_workers_may_live(nodes):
    a, b = nodes.add(keep_alive_interval=0.2), nodes.add()
    nodes.meet(a, b)
    renewed = threading.Semaphore(0)
    fences = []

    def fence(at):
        fences.append(at)
        renewed.release()

    a.on_lease(fence)
    for _ in range(4):
        assert renewed.acquire(timeout=PATIENCE_S)
    assert fences == sorted(fences)
    assert fences[-1] > fences[0]
    a.on_lease(None)


def test_two_runs_at_one_endpoint_do_not_meet(nodes):
    one, two = nodes.add(run_id="one/a"), nodes.add(run_id="one/b")
    waiting = nodes.seek(one, two)
    others = nodes.add(run_id="one/a"), nodes.add(run_id="one/b")
    assert [info.world_size for info in nodes.meet(*others)] == [2, 2]
    assert [future.result(PATIENCE_S).world_size for future in waiting] == [2, 2]


class Oops(Exception):  # noqa: N818 - a bug, as any
    pass


def fail_in_step(handler):
    """The next step of its member fails, whoever takes it: the agent, a timer, or an answer of the store."""

    def step(now):
        raise Oops(now)

    handler._bridge.session._membership.step = step


def fail_in_an_answer(handler):
    def kept(*_):
        raise Oops

    handler._bridge.session._membership.kept = kept


def fail_in_the_thread(handler):
    """SystemExit is what a task cannot keep to itself: it ends the loop."""

    def leave():
        raise SystemExit("a plug-in has left")

    handler._bridge._thread.tell(leave)


@pytest.mark.parametrize("fail", [fail_in_step, fail_in_an_answer, fail_in_the_thread])
def test_a_bug_in_the_member_reaches_the_agent_and_the_other_nodes(nodes, fail):
    a, b = nodes.add(keep_alive_interval=1.0), nodes.add(keep_alive_interval=1.0)
    nodes.meet(a, b)
    fail(b)
    assert until_told(b).startswith("bug in holdfast: ")
    with pytest.raises(PlatformError, match=r"bug in holdfast: (Oops|SystemExit)") as bug:
        nodes.meet(b)
    assert isinstance(bug.value.__cause__, (Oops, SystemExit))
    b.explain("node7: holdfast has a bug")
    nodes.together("shutdown", b)
    # Where nothing can be said any more, the connection breaks or the lease runs out.
    assert until_over(a) == ("node7: holdfast has a bug" if fail is not fail_in_the_thread else f"lost {HOST}")


@pytest.mark.parametrize("method", ["report_failure", "wait_for_end", "announce_leave", "set_closed"])
def test_a_bug_that_shows_when_the_agent_says_something_ends_its_wait(nodes, method):
    a, b = nodes.add(), nodes.add()
    nodes.meet(a, b)
    fail_in_step(b)
    args = {"report_failure": (0, a_failure()), "wait_for_end": (PATIENCE_S,), "announce_leave": ("SIGTERM",)}
    assert not getattr(b, method)(*args.get(method, ()))
    assert until_over(b).startswith("bug in holdfast: Oops")


def test_a_bug_while_a_place_is_sought_ends_the_wait(nodes, monkeypatch):
    monkeypatch.setattr(Membership, "seek", lambda *_: int("no number"))
    with pytest.raises(PlatformError, match=r"bug in holdfast: ValueError: .*no number"):
        nodes.meet(nodes.add())


def test_a_member_with_a_bug_renews_its_lease_no_more(nodes):
    """Should its agent be stuck, too, the keeper kills the workers, and the others go on."""
    a, b = nodes.add(keep_alive_interval=0.1), nodes.add(keep_alive_interval=0.1)
    nodes.meet(a, b)
    fail_in_an_answer(b)
    until_told(b)
    assert until_over(a) == f"lost {HOST}"


def test_what_nobody_catches_in_the_loop_is_told_and_is_not_the_end(nodes, caplog):
    a, b = nodes.add(), nodes.add()
    nodes.meet(a, b)
    done = threading.Event()
    a._bridge.tell(int, "no number")
    a._bridge.tell(done.set)
    assert done.wait(PATIENCE_S)
    assert "bug in holdfast; the job continues" in caplog.text
    assert "ValueError" in caplog.text
    assert a.round_over() is None


def test_a_failure_with_text_that_no_store_takes_is_told(nodes):
    a, b = nodes.add(max_restarts=1), nodes.add(max_restarts=1)
    nodes.meet(a, b)
    failure = a_failure("RuntimeError: no file /data/\udcff")
    failure.log_file = "/logs/\udcff/0/stderr.log"
    a.report_failure(1, failure)
    assert "/data/\\udcff" in until_over(b)
    assert [info.after.cause.log_file for info in nodes.meet(a, b)] == ["/logs/\\udcff/0/stderr.log"] * 2


def test_the_host_stays_for_the_others_though_it_loses_the_connection_to_itself(nodes):
    """As a busy machine may: the others have yet to read the end."""
    host, other = nodes.add(), nodes.add()
    nodes.meet(host, other)
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(host.wait_for_end, PATIENCE_S)
        assert other.wait_for_end(PATIENCE_S)
        assert done.result(PATIENCE_S)
    thread, store = host._bridge._thread, host._bridge.session.store
    watches = threading.Event()
    follow = store.watch

    def watch(*args):
        watches.set()
        return follow(*args)

    async def lose_connection():
        store._connection._break("it does not answer")

    thread.tell(setattr, store, "watch", watch)
    thread.call(lose_connection())
    leaving = nodes.submit(host, host.shutdown)
    assert watches.wait(PATIENCE_S), "it does not wait for the others"
    thread.call(lose_connection())
    assert other._bridge.ask(other._bridge.session.store.get(Keys("run").end)) is not None, "nobody serves any more"
    assert not leaving.done()
    assert nodes.together("shutdown", other) == [True]
    leaving.result(PATIENCE_S)


@pytest.mark.parametrize("error", [StoreRefusedError("no"), Oops("a bug")])
def test_a_done_node_that_breaks_has_succeeded_unless_by_a_bug(nodes, error, caplog):
    a, b = nodes.add(), nodes.add()
    nodes.meet(a, b)
    with pytest.raises(TimeoutError):
        a.wait_for_end(0.2)
    assert a._bridge.session._membership.me.is_done_published
    a._bridge.tell(a._bridge.session._listener.member.break_down, error)
    until_told(a)
    assert a.wait_for_end(PATIENCE_S) is isinstance(error, StoreRefusedError)
    assert ("the end of the job could not be read: no" in caplog.text) is isinstance(error, StoreRefusedError)


# Nodes that were told their ranks


def test_nodes_with_given_ranks_share_what_all_nodes_share(nodes):
    last, first = nodes.add_rank(1, run_id="one", workers=3), nodes.add_rank(0, run_id="another", workers=1)
    for handler, program in ((last, "train.py"), (first, "eval.py")):
        handler.identify(program, "")
    theirs, ours = nodes.meet(last, first)
    assert (ours.rank, theirs.rank, ours.world_size) == (0, 1, 2)
    assert ours.nodes == theirs.nodes == [("trainer", 1), ("trainer", 3)]
    for info in (ours, theirs):
        assert f"{info.bootstrap_store_info.master_addr}:{info.bootstrap_store_info.master_port}" == nodes.endpoint
    assert (f"127.0.0.1:{ours.hosting.port}", theirs.hosting) == (nodes.endpoint, None)
    assert (first.get_backend(), first.get_run_id(), last.get_run_id()) == ("static", "another", "one")
    ours.store.set("greeting", "hello")
    assert theirs.store.get("greeting") == b"hello"


def test_a_failure_of_one_node_with_a_given_rank_restarts_all_at_the_same_port(nodes):
    a, b = nodes.add_rank(0, max_restarts=1), nodes.add_rank(1, max_restarts=1)
    before = nodes.meet(a, b)
    b.report_failure(3, a_failure())
    assert until_over(a) == until_over(b)
    after = nodes.meet(a, b)
    assert [info.restart_count for info in after] == [1, 1]
    assert {info.bootstrap_store_info.master_port for info in (*before, *after)} == {int(nodes.endpoint.split(":")[1])}


def test_a_node_with_another_number_of_nodes_is_not_let_in(nodes):
    a, b, other = nodes.add_rank(0), nodes.add_rank(1), nodes.add_rank(2, size=3)
    nodes.meet(a, b)
    (seeking,) = nodes.seek(other)
    with pytest.raises(InputError, match="--node-rank 2: this node is not let in: --nnodes is 3 here and 2 on another"):
        seeking.result(PATIENCE_S)
    assert (a.round_over(), b.round_over()) == (None, None)


@pytest.mark.parametrize("has_trust", [True, False])
def test_nodes_that_do_not_trust_each_other_share_no_stacks(nodes, has_trust, monkeypatch):
    monkeypatch.setattr(static_settings, "is_loopback", lambda _: has_trust)
    handlers = [nodes.add_rank(rank) for rank in (0, 1)]
    assert [handler.shares_stacks for handler in handlers] == [has_trust] * 2
    nodes.meet(*handlers)
