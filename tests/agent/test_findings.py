"""What completes a failure: the watchdog's word, the accusation, the survivors."""

from __future__ import annotations

import pytest

from holdfast.agent import RunResult, Worker, WorkerState
from holdfast.agent.findings import Findings, Investigation, complete
from holdfast.errors.failure import Failure, ProcessFailure
from holdfast.errors.kind import FailureKind
from holdfast.stacks.wire import RankStacks

KILLED = Failure(local_rank=1, pid=77, exit_code=-9, kind=FailureKind.KILLED, message="killed", timestamp=5.0)
LOST = Failure(
    local_rank=0,
    pid=76,
    exit_code=1,
    kind=FailureKind.COMMUNICATION,
    message="[gloo] Timed out waiting 3000ms for recv operation to complete\n",
    timestamp=4.0,
    error_file_data={},
)


def test_nothing_found_changes_nothing():
    assert complete(KILLED, Findings()) == KILLED


def test_a_worker_that_the_watchdog_ended_says_so():
    done = complete(KILLED, Findings("loading", "/srv/train.py:7"))
    assert done == KILLED.replace(
        message="a timer expired in loading; the watchdog ended the worker",
        kind=FailureKind.TIMEOUT,
        where="/srv/train.py:7",
    )
    assert complete(KILLED.replace(where="t.py:3"), Findings("loading", "/srv/train.py:7")).where == "t.py:3"


def test_a_worker_that_has_recorded_its_failure_keeps_it():
    own = KILLED.replace(error_file="/tmp/error.json")
    assert complete(own, Findings("loading", "/srv/train.py:7")) == own


def test_an_accusation_is_the_last_line():
    done = complete(LOST, Findings(accusation="rank 1 was at t.py:3"))
    assert done.message.splitlines() == [LOST.message.strip(), "rank 1 was at t.py:3"]


def test_survivors_are_added():
    assert complete(KILLED, Findings(survivors=("rank 1: t.py:3",))) == KILLED.replace(survivors=("rank 1: t.py:3",))


class Group:
    """Two workers of the second node."""

    group_world_size = 1

    def __init__(self):
        self.workers = [Worker(0, 4), Worker(1, 5)]


class Timers:
    """The timer of one worker has expired."""

    def expired_in(self, pid):
        return "loading" if pid == 77 else None


class Survivors:
    """One that is found elsewhere."""

    def __init__(self):
        self.failed, self.elsewhere = set(), {}

    def place_of(self, local_rank):
        return f"place of {local_rank}"

    def exclude(self, failed):
        self.failed.update(failed)

    def ranks_here(self):
        return {}

    def add(self, ranks, reason):
        self.elsewhere.update(ranks)

    def accusation(self):
        return f"seen: {sorted(self.elsewhere)}, failed: {sorted(self.failed)}"

    def where(self):
        return ["rank 4: t.py:3"]


class Inspection:
    """Other nodes that answer."""

    def __init__(self):
        self.asked = []

    def ask_after_timeout(self, why, here):
        self.asked.append(why)
        return {0: RankStacks("node9", 1, "text")}


@pytest.fixture
def inspection():
    return Inspection()


@pytest.fixture
def investigation(inspection):
    return Investigation(Group(), Timers(), Survivors(), inspection)


def test_failures_are_explained_and_get_their_global_ranks(investigation):
    lost, killed = ProcessFailure.of(LOST), ProcessFailure.of(KILLED)
    explained = investigation.explained({0: lost, 1: killed})
    assert explained[4].record == LOST
    assert (explained[5].kind, explained[5].where) == (FailureKind.TIMEOUT, "place of 1")
    assert killed.record == KILLED, "what was diagnosed stays as it was"


def test_who_waited_in_vain_asks_the_other_nodes_once_and_accuses(investigation, inspection):
    failures = {4: ProcessFailure.of(LOST)}
    for _ in range(2):
        accused = investigation.accused(failures)
        assert accused[4].message.splitlines()[-1] == "seen: [0], failed: [4]"
    assert len(inspection.asked) == 1
    assert inspection.asked[0].startswith("[gloo] Timed out")
    assert failures[4].record == LOST


def test_a_lost_peer_without_a_timeout_asks_nobody(investigation, inspection):
    failures = {4: ProcessFailure.of(LOST.replace(message="Connection reset by peer"))}
    assert investigation.accused(failures)[4].message.endswith("seen: [], failed: [4]")
    assert inspection.asked == []


def test_a_cause_that_is_no_victim_accuses_nobody(investigation, inspection):
    failures = {4: ProcessFailure.of(LOST), 5: ProcessFailure.of(KILLED)}
    assert investigation.accused(failures) == failures
    assert inspection.asked == []


def test_the_cause_shows_the_survivors_in_the_end(investigation):
    failures = {4: ProcessFailure.of(LOST), 5: ProcessFailure.of(KILLED)}
    result = RunResult(WorkerState.FAILED, failures=failures)
    investigation.show_survivors(result)
    assert {rank: failure.survivors for rank, failure in result.failures.items()} == {4: (), 5: ("rank 4: t.py:3",)}


@pytest.mark.parametrize(("state", "nodes"), [(WorkerState.FAILED, 2), (WorkerState.SUCCEEDED, 1)])
def test_several_nodes_and_successes_show_no_survivors(investigation, state, nodes):
    investigation._group.group_world_size = nodes
    result = RunResult(state, failures={5: ProcessFailure.of(KILLED)})
    investigation.show_survivors(result)
    assert result.failures[5].record == KILLED
