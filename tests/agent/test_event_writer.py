"""The events of an agent: held until workers run, in their order, with the times at which they happened."""

from __future__ import annotations

import json
import os
import time

import pytest

from holdfast.agent import RunResult, Worker, WorkerGroup, WorkerSpec, WorkerState
from holdfast.agent.event_writer import EventWriter
from holdfast.errors import ProcessFailure
from holdfast.events.schema import RunStarted


@pytest.fixture
def group(rdzv):
    made = WorkerGroup(
        WorkerSpec("trainer", 2, rdzv, entrypoint="train.py", max_restarts=1, event_log_handler="console")
    )
    made.group_rank, made.group_world_size = 0, 3
    return made


@pytest.fixture
def writer(group):
    return EventWriter(group)


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "events.jsonl")


def written(path):
    with open(path) as file:
        return [json.loads(line) for line in file]


def more_of(event):
    return json.loads(event["metadata"]["metadata"])


class TestBeforeTheFileIsKnown:
    def test_events_are_held_and_come_first_in_their_order(self, writer, path):
        with writer.holding():
            writer.keep(lambda: RunStarted(agent="one"))
            writer.watchdog("watchdog started", None, "")
            with writer.timed("RENDEZVOUS"):
                pass
            assert not os.path.exists(path)
            writer.open(path)
            writer.keep(lambda: RunStarted(agent="two"))
        assert [event["name"] for event in written(path)] == [
            "holdfast.run.started",
            "watchdog started",
            "torchelastic.worker.status.RENDEZVOUS",
            "holdfast.run.started",
        ]

    def test_they_have_the_time_and_the_rank_of_when_they_happened(self, writer, group, path):
        before = time.time(), time.monotonic()
        with writer.holding():
            writer.keep(RunStarted)
            writer.watchdog("watchdog started", None, "")
            after = time.time(), time.monotonic()
            group.group_rank, group.group_world_size = 2, 9
            writer.open(path)
        run, watchdog = written(path)
        assert before[0] <= run["timestamp"] <= watchdog["timestamp"] <= after[0]
        assert before[1] <= run["metadata"]["monotonic"] <= after[1]
        assert run["metadata"]["group_rank"] == watchdog["metadata"]["group_rank"] == 0
        assert more_of(watchdog)["group_world_size"] == 3

    def test_an_event_of_the_run_is_made_when_it_is_written(self, writer, path):
        made = []
        with writer.holding():
            writer.keep(lambda: made.append(1) or RunStarted())
            assert made == []
            writer.open(path)
            assert made == [1]

    def test_a_run_without_a_file_has_them_go_to_the_handler_at_its_end(self, writer, capsys):
        with writer.holding():
            writer.keep(RunStarted)
            writer.watchdog("watchdog started", None, "")
            assert capsys.readouterr().err == ""
        shown = capsys.readouterr()
        assert (shown.out + shown.err).count("watchdog started") == 1
        assert "run.started" not in shown.out + shown.err, "that is for the file alone"


class TestTheEndOfARun:
    def test_the_file_stays_open_until_the_last_one_lets_go(self, writer, path):
        writer.hold()
        with writer.holding():
            writer.open(path)
        assert path not in open_files(), "an event opens it"
        writer.watchdog("watchdog stopped", None, "")
        assert path in open_files()
        writer.let_go()
        assert path not in open_files()

    def test_an_event_of_a_caller_may_come_after_it(self, writer, path):
        with writer.holding():
            writer.open(path)
        writer.record(writer.agent_event("SUCCEEDED", 7, 1))
        (event,) = written(path)
        assert event["name"] == "torchelastic.worker.status.SUCCEEDED"
        assert (event["metadata"]["total_run_time"], event["metadata"]["agent_restarts"]) == (7, 1)
        assert path not in open_files()

    def test_an_event_of_a_caller_may_be_the_only_one(self, writer, capsys):
        writer.record(writer.agent_event("FAILED", 0, 0, "a reason"))
        shown = capsys.readouterr()
        assert '"raw_error": "a reason"' in shown.out + shown.err

    def test_the_file_is_chosen_once(self, writer, path, tmp_path):
        with writer.holding():
            writer.open(path)
            writer.open(str(tmp_path / "other"))
            writer.watchdog("watchdog started", None, "")
        assert len(written(path)) == 1
        assert not (tmp_path / "other").exists()


class TestAnotherFile:
    """Its directory was lost: the run goes on in another one."""

    @pytest.fixture
    def other(self, tmp_path):
        return str(tmp_path / "other.jsonl")

    def test_it_begins_with_the_newest_of_each_event_that_begins_a_file(self, writer, path, other):
        with writer.holding():
            writer.keep(lambda: RunStarted(agent="run"), opening="run")
            writer.keep(lambda: RunStarted(agent="first"), opening="attempt")
            writer.open(path)
            writer.watchdog("watchdog started", None, "")
            writer.keep(lambda: RunStarted(agent="second"), opening="attempt")
            before = written(path)
            writer.move(other)
            writer.watchdog("watchdog stopped", None, "")
        assert written(path) == before
        run, attempt, watchdog = written(other)
        assert [run, attempt] == [before[0], before[-1]], "with the times at which they happened"
        assert watchdog["name"] == "watchdog stopped"
        assert {path, other} & open_files() == set()

    def test_an_attempt_that_is_over_does_not_begin_it(self, writer, path, other):
        with writer.holding():
            writer.open(path)
            writer.keep(lambda: RunStarted(agent="run"), opening="run")
            writer.keep(lambda: RunStarted(agent="attempt"), opening="attempt")
            writer.drop_opening("attempt")
            writer.drop_opening("nothing")
            writer.move(other)
        assert [event["metadata"]["details"]["agent"] for event in written(other)] == ["run"]

    def test_before_the_first_file_is_known_there_is_nothing_to_continue(self, writer, path, other):
        with writer.holding():
            writer.keep(RunStarted, opening="run")
            writer.move(other)
            writer.open(path)
        assert len(written(path)) == 1
        assert not os.path.exists(other)


def open_files():
    return {os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")}


def test_a_block_that_fails_has_its_duration_too(writer, path):
    with writer.holding():
        writer.open(path)
        with pytest.raises(ValueError, match="x"), writer.timed("RENDEZVOUS"):
            raise ValueError("x")
    (event,) = written(path)
    assert event["metadata"]["duration_ms"] >= 0


class TestAWorker:
    @pytest.fixture
    def worker(self):
        worker = Worker(local_rank=1, global_rank=5, role_rank=4, world_size=6, role_world_size=6)
        worker.id = 4711
        return worker

    def test_its_end_is_in_torchs_shape(self, writer, worker, path):
        with writer.holding():
            writer.open(path)
            writer.worker_ended(worker, "SUCCEEDED", 9, 2, RunResult(WorkerState.SUCCEEDED))
        (event,) = written(path)
        metadata = event["metadata"]
        assert (event["name"], event["source"]) == ("torchelastic.worker.status.SUCCEEDED", "WORKER")
        assert {name: metadata[name] for name in ("run_id", "global_rank", "worker_id", "role", "state")} == {
            "run_id": "the-run",
            "global_rank": 5,
            "worker_id": "4711",
            "role": "trainer",
            "state": "SUCCEEDED",
        }
        assert (metadata["total_run_time"], metadata["agent_restarts"], metadata["raw_error"]) == (9, 2, None)
        assert more_of(event) == {
            "group_world_size": 3,
            "entry_point": "train.py",
            "local_rank": [1],
            "role_rank": [4],
            "role_world_size": [6],
            "exit_code": [0],
            "worker_pid": [4711],
        }

    def test_a_failure_has_its_own_exit_code_and_message(self, writer, worker, path, tmp_path):
        failure = ProcessFailure(local_rank=1, pid=4711, exitcode=-9, error_file=str(tmp_path / "none"))
        with writer.holding():
            writer.open(path)
            writer.worker_ended(worker, "FAILED", 9, 2, RunResult(WorkerState.FAILED, failures={5: failure}))
        (event,) = written(path)
        assert event["metadata"]["raw_error"] == failure.message
        assert more_of(event)["exit_code"] == [-9]

    def test_one_that_was_stopped_has_its_exit_code(self, writer, worker, path):
        with writer.holding():
            writer.open(path)
            writer.worker_ended(worker, "TERMINATED", 9, 2, RunResult(WorkerState.FAILED, terminated={5: -15}))
        assert more_of(written(path)[0])["exit_code"] == [-15]


def test_an_event_of_the_watchdog_names_the_worker_and_its_scopes(writer, path):
    with writer.holding():
        writer.open(path)
        writer.watchdog("timer expired", 4711, "train.py#3")
    (event,) = written(path)
    assert (event["name"], event["source"], event["metadata"]["worker_id"]) == ("timer expired", "AGENT", "4711")
    assert more_of(event)["scopes"] == "train.py#3"


def test_an_agent_lets_its_callers_record_a_duration(agent_of, path):
    agent = agent_of()
    agent._event_writer.open(path)
    with agent.recording(), agent.record_duration("UPLOAD"):
        pass
    (event,) = written(path)
    assert (event["name"], event["source"]) == ("torchelastic.worker.status.UPLOAD", "AGENT")
    assert event["metadata"]["duration_ms"] >= 0
