"""What an agent writes for reports: whose job it was in, and what people should know."""

from __future__ import annotations

import json

import pytest

from holdfast.agent import RunResult, SimpleElasticAgent, WorkerSpec, WorkerState
from holdfast.errors.kind import FailureKind
from holdfast.events.schema import OPENING_LINE_MAX_BYTES
from holdfast.rendezvous import RendezvousHandler, RendezvousInfo, RendezvousStoreInfo
from holdfast.rendezvous.records import GENERATION_MAX, WORKERS_MAX, Failure, Verdict
from holdfast.report import read_node
from holdfast.report.entries import NUMBER_MAX as READABLE_MAX
from holdfast.report.entries import identity_of
from holdfast.run_directory import RunDirectory

LONGEST = "\U0001f525" * 5_000
"""A name without an end. In JSON, each character takes 12 bytes."""

NUMBER_MAX = int(READABLE_MAX) - 1
PID_MAX = 1 << 22


class Told(RendezvousHandler):
    """Nodes that agree on the id and the budget of their job, and have failed before."""

    counts_restarts = True

    def __init__(self, restarts):
        self._restarts = restarts

    def next_rendezvous(self):
        cause = Failure("n", "gpu7", 3, 1, 77, 1, "ValueError", 0.0, kind=FailureKind.EXCEPTION)
        return RendezvousInfo(
            None,
            0,
            1,
            RendezvousStoreInfo("node0", 29501),
            restart_count=self._restarts,
            generation=2,
            nodes=[("r", 2)],
            after=Verdict(cause, generation=1),
            job="f00d",
            max_restarts=4,
        )

    def get_backend(self):
        return "told"

    def get_run_id(self):
        return "none"

    def is_closed(self):
        return False

    def set_closed(self):
        pass

    def num_nodes_waiting(self):
        return 0

    def shutdown(self):
        return True

    def wait_for_end(self, timeout_s):
        return True


class Extreme(Told):
    """Everything that it tells has the largest value."""

    def next_rendezvous(self):
        found = super().next_rendezvous()
        nodes = [("r", WORKERS_MAX)] * 2
        return RendezvousInfo(
            None,
            1,
            2,
            RendezvousStoreInfo(LONGEST, 65_535),
            restart_count=NUMBER_MAX,
            generation=GENERATION_MAX,
            nodes=nodes,
            after=found.after,
            job=LONGEST,
            max_restarts=NUMBER_MAX,
        )

    def get_backend(self):
        return LONGEST

    def get_run_id(self):
        return LONGEST


class Agent(SimpleElasticAgent):
    """Its workers succeed at once."""

    def __init__(self, spec, directory):
        super().__init__(spec)
        self._directory = directory

    def _event_log_path(self):
        return str(self._directory / "events.jsonl")

    def _start_workers(self, worker_group):
        return dict.fromkeys(range(2), 0)

    def _monitor_workers(self, worker_group):
        self._run_events.warning("rank 1 crashed after it had ended well", rank=1)
        return RunResult(WorkerState.SUCCEEDED)

    def _stop_workers(self, worker_group):
        pass

    def _shutdown(self, death_sig=None, timeout=30):
        pass


class CrowdedAgent(Agent):
    def _start_workers(self, worker_group):
        return dict.fromkeys(range(len(worker_group.workers)), PID_MAX)

    def _record_worker_events(self, result, restarts=None):
        """Gigabytes, for so many workers with such names."""


@pytest.fixture
def run(tmp_path):
    def to_the_end(restarts=2):
        spec = WorkerSpec("r", 2, Told(restarts), entrypoint="true", max_restarts=1, min_nodes=1, max_nodes=3)
        Agent(spec, tmp_path).run()
        return read_node(str(tmp_path))

    return to_the_end


def test_the_job_its_size_and_its_budget_are_those_that_the_nodes_agreed_on(run):
    node = run()
    assert (node.job, node.run_id, node.min_nodes, node.max_nodes) == ("f00d", "none", 1, 3)
    assert (node.restarts, node.max_restarts, node.attempts[0].master) == (2, 4, "node0:29501")


@pytest.mark.parametrize(
    "args",
    [
        ("x",),
        tuple(f"shard-{number:05}-of-50000.tar.zst" for number in range(50_000)),
        ("",) * 500_000,
        (LONGEST,) * 10,
        ("\udcff" * 4_096,) * 10,
    ],
    ids=["short", "many", "empty", "long", "not UTF-8"],
)
def test_readers_know_whose_a_log_is_however_much_its_agent_was_told(args, tmp_path):
    spec = WorkerSpec(
        LONGEST, WORKERS_MAX, Extreme(2), entrypoint=f"/{LONGEST}", args=args, max_restarts=1, min_nodes=1, max_nodes=2
    )
    agent = CrowdedAgent(spec, tmp_path)
    agent.run()
    with open(tmp_path / "events.jsonl", "rb") as file:
        lines = {json.loads(line)["name"]: line for line in file}
    for name in ("run.started", "attempt.started"):
        assert len(lines[f"holdfast.{name}"]) <= OPENING_LINE_MAX_BYTES
    found = identity_of(RunDirectory(str(tmp_path)))
    assert (found.agent, found.nodes) == (agent._run_events._agent, 2)
    assert found.job == LONGEST[:64]
    assert LONGEST.startswith(found.run_id)


def test_of_a_long_command_the_beginning_is_recorded_and_how_much_is_missing(tmp_path):
    spec = WorkerSpec("r", 2, Told(0), entrypoint="train", args=("--shards", *map(str, range(10_000))), max_restarts=1)
    Agent(spec, tmp_path).run()
    command = read_node(str(tmp_path)).command
    assert command[:4] == ["train", "--shards", "0", "1"]
    assert command[-1] == f"... {10_002 - (len(command) - 1)} more arguments left out ..."
    assert len(command) > 1_000


def test_a_failure_from_before_a_node_came_is_not_an_attempt_of_its_own(run):
    """Others were in the generation that failed. This node came for the next one."""
    (attempt,) = run().attempts
    assert (attempt.number, attempt.generation, attempt.verdict) == (1, 2, None)


def test_every_start_of_an_agent_has_an_id_of_its_own(run, tmp_path):
    first = run().agent
    (tmp_path / "events.jsonl").unlink()
    assert len(first) == len(run().agent) == 16
    assert run().agent != first


def test_a_warning_is_in_the_log_and_in_the_report(run, tmp_path):
    (warning,) = run().warnings
    assert (warning.text, warning.rank, warning.attempt) == ("rank 1 crashed after it had ended well", 1, 1)
    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [line["name"] for line in lines].count("holdfast.warning") == 1


@pytest.mark.parametrize(("restarts", "words"), [(2, "restart 2 of 4: "), (5, "restart 5: ")])
def test_a_restart_is_counted_by_the_jobs_budget(restarts, words, run, caplog):
    run(restarts)
    (line,) = (record.getMessage() for record in caplog.records if "gpu7" in record.getMessage())
    assert line.startswith(f"{words}rank 3 on gpu7 failed")
