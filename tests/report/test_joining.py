"""Which agents were in one job, and what became of the job."""

from __future__ import annotations

import pytest
import written_runs

from holdfast.report.entries import LOG_MAX_BYTES, read_log
from holdfast.report.joining import agent_names, linked, run_of, together
from holdfast.report.records import Activity, Attempt, Node, Outcome
from holdfast.report.timeline import node_of
from holdfast.run_directory import RunDirectory


def told(written, presence=None):
    return node_of(read_log(RunDirectory(written.directory)), written.directory, presence)


def spent(node):
    return {activity: round(seconds, 3) for activity, seconds in node.time_s().items() if seconds}


def test_a_run_id_that_is_used_twice_names_two_jobs(tmp_path):
    earlier, later = (
        [told(written) for written in written_runs.four_nodes(tmp_path, random=random)] for random in ("aa", "bb")
    )
    assert together(earlier[0], [*later, *earlier[1:]]) == earlier
    assert together(later[0], [*later[1:], *earlier]) == later


def test_nodes_without_a_common_id_are_joined_only_where_no_doubt_is_left(tmp_path):
    first, second = (told(written) for written in written_runs.two_told(tmp_path))
    assert linked(first, second)
    assert together(second, [first]) == [second, first]
    for place, difference in enumerate(
        (
            {"master": "node0:29501"},
            {"command": ["other.py"]},
            {"run_id": "job8"},
            {"wall": written_runs.START + 1000},
            {"wall": written_runs.START - 1000},
            {"job": "f00d"},
        )
    ):
        for other in map(told, written_runs.two_told(tmp_path, random=f"{place}", **difference)):
            assert together(first, [other]) == [first], difference
            assert together(other, [first]) == [other], difference


def test_where_two_claim_the_same_place_neither_is_joined(tmp_path):
    first, second = (told(written) for written in written_runs.two_told(tmp_path))
    # Two jobs cannot have one master at the same time: a clock is wrong.
    earlier = [told(written) for written in written_runs.two_told(tmp_path, random="b", wall=written_runs.START - 60)]
    assert together(first, [*earlier, second]) == [first]
    long_ago = [told(written) for written in written_runs.two_told(tmp_path, random="c", wall=written_runs.START - 999)]
    assert together(first, [*long_ago, second]) == [first, second]
    assert together(long_ago[1], [first, second, long_ago[0]]) == long_ago[::-1]


def test_a_machine_that_was_lost_and_came_back_is_not_a_fourth_node(tmp_path):
    run = run_of([told(written) for written in written_runs.three_machines(tmp_path)])
    assert (run.outcome, run.nodes_at_once(), len(run.nodes)) == (Outcome.SUCCEEDED, 3, 4)
    assert agent_names(run.nodes) == ["machine1", "machine2", "machine3 (agent 2)", "machine3 (agent 1)"]
    lost = run.nodes[-1]
    assert (lost.outcome, lost.attempts[0].outcome) == (Outcome.LOST, Outcome.LOST)
    assert spent(lost)[Activity.LOST] == 20, "until the others stopped because of it"
    assert sum(lost.time_s().values()) == pytest.approx(lost.length_s)
    (note,) = run.notes
    assert note.startswith("machine3 (agent 1) was lost in generation 1")
    assert note.endswith("The other nodes continued without it.")


def test_an_agent_that_was_in_the_last_generation_and_wrote_no_end_may_still_run(tmp_path):
    nodes = [told(written) for written in written_runs.three_machines(tmp_path)]
    (last,) = (node for node in nodes if node.host == "machine2")
    last.outcome = Outcome.UNKNOWN
    run = run_of(nodes)
    assert last.outcome is Outcome.UNKNOWN
    assert any(note.startswith("machine2 has recorded no end.") for note in run.notes)


def test_the_parts_of_a_told_job_have_all_to_succeed(tmp_path):
    first, second = (told(written) for written in written_runs.two_told(tmp_path))
    for outcome in (Outcome.FAILED, Outcome.LOST, Outcome.INTERRUPTED, Outcome.RUNNING, Outcome.UNKNOWN):
        second.outcome = outcome
        assert run_of([first, second]).outcome is outcome


def test_the_verdict_of_a_run_is_the_one_that_ended_it(tmp_path):
    run = run_of([told(written) for written in written_runs.four_nodes(tmp_path, kind="killed")])
    assert (run.verdict.decision, run.verdict.cause.rank, run.verdict.victims) == ("stop", 5, 3)
    assert [each.key for each in run.rounds] == [("generation", 1), ("generation", 2)]
    assert {len(each.attempts) for each in run.rounds} == {4}


def test_a_node_that_was_stopped_because_another_failed_has_lost_its_time_too(tmp_path):
    nodes = [told(written) for written in written_runs.four_nodes(tmp_path)]
    for written in run_of(nodes).nodes:
        assert Activity.TRAINING not in spent(written)
        assert spent(written)[Activity.LOST] == 1140


def agent(outcome, number=0, generation=None, **fields):
    """An agent with one attempt, or in one generation of an elastic job."""
    ended = Outcome.STOPPED if outcome in (Outcome.INTERRUPTED, Outcome.CLOSED) else outcome
    attempt = Attempt(number=1, generation=generation, node=number, outcome=ended)
    return Node(directory=f"/runs/{number}", host=f"node{number}", outcome=outcome, attempts=[attempt], **fields)


@pytest.mark.parametrize(
    ("others", "of_job", "of_told_nodes"),
    [
        (Outcome.RUNNING, Outcome.RUNNING, Outcome.RUNNING),
        (Outcome.FAILED, Outcome.FAILED, Outcome.FAILED),
        (Outcome.INTERRUPTED, Outcome.SUCCEEDED, Outcome.INTERRUPTED),
        (Outcome.CLOSED, Outcome.SUCCEEDED, Outcome.CLOSED),
        (Outcome.LOST, Outcome.SUCCEEDED, Outcome.LOST),
        (Outcome.UNKNOWN, Outcome.SUCCEEDED, Outcome.UNKNOWN),
    ],
)
def test_one_agent_that_succeeded_makes_an_elastic_job_succeed_and_no_other(others, of_job, of_told_nodes):
    def joined(generation):
        return run_of([agent(others, 1, generation), agent(Outcome.SUCCEEDED, 0, generation)]).outcome

    assert (joined(generation=1), joined(generation=None)) == (of_job, of_told_nodes)


def test_agents_that_were_there_at_the_end_come_first_by_rank():
    left = agent(Outcome.CLOSED, 0, generation=1, group_rank=0)
    last = [agent(Outcome.SUCCEEDED, rank, generation=2, group_rank=rank) for rank in (2, 1)]
    without = agent(Outcome.SUCCEEDED, 3, generation=2)
    assert run_of([left, without, *last]).nodes == [*last[::-1], without, left]


def test_the_reason_is_that_of_an_agent_with_the_jobs_outcome():
    nodes = [agent(Outcome.CLOSED, 0, 1, reason="the job failed"), agent(Outcome.FAILED, 1, 1, reason="no restart")]
    assert run_of(nodes).reason == "no restart"


def test_a_job_is_named_by_its_id_or_by_its_agents():
    assert run_of([agent(Outcome.SUCCEEDED, agent="a9e", job="beef")]).job == "beef"
    assert run_of([agent(Outcome.SUCCEEDED, agent="a9e")]).job == "a9e"


def test_agents_of_another_job_are_never_joined_whatever_else_they_share():
    ours, same, other, without = (agent(Outcome.SUCCEEDED, number, 1, job=job) for number, job in enumerate("aab "))
    without.job = ""
    assert together(ours, [same, other, without]) == [ours, same]
    assert together(without, [ours, same]) == [without]


def test_several_agents_of_a_machine_are_numbered_by_the_time_of_their_start():
    nodes = [Node(directory="", host=host, started_at=at) for host, at in (("a", 9.0), ("b", 1.0), ("a", 5.0))]
    assert agent_names(nodes) == ["a (agent 2)", "b", "a (agent 1)"]


def test_notes_say_what_is_missing_and_name_a_few():
    run = run_of([agent(Outcome.LOST, number, skipped_lines=1, is_cut=True) for number in range(10)])
    assert run.notes[0] == "10 lines of the event log could not be read and were left out."
    assert f"{LOG_MAX_BYTES:,} bytes" in run.notes[1]
    assert [note.partition(" ")[0] for note in run.notes if "was lost" in note] == [f"node{n}" for n in range(8)]
    assert "2 more agents have recorded no end." in run.notes
    assert any("share no job id" in note for note in run.notes)
    assert run_of([agent(Outcome.SUCCEEDED)], ["a note of the caller's"]).notes[0] == "a note of the caller's"
