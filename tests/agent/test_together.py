"""An agent whose rendezvous knows more than torch's: the job's restarts, its end, and failures of other nodes."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import signpost
from signpost import tell

from holdfast.agent import LocalElasticAgent, WorkerSpec, WorkerState, inspection, survivors
from holdfast.agent.core_model import Phase
from holdfast.errors import ChildFailedError
from holdfast.processes import DefaultLogsSpecs, SignalException
from holdfast.processes.outcome import Outcome
from holdfast.rendezvous import RendezvousHandler, RendezvousInfo, RendezvousStoreInfo
from holdfast.rendezvous.errors import JobFailedError
from holdfast.rendezvous.handler import RoundOver, StacksOccasion
from holdfast.rendezvous.hosting import Hosting
from holdfast.rendezvous.records import Failure, StacksRequest
from holdfast.rendezvous.store import LocalStore
from holdfast.stacks.wire import REFUSED, RankStacks, decode, encode


class Together(RendezvousHandler):
    """What other nodes do, as a script says: rounds by restart count, and how each ends."""

    needs_polling = False
    counts_restarts = True

    def __init__(self, *rounds):
        self.rounds = list(rounds)
        self.number = 0
        self.told = []
        self.ends = []
        self.over = None
        self.news, self._news = os.pipe()
        self.brought = None
        self.announced = []
        self.fence = None

    def close(self):
        os.close(self.news)
        os.close(self._news)

    def get_backend(self):
        return "together"

    def get_run_id(self):
        return "run"

    def bring(self, settings):
        self.brought = (settings.role, settings.nproc_per_node, settings.max_restarts)

    def next_rendezvous(self):
        restarts = self.rounds.pop(0)
        if isinstance(restarts, Exception):
            raise restarts
        self.over = None
        self.number += 1
        return RendezvousInfo(
            None, 1, 3, RendezvousStoreInfo("10.0.0.1", 1), restarts, self.number, [("a", 3), ("b", 2), ("b", 1)]
        )

    def fileno(self):
        return self.news

    def round_over(self):
        return self.over

    def end_round(self, reason, *, may_finish=False):
        self.over = RoundOver(reason, may_finish=may_finish)
        os.write(self._news, b"x")

    def announce_leave(self, reason):
        self.announced.append(reason)

    def on_lease(self, fence):
        self.fence = fence

    def report_failure(self, rank, failure, others=0, node_rank=None):
        self.told.append((rank, failure.exitcode))

    def wait_for_end(self, timeout_s):
        outcome = self.ends.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def is_closed(self):
        return False

    def set_closed(self):
        pass

    def num_nodes_waiting(self):
        return 0

    def shutdown(self):
        return True


@pytest.fixture
def together(tmp_path):
    """Makes an agent of two workers that run a script, and its rendezvous with the rounds that are given."""
    made = []

    def make(script, *rounds, max_restarts=5):
        handler = Together(*rounds)
        made.append(handler)
        spec = WorkerSpec("b", 2, handler, entrypoint=sys.executable, args=("-c", script), max_restarts=max_restarts)
        return LocalElasticAgent(spec, DefaultLogsSpecs(log_dir=str(tmp_path / "logs")), shutdown_timeout=60), handler

    yield make
    for handler in made:
        handler.close()


def elsewhere(rank=7, pid=4711):
    return JobFailedError(
        "no restart left", Failure("n1", "node9", rank, 1, pid, 3, "ValueError: bad", 1e9, "", "Trace\nback")
    )


def test_ranks_and_restarts_are_the_jobs(together, post):
    script = f"""
import os
line = " ".join(os.environ[k] for k in ("RANK", "WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE", "GROUP_RANK",
    "TORCHELASTIC_RESTART_COUNT", "HOLDFAST_GENERATION", "LOCAL_RANK"))
fd = os.open({post.path!r}, os.O_WRONLY); os.write(fd, line.encode() + b"\\n")
"""
    agent, handler = together(script, 4)
    handler.ends = [True]
    assert agent.run().state is WorkerState.SUCCEEDED
    assert handler.brought == ("b", 2, 5)
    assert sorted(post.lines(2)) == ["3 6 0 3 1 4 1 0", "4 6 1 3 1 4 1 1"]


def test_a_failure_is_told_and_the_job_decides(together):
    agent, handler = together("import os; os._exit(3 if os.environ['HOLDFAST_GENERATION'] == '1' else 0)", 0, 1)
    handler.ends = [True]
    assert agent.run().state is WorkerState.SUCCEEDED
    assert {code for _, code in handler.told} == {3}
    assert {rank for rank, _ in handler.told} <= {3, 4}
    assert agent._restart_count() == 1


def test_the_others_hear_of_a_failure_before_the_workers_here_have_stopped(together, post, tmp_path):
    gate = str(tmp_path / "gate")
    os.mkfifo(gate)
    script = f"""
import os, signal, time
if os.environ["LOCAL_RANK"] == "0":
    signal.signal(signal.SIGTERM, lambda *_: open({gate!r}).read() and os._exit(0))
    fd = os.open({post.path!r}, os.O_WRONLY); os.write(fd, b"ready\\n")
    while True:
        time.sleep(0.1)  # not pause: it may begin just after the signal
else:
    open({gate!r}).read()
    os._exit(3)
"""
    agent, handler = together(script, 0, elsewhere(4, -1))

    def told(rank, failure, _others=0, _node_rank=None):
        handler.told.append(rank)
        if len(handler.told) == 1:  # it is told again with all that is known at the end
            tell(gate, "you may stop now")

    handler.report_failure = told
    report_ready = post.line

    def start(group):
        ids = LocalElasticAgent._start_workers(agent, group)
        report_ready()
        tell(gate, "you may fail now")
        return ids

    agent._start_workers = start
    assert agent.run().is_failed()
    assert handler.told[0] == 4


def test_when_the_round_is_over_the_workers_start_again(together, post):
    script = f"""
import os, signal
fd = os.open({post.path!r}, os.O_WRONLY); os.write(fd, b"%d\\n" % os.getpid())
os.environ["HOLDFAST_GENERATION"] == "2" or signal.pause()
"""
    agent, handler = together(script, 0, 0)
    handler.ends = [True]
    started = LocalElasticAgent._start_workers

    def start(group):
        ids = started(agent, group)
        post.lines(2)
        if handler.number == 1:
            handler.end_round("letting in node9")
        return ids

    agent._start_workers = start
    assert agent.run().state is WorkerState.SUCCEEDED
    assert agent._restart_count() == 0


def test_a_node_that_had_succeeded_starts_again_if_the_job_cannot_end(together):
    agent, handler = together("", 0, 1)
    handler.ends = [False, True]
    assert agent.run().state is WorkerState.SUCCEEDED
    assert handler.number == 2


def test_a_node_that_is_done_does_not_wait_for_ever(together, caplog):
    agent, handler = together("", 0)
    handler.ends = [TimeoutError("not done after 300 s: node9 (rank 0)")]
    assert agent.run().state is WorkerState.SUCCEEDED
    assert "left the exit barrier: not done after 300 s: node9 (rank 0)\n" in caplog.text


def test_a_node_that_serves_the_workers_store_says_what_its_end_means(together, caplog):
    agent, handler = together("", 0)
    meet = handler.next_rendezvous

    def serve():
        info = meet()
        info.rank, info.hosting = 0, Hosting("127.0.0.1", serves_store=True)
        return info

    handler.next_rendezvous = serve
    handler.ends = [TimeoutError("not done after 300 s: node9 (rank 1)")]
    assert agent.run().state is WorkerState.SUCCEEDED
    assert (
        "node9 (rank 1); this node serves the workers' store, so workers that still use it will fail\n" in caplog.text
    )


def test_a_failure_elsewhere_is_shown_as_it_was_told(together):
    agent, handler = together("import signal; signal.pause()", 0, elsewhere())
    started = LocalElasticAgent._start_workers

    def start(group):
        ids = started(agent, group)
        handler.end_round("rank 7 on node9 failed")
        return ids

    agent._start_workers = start
    result = agent.run()
    assert agent.get_worker_group().state is WorkerState.FAILED
    (failure,) = result.failures.values()
    assert list(result.failures) == [7]
    assert (failure.host, failure.exitcode, failure.message) == ("node9", 3, "Trace\nback")
    text = str(ChildFailedError("train.py", result.failures))
    assert "node9" in text
    assert "rank      : 7 (local_rank: 1)" in text
    assert "exitcode  : 3 (pid: 4711)" in text


def test_the_workers_of_a_node_that_lost_its_lease_are_killed_and_it_meets_again(together, post):
    script = f"""
import os, signal
fd = os.open({post.path!r}, os.O_WRONLY); os.write(fd, b"%d\\n" % os.getpid())
os.environ["HOLDFAST_GENERATION"] == "2" or signal.pause()
"""
    agent, handler = together(script, 0, 0)
    handler.ends = [True]
    started = LocalElasticAgent._start_workers

    def start(group):
        ids = started(agent, group)
        post.lines(2)
        if handler.number == 1:
            handler.fence(0.0)
        return ids

    agent._start_workers = start
    assert agent.run().state is WorkerState.SUCCEEDED
    assert handler.number == 2
    assert handler.told == []


LISTENING = """
import os, signal, time
from holdfast import worker
signal.signal(signal.SIGTERM, lambda *_: say("SIGTERM"))
def say(text):
    fd = os.open({path!r}, os.O_WRONLY)
    os.write(fd, f"{{text}}\\n".encode())
    os.close(fd)
if worker.generation() == 1:
    done = []
    worker.on_stop(lambda reason: (say(f"saved: {{reason}}"), done.append(1), os.kill(os.getpid(), signal.SIGUSR1)))
    signal.signal(signal.SIGUSR1, lambda *_: None)
    say("ready")
    while not done:
        time.sleep(0.1)  # not pause: it may begin just after the signal
"""


def test_workers_that_listen_may_finish_when_nodes_come_or_go(together, post):
    agent, handler = together(LISTENING.format(path=post.path), 0, 0)
    handler.ends = [True]
    started = LocalElasticAgent._start_workers

    def start(group):
        ids = started(agent, group)
        if handler.number == 1:
            assert post.lines(2) == ["ready", "ready"]
            handler.end_round("letting in node9", may_finish=True)
        return ids

    agent._start_workers = start
    assert agent.run().state is WorkerState.SUCCEEDED
    assert post.lines(2) == ["saved: letting in node9"] * 2
    assert handler.number == 2


def test_workers_that_do_not_listen_are_stopped_at_once(together, post):
    script = f"""
import os, signal
fd = os.open({post.path!r}, os.O_WRONLY); os.write(fd, b"ready\\n")
os.environ["HOLDFAST_GENERATION"] == "2" or signal.pause()
"""
    agent, handler = together(script, 0, 0)
    agent._stop_grace_s = 1e6
    handler.ends = [True]
    started = LocalElasticAgent._start_workers

    def start(group):
        ids = started(agent, group)
        post.lines(2)
        if handler.number == 1:
            handler.end_round("letting in node9", may_finish=True)
        return ids

    agent._start_workers = start
    assert agent.run().state is WorkerState.SUCCEEDED


def interrupted(agent, look):
    """Lets the agent be asked to end when it waits for its workers for the first time."""
    wait = agent._wait_for_change

    def wait_for_change(group):
        look()
        agent._wait_for_change = wait
        os.kill(os.getpid(), signal.SIGTERM)
        wait(group)

    agent._wait_for_change = wait_for_change


def test_an_agent_that_is_asked_to_end_says_so_and_lets_its_workers_finish(together, post):
    agent, handler = together(LISTENING.format(path=post.path), 0)
    interrupted(agent, lambda: post.lines(2))
    with pytest.raises(SignalException):
        agent.run()
    assert handler.announced == ["SIGTERM"]
    assert post.lines(2) == ["saved: the agent got SIGTERM"] * 2


def test_workers_that_listen_before_all_have_started_may_finish_too(together, post):
    """A worker of a warm start can be ready long before a busy agent knows that its set has started."""
    agent, handler = together(LISTENING.format(path=post.path), 0)
    begin = agent._inspection.begin

    def ask_to_end(*attempt):
        post.lines(2)
        os.kill(os.getpid(), signal.SIGTERM)
        begin(*attempt)

    agent._inspection.begin = ask_to_end
    with pytest.raises(SignalException):
        agent.run()
    assert handler.announced == ["SIGTERM"]
    assert post.lines(2) == ["saved: the agent got SIGTERM"] * 2


LISTENED = """
import os, signal
from holdfast import worker
if os.environ["LOCAL_RANK"] == "0":
    worker.stop_requested()
else:
    fd = os.open({path!r}, os.O_WRONLY); os.write(fd, b"ready\\n")
    signal.pause()
"""


def test_a_worker_that_listened_and_has_ended_delays_no_stop(together, post):
    agent, handler = together(LISTENED.format(path=post.path), 0)
    agent._stop_grace_s = 1e6

    def until_one_has_ended():
        assert post.line() == "ready"
        while len(agent._pcontext.running()) > 1:
            select.select([agent._pcontext], [], [])
            agent._pcontext.wait(0)

    interrupted(agent, until_one_has_ended)
    with pytest.raises(SignalException):
        agent.run()
    assert handler.announced == ["SIGTERM"]


def test_no_page_stays_behind(together, post):
    agent, _ = together(LISTENING.format(path=post.path), 0)
    agent._stop_grace_s = agent._shutdown_timeout = 0
    directories = []

    def look():
        post.lines(2)
        directories.append(agent._pages._directory)
        assert len(os.listdir(directories[0])) == 6, "two pages, two pipes, two files for stacks"

    interrupted(agent, look)
    with pytest.raises(SignalException):
        agent.run()
    assert not os.path.exists(directories[0])


SLOW = """
import os, signal, time
def say(text):
    fd = os.open({path!r}, os.O_WRONLY)
    os.write(fd, f"{{text}}\\n".encode())
    os.close(fd)
def save(*_):
    if os.environ["LOCAL_RANK"] == "1":
        os._exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    say("saving")
    open({gate!r}).read()
    say("saved")
    os._exit(0)
signal.signal(signal.SIGTERM, save)
if os.environ["LOCAL_RANK"] == {failing!r}:
    open({gate!r}).read()
    os._exit(3)
say("ready")
while True:
    time.sleep(0.1)  # not pause: it may begin just after the signal
"""


@pytest.fixture
def gate(tmp_path):
    path = str(tmp_path / "gate")
    os.mkfifo(path)
    return path


def test_a_node_keeps_its_own_failure_while_its_other_workers_stop(together, post, gate):
    """The others hear of it at once, and the word of the broken round is back before the workers here have ended."""
    agent, handler = together(SLOW.format(path=post.path, gate=gate, failing="1"), 0)

    def told(rank, failure, _others=0, _node_rank=None):
        if not handler.told:
            handler.told.append((rank, failure.pid))
            handler.end_round("rank 4 failed")
            handler.rounds.append(elsewhere(rank, failure.pid))

    handler.report_failure = told

    def play():
        assert post.line() == "ready"
        tell(gate, "fail")
        assert post.line() == "saving"
        tell(gate, "go on")

    with ThreadPoolExecutor(1) as pool:
        played = pool.submit(play)
        result = agent.run()
        played.result()
    assert result.is_failed()
    assert [(rank, failure.pid) for rank, failure in result.failures.items()] == handler.told
    assert result.terminated == {3: 0}
    path = agent._event_log_path()
    events = [json.loads(line) for line in Path(path).read_text().splitlines()]
    assert sorted(e["metadata"]["state"] for e in events if e["source"] == "WORKER") == ["FAILED", "TERMINATED"]


def test_the_first_signal_does_not_hurry_workers_that_are_being_stopped(together, post, gate):
    agent, handler = together(SLOW.format(path=post.path, gate=gate, failing=""), 0, 0)

    def play():
        assert post.lines(2) == ["ready"] * 2
        handler.end_round("lost node9")
        assert post.line() == "saving"
        announced = threading.Event()
        handler.announce_leave = lambda _: announced.set()
        os.kill(os.getpid(), signal.SIGTERM)
        assert announced.wait(60)
        tell(gate, "go on")

    with ThreadPoolExecutor(1) as pool:
        played = pool.submit(play)
        with pytest.raises(SignalException):
            agent.run()
        played.result()
    assert post.line() == "saved"


def test_the_end_of_a_round_is_read_while_workers_stop_for_another_reason(together, post, gate):
    """Unread, it would keep the descriptor readable, and the agent awake until the workers are gone."""
    agent, handler = together(SLOW.format(path=post.path, gate=gate, failing="1"), 0, elsewhere())
    was_read = threading.Event()

    def round_over():
        if agent._state.phase is Phase.FAILING:
            was_read.set()
        return handler.over

    handler.round_over = round_over

    def play():
        assert post.line() == "ready"
        tell(gate, "fail")
        assert post.line() == "saving"
        handler.end_round("lost node9")
        assert was_read.wait(60)
        tell(gate, "go on")

    with ThreadPoolExecutor(1) as pool:
        played = pool.submit(play)
        assert agent.run().is_failed()
        played.result()


@pytest.mark.parametrize("code", [0, 3])
def test_a_signal_that_comes_as_the_last_worker_is_gone_ends_the_agent_like_any_other(
    together, post, monkeypatch, code
):
    """The workers listened for a stop, but nobody is left to ask."""
    script = f"import os\nfrom holdfast import worker\nworker.stop_requested()\nos._exit({code})"
    agent, handler = together(script, 0)
    collect = Outcome.collect

    def collect_and_interrupt(outcome, return_value):
        monkeypatch.setattr(Outcome, "collect", collect)
        os.kill(os.getpid(), signal.SIGTERM)
        return collect(outcome, return_value)

    monkeypatch.setattr(Outcome, "collect", collect_and_interrupt)
    with pytest.raises(SignalException):
        agent.run()
    assert handler.announced == ["SIGTERM"]


def test_a_worker_that_fails_when_it_is_asked_to_end_is_told_of(together, post, caplog):
    script = LISTENING.format(path=post.path).replace('say(f"saved: {reason}")', "os._exit(5)")
    agent, handler = together(script, 0, 0)
    handler.ends = [True]
    started = LocalElasticAgent._start_workers

    def start(group):
        ids = started(agent, group)
        if handler.number == 1:
            post.lines(2)
            handler.end_round("letting in node9", may_finish=True)
        return ids

    agent._start_workers = start
    assert agent.run().state is WorkerState.SUCCEEDED
    assert "while the workers were finishing, rank" in caplog.text
    assert handler.told == []


# Where the workers were


def noted(agent, name):
    events = [json.loads(line) for line in Path(agent._event_log_path()).read_text().splitlines()]
    return [event["metadata"]["details"] for event in events if event["name"] == f"holdfast.{name}"]


STANDING = """
import os, sys, time
from signpost import tell
def load():
    tell({path!r}, "in load")
    while True:
        time.sleep(600)
os.environ["HOLDFAST_GENERATION"] == "2" or load()
"""


@pytest.mark.parametrize("may_finish", [False, True])
def test_workers_that_are_stopped_for_a_failure_elsewhere_are_asked_where_they_are(
    together, post, may_finish, monkeypatch
):
    monkeypatch.setattr(survivors, "ASK_MAX_S", 30.0)
    monkeypatch.setenv("PYTHONPATH", os.path.dirname(signpost.__file__))
    agent, handler = together(STANDING.format(path=post.path), 0, 0)
    handler.ends = [True]
    started = LocalElasticAgent._start_workers

    def start(group):
        ids = started(agent, group)
        if handler.number == 1:
            post.lines(2)
            handler.end_round("rank 7 on node9 failed", may_finish=may_finish)
        return ids

    agent._start_workers = start
    assert agent.run().state is WorkerState.SUCCEEDED
    kept = [(each["attempt"], each["reason"]) for each in noted(agent, "stacks")]
    assert kept == ([] if may_finish else [(1, "rank 7 on node9 failed")])
    for each in noted(agent, "stacks"):
        assert "in load" in Path(agent._event_log_path()).parent.joinpath(each["file"]).read_text()


TIMED_OUT = """
import os, time
from signpost import tell
def load():
    tell({path!r}, "in load")
    while True:
        time.sleep(600)
if os.environ["LOCAL_RANK"] == "1":
    load()
open({gate!r}).read()
raise RuntimeError("[gloo] Timed out waiting 3000ms for recv operation to complete")
"""


class Questions(Together):
    """Other nodes, of which one asks before this one does, or answers what this one asks."""

    shares_stacks = True

    def __init__(self, *rounds):
        super().__init__(*rounds)
        self.store = LocalStore()
        self.wish = None
        self.asked = []
        self.messages = []

    def next_rendezvous(self):
        info = super().next_rendezvous()
        return RendezvousInfo(
            self.store, 1, 2, info.bootstrap_store_info, info.restart_count, info.generation, [("a", 3), ("b", 2)]
        )

    def ask_for_stacks(self, request_id, reason, occasion):
        del occasion
        self.asked.append(reason)
        if self.wish is not None:
            return False
        text = 'Current thread 0x01 (most recent call first):\n  File "/srv/other.py", line 8 in elsewhere\n'
        self.store.set(f"holdfast/stacks/{request_id}/0", encode({0: RankStacks("node9", 1, text)}))
        return True

    def stacks_wanted(self):
        return self.wish

    def report_failure(self, rank, failure, others=0, node_rank=None):
        super().report_failure(rank, failure, others, node_rank)
        self.messages.append(failure.message.splitlines()[-1])


@pytest.fixture
def timed_out(tmp_path, post, monkeypatch):
    """Runs an agent of two workers: one is elsewhere, and one waited for its peers in vain."""
    monkeypatch.setattr(survivors, "ASK_MAX_S", 30.0)
    monkeypatch.setenv("PYTHONPATH", os.path.dirname(signpost.__file__))
    made = []

    def run(prepare):
        handler = Questions(0, elsewhere())
        made.append(handler)
        prepare(handler)
        gate = str(tmp_path / "gate")
        os.mkfifo(gate)
        script = TIMED_OUT.format(path=post.path, gate=gate)
        spec = WorkerSpec("b", 2, handler, entrypoint=sys.executable, args=("-c", script), max_restarts=0)
        agent = LocalElasticAgent(spec, DefaultLogsSpecs(log_dir=str(tmp_path / "logs")), shutdown_timeout=60)
        started = LocalElasticAgent._start_workers

        def start(group):
            ids = started(agent, group)
            post.line()
            with open(gate, "w"):  # its reader goes on when this is closed
                pass
            return ids

        agent._start_workers = start
        agent.run()
        return handler

    yield run
    for handler in made:
        handler.close()


def test_a_node_whose_worker_waited_in_vain_asks_the_others_before_it_tells(timed_out):
    handler = timed_out(lambda _: None)
    assert len(handler.asked) == 1
    assert handler.asked[0].startswith("timeout: RuntimeError: [gloo] Timed out")
    first, *_ = handler.messages
    assert first == (
        "rank 0 was at /srv/other.py:8 in elsewhere, rank 4 was at <string>:7 in load, "
        "not in a collective: rank 3 may have waited for them"
    )


def test_a_node_that_cannot_ask_answers_whoever_does_and_lets_it_tell_first(timed_out):
    name = "timeout-by-another"

    def prepare(handler):
        handler.wish = StacksRequest(1, name, "n0", "timeout: likewise", StacksOccasion.TIMEOUT)
        answered = handler.store.set

        def told_upon_answer(key, value):
            answered(key, value)
            if key == f"holdfast/stacks/{name}/1":
                assert handler.told == []
                answered(f"holdfast/stacks/{name}/told", b"")

        handler.store.set = told_upon_answer

    handler = timed_out(prepare)
    assert len(handler.asked) == 1
    (stacks,) = decode(handler.store.get(f"holdfast/stacks/{name}/1")).values()
    assert "in load" in stacks.text
    assert handler.told[0][0] == 3


def test_the_request_of_another_node_ends_the_wait_for_it(timed_out, monkeypatch):
    """The wait is for the rendezvous' descriptor: the request comes when the agent already waits."""
    monkeypatch.setattr(inspection, "TIMEOUT_ANSWER_MAX_S", 600.0)
    name = "timeout-by-another"
    begun = threading.Event()

    def prepare(handler):
        def ask_for_stacks(request_id, reason, occasion):
            handler.asked.append(reason)
            return False

        def stacks_wanted():
            if handler.asked:
                begun.set()
            return handler.wish

        def ask():
            assert begun.wait(60)
            handler.wish = StacksRequest(1, name, "n0", "timeout: likewise", StacksOccasion.TIMEOUT)
            os.write(handler._news, b"x")
            handler.store.wait([f"holdfast/stacks/{name}/1"], 60)
            assert handler.told == []
            handler.store.set(f"holdfast/stacks/{name}/told", b"")

        handler.ask_for_stacks, handler.stacks_wanted = ask_for_stacks, stacks_wanted
        asking.append(pool.submit(ask))

    asking = []
    with ThreadPoolExecutor(1) as pool:
        handler = timed_out(prepare)
        asking[0].result()
    assert handler.told[0][0] == 3


class Flood(Questions):
    """One request after the other, each as soon as the last one is answered; then the workers may end."""

    def __init__(self, requests, gate):
        super().__init__(0, elsewhere())
        self._requests = list(requests)
        self._gate = gate
        self._open = None
        self.answers = {}
        put = self.store.set

        def answer(key, value):
            put(key, value)
            self.answers[key.split("/")[2]] = None if value == REFUSED else sorted(decode(value))

        self.store.set = answer

    def stacks_wanted(self):
        if self._open is not None and self._open.id not in self.answers:
            return None
        if self._requests:
            self._open = self._requests.pop(0)
            return self._open
        if not self.ends:
            os.write(self._gate, b"12")  # a byte for each worker
            self.ends = [True]
        return None


def test_a_node_that_asks_for_stacks_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(inspection, "OTHERS_REQUESTS_MAX", 2)
    gate = str(tmp_path / "gate")
    os.mkfifo(gate)
    often = [StacksRequest(1, f"r{n}", "n0", "requested", StacksOccasion.REQUEST) for n in range(5)]
    pipe = os.open(gate, os.O_RDWR)
    handler = Flood([*often, StacksRequest(1, "late", "n0", "hang: slow", StacksOccasion.HANG)], pipe)
    script = f"import os\nos.read(os.open({gate!r}, os.O_RDONLY), 1)"
    spec = WorkerSpec("b", 2, handler, entrypoint=sys.executable, args=("-c", script), max_restarts=0)
    agent = LocalElasticAgent(spec, DefaultLogsSpecs(log_dir=str(tmp_path / "logs")), shutdown_timeout=60)
    try:
        assert agent.run().state is WorkerState.SUCCEEDED
    finally:
        handler.close()
        os.close(pipe)
    assert handler.answers == {"r0": [3, 4], "r1": [3, 4], "r2": None, "r3": None, "r4": None, "late": [3, 4]}
    assert sorted(file.stem for file in tmp_path.glob("logs/*/stacks/*.json")) == ["late", "r0", "r1"]


class HungElsewhere(Questions):
    """Another node, all of whose workers but the last have ended. The job is over when this one has told of a hang."""

    def ask_for_stacks(self, request_id, reason, occasion):
        del reason, occasion
        text = 'Current thread 0x01 (most recent call first):\n  File "/srv/other.py", line 8 in elsewhere\n'
        self.store.set(f"holdfast/stacks/{request_id}/0", encode({2: RankStacks("node9", 1, text)}))
        return True

    def report_failure(self, rank, failure, others=0, node_rank=None):
        del others
        self.told.append((rank, failure.local_rank, node_rank))


def test_a_hang_on_another_node_has_its_local_rank_when_others_there_have_ended(tmp_path):
    handler = HungElsewhere(0, elsewhere())
    spec = WorkerSpec("b", 2, handler, entrypoint=sys.executable, args=("-c", "import time; time.sleep(600)"))
    logs = DefaultLogsSpecs(log_dir=str(tmp_path / "logs"))
    try:
        LocalElasticAgent(spec, logs, shutdown_timeout=60, hang_timeout=1).run()
    finally:
        handler.close()
    assert handler.told == [(2, 2, 0)]


SHORT_S = 0.05
"""How long a store that says nothing is waited for at a time."""


class Silent(Questions):
    """Another node that does not answer while a worker here sets timers, and is gone when all are set."""

    def __init__(self, gate, post):
        super().__init__(0)
        self.ends = [True]
        self.waits = 0

        def wait(keys, timeout_s):
            del keys, timeout_s
            if not self.waits:
                tell(gate, "somebody waits")
            self.waits += 1
            is_done, _, _ = select.select([post], [], [], SHORT_S)
            raise ConnectionError if is_done else TimeoutError

        self.store.wait = wait

    def ask_for_stacks(self, request_id, reason, occasion):
        return True

    def stacks_wanted(self):
        return None


TIMERS = 1000
"""More than a pipe would hold."""

SETS_TIMERS = """
import os
from holdfast.watchdog import FileTimerClient
from signpost import tell
if os.environ["LOCAL_RANK"] == "0":
    tell({path!r}, "ready")
    open({gate!r}).read()
    client = FileTimerClient(os.environ["TORCHELASTIC_TIMER_FILE"])
    for step in range({steps}):
        client.acquire("a step of the training", 4e9)
        client.release("a step of the training")
    tell({path!r}, "set")
"""


def test_timers_are_read_while_the_stacks_of_others_are_waited_for(tmp_path, post, monkeypatch):
    """A pipe that stays full for long is an error in a healthy worker."""
    monkeypatch.setenv("TORCHELASTIC_ENABLE_FILE_TIMER", "1")
    monkeypatch.setenv("PYTHONPATH", os.path.dirname(signpost.__file__))
    gate = str(tmp_path / "gate")
    os.mkfifo(gate)
    script = SETS_TIMERS.format(gate=gate, path=post.path, steps=TIMERS)
    handler = Silent(gate, post)
    spec = WorkerSpec("b", 2, handler, entrypoint=sys.executable, args=("-c", script), max_restarts=0)
    agent = LocalElasticAgent(spec, DefaultLogsSpecs(log_dir=str(tmp_path / "logs")), shutdown_timeout=60)
    started = LocalElasticAgent._start_workers

    def start(group):
        ids = started(agent, group)
        post.line()
        agent._inspection._asked = ["ask"]
        return ids

    agent._start_workers = start
    try:
        assert agent.run().state is WorkerState.SUCCEEDED
    finally:
        handler.close()
    assert handler.waits > 1
    assert post.line() == "set"


def test_a_node_that_waits_for_others_in_a_store_takes_no_requests(tmp_path):
    """A node that asks hears at once that nobody answers."""
    handler = Questions(0)
    handler.ends = [None]
    pipes = []

    def wait(*_):
        pipes.append(list(tmp_path.glob("logs/*/requests")))

    handler.store.wait = wait
    spec = WorkerSpec("b", 2, handler, entrypoint="true")
    agent = LocalElasticAgent(spec, DefaultLogsSpecs(log_dir=str(tmp_path / "logs")), shutdown_timeout=60)
    try:
        assert agent.run().state is WorkerState.SUCCEEDED
    finally:
        handler.close()
    assert pipes == [[]]


class Prying(Together):
    """Another node asks for stacks under a name of its choice. The round is over when it has been answered."""

    def __init__(self, *rounds):
        super().__init__(*rounds)
        self.store = LocalStore()
        self.wishes = []
        kept = self.store.set

        def answered(key, value):
            kept(key, value)
            self.end_round("answered")

        self.store.set = answered

    def next_rendezvous(self):
        info = super().next_rendezvous()
        return RendezvousInfo(
            *(self.store, info.rank, info.world_size, info.bootstrap_store_info),
            *(info.restart_count, info.generation, info.nodes),
        )

    def stacks_wanted(self):
        return self.wishes.pop() if self.wishes else None


@pytest.mark.parametrize("name", ["{outside}/settings", "../../../../settings", "a\0b", "", ".", "x" * 300, "\ud800"])
def test_a_peer_that_asks_for_stacks_cannot_choose_a_file_of_the_users(tmp_path, name, caplog):
    outside = tmp_path / "outside"
    outside.mkdir()
    precious = [outside / "settings.json", tmp_path / "settings.json", outside / "settings.txt"]
    for path in precious:
        path.write_text("precious")
    handler = Prying(0, elsewhere())
    handler.wishes = [StacksRequest(1, name.format(outside=outside), "n0", "requested")]
    spec = WorkerSpec("b", 2, handler, entrypoint=sys.executable, args=("-c", "import time; time.sleep(600)"))
    agent = LocalElasticAgent(spec, DefaultLogsSpecs(log_dir=str(tmp_path / "logs")), shutdown_timeout=60)
    try:
        assert agent.run().state is WorkerState.FAILED
    finally:
        handler.close()
    assert [path.read_text() for path in precious] == ["precious"] * len(precious)
    written = [path for path in tmp_path.rglob("*") if path.suffix in (".json", ".txt") and path not in precious]
    assert [path for path in written if not path.name.startswith("survivors-")] == []
    assert "the stacks cannot be kept" in caplog.text
