"""The checker finds what is planted, and nothing where all is well: each law has a record that breaks it."""

from __future__ import annotations

from pathlib import Path

import pytest
from chaos.checker import LAWS, problems
from chaos.kinds import KINDS as ALL_KINDS
from chaos.kinds import Break
from told_storms import LEASE_S, Story

NOSPACE = "etcd takes no writes: NOSPACE, its database is full"
STORE_GONE = "the store at 10.77.0.1:29400 was lost with the node that served it, which ends the job"


@pytest.fixture
def story():
    return Story()


def laws(story):
    """The names of the laws that were broken."""
    return {problem.partition(": ")[0] for problem in problems(story.entries)}


def only(story, law):
    """Whether this law was broken, and no other; returns what was said of it."""
    found = problems(story.entries)
    assert {problem.partition(": ")[0] for problem in found} == {law}, found
    return "\n".join(found)


def test_a_storm_that_was_weathered_breaks_no_law(story):
    story.kill_worker("node2")
    story.kill_agent("node3")
    story.add_node("node3")
    story.nothing("fill_disk", amount=0)
    story.kill_worker("node1")
    story.cut_link("node2")
    story.remove_node("node2")
    story.nothing("pause_agent", took_s=0.4)
    story.hang("node1")
    story.flap("node3")
    story.nothing("stop_etcd_leader", "", member=1)
    story.end_job("fill_etcd", NOSPACE, amount=1)
    story.kill_worker("node2")
    story.end_job("delete_record", "the generation's record was deleted", record="generation", deleted=1)
    story.finish()
    assert problems(story.entries) == []


def test_every_law_is_broken_by_a_test_here():
    text = Path(__file__).read_text()
    assert [law.__name__ for law in LAWS if f'"{law.__name__.replace("_", " ")}"' not in text] == []


# Workers


def test_a_worker_that_begins_before_one_of_the_last_generation_has_ended(story):
    story.kill_worker("node2")
    story.finish()
    late = story.find("end", 1)
    begin = story.find("begin", -1)
    story.entries.remove(late)
    story.entries.insert(story.entries.index(begin) + 1, late)
    assert "two generations at once" in only(story, "no two generations at once")


def test_an_overlap_that_was_seen_too_late_is_proved_by_the_clocks_of_the_workers(story):
    story.kill_worker("node2")
    story.finish()
    first = story.find("begin", -1, node="node1")
    late = story.find("end", life=1)
    late["last_ns"] = first["at_ns"] + 1
    assert "two generations at once" in only(story, "no two generations at once")
    late["last_ns"] = first["at_ns"] - 1
    assert problems(story.entries) == []


def test_a_world_in_a_new_store_beside_that_of_the_old_one_with_the_same_number(story):
    story.finish()
    for life in (1, 2):
        place = story.entries.index(story.find("begin", life=life))
        begin = dict(story.entries[place], life=100 + life, pid=2000 + life)
        begin["environment"] = begin["environment"] | {"MASTER_PORT": "7"}
        end = {"event": "end", "at_s": 0.0, "life": 100 + life, "seen_ns": 0}
        story.entries[place + 1 : place + 1] = [begin, end]
    assert "no two generations at once" in laws(story)


def test_a_job_that_counts_anew_after_all_its_workers_have_ended_is_no_overlap(story):
    story.kill_worker("node2")
    story.fault("delete_record", "", record="generation", deleted=1)
    story.all_tell("the generation's record is gone")
    story.stop()
    story.generation = story.restarts = 0
    story.run("0 do")
    story.entries[-1]["before"] = 2
    story.finish()
    assert problems(story.entries) == []


def test_a_rank_that_is_there_twice(story):
    story.finish()
    story.find("begin", 1)["environment"]["RANK"] = "0"
    assert "no two generations at once" in laws(story)
    assert "worlds that settled are whole" in laws(story)


def test_workers_of_one_generation_that_know_different_worlds(story):
    story.kill_worker("node2")
    story.finish()
    story.find("begin", 1)["environment"]["MASTER_PORT"] = "7"
    assert "does not agree on its master" in only(story, "no two generations at once")


def test_a_world_that_lacks_a_rank_while_it_is_said_to_run(story):
    story.finish()
    first = story.find("end", 0)
    story.entries.remove(first)
    story.entries.insert(story.entries.index(story.find("settled")), first)
    only(story, "worlds that settled are whole")


def test_processes_that_are_left_where_nothing_should_run(story):
    story.finish()
    story.add("left", node="node3", pids={"7": "python train.py"})
    assert "python train.py" in only(story, "nothing is left")


def test_a_world_that_does_not_go_on(story):
    story.finish()
    story.add("stuck", what="waited for steps")
    only(story, "the world goes on")


# Agents


@pytest.mark.parametrize("code", [1, 2, -9, None])
def test_an_agent_that_ends_by_itself(story, code):
    story.finish()
    end = story.find("agent_end")
    if code is None:
        story.entries.remove(end)
    else:
        end["code"] = code
    assert "agent 3 of node3" in only(story, "agents end as they were made to")


def test_an_agent_that_was_asked_to_go_and_says_that_it_failed(story):
    story.remove_node("node2")
    story.finish()
    story.find("agent_end", 0)["code"] = 1
    only(story, "agents end as they were made to")


def test_an_agent_whose_keeper_is_stopped_must_end_when_it_is_asked_to(story):
    story.fault("remove_without_keeper", "node2")
    story.all_tell("node2 leaves: SIGTERM", but={"node2"})
    story._end("node2", 1)
    story.stop()
    story.run("0 do")
    story.finish()
    assert "ended with 1, not with 143" in only(story, "agents end as they were made to")


def test_an_agent_that_was_cleared_away_may_end_as_it_will(story):
    story.finish()
    story.find("agent_end")["code"] = -9
    story.add("cleared", agent=3, node="node3")
    assert problems(story.entries) == []


# Jobs that a fault ends


def test_a_job_that_ends_though_no_fault_ends_one(story):
    story.end_job("cut_link", STORE_GONE, node="node2")
    story.finish()
    assert "jobs end alike and say why" in laws(story)


def test_agents_that_do_not_end_alike(story):
    story.end_job("fill_etcd", NOSPACE, amount=1)
    story.finish()
    story.find("agent_end", 1)["code"] = 2
    assert "{'node1': 1, 'node2': 2, 'node3': 1}" in only(story, "jobs end alike and say why")


def test_an_agent_that_takes_the_loss_of_its_store_for_success(story):
    story.end_job("lose_host", STORE_GONE, node="node1")
    story.find("agent_end", 0)["code"] = -9
    story.finish()
    story.find("agent_end", 1)["code"] = 0
    assert laws(story) == {"agents end as they were made to", "jobs end alike and say why"}


def test_an_agent_that_does_not_say_why_the_job_ended(story):
    story.end_job("fill_etcd", NOSPACE, amount=1)
    story.finish()
    story.find("agent_end", 2)["said"] = "the job ended"
    assert "node3 ended without a word of it (NOSPACE)" in only(story, "jobs end alike and say why")


def test_an_agent_that_stays_for_long_in_a_job_that_is_over(story):
    story.end_job("return_host", STORE_GONE, node="node1", killed=1)
    story.find("agent_end", 0)["code"] = -9
    story.finish()
    story.find("agent_end", 2)["at_s"] += 60
    only(story, "jobs end in time")


@pytest.mark.parametrize(
    ("kind", "facts"),
    [
        ("delete_record", {"record": "generation", "deleted": 1}),
        ("fill_etcd", {"amount": 1, "killed_s": 20.0}),
    ],
)
def test_workers_that_run_on_though_nobody_can_know_of_them(story, kind, facts):
    says = NOSPACE if kind == "fill_etcd" else "its record was deleted"
    story.end_job(kind, says, **facts)
    story.finish()
    assert problems(story.entries) == []
    story.find("end", 1)["at_s"] += 60
    assert "rank 1 on node2 ran for" in only(story, "worlds without a store stop")


def test_a_job_that_waits_for_a_full_store_to_be_freed(story):
    failure = story.failure("node2")
    hit = {"pid": failure["pid"], "rank": 1, "killed_s": float(len(story.entries))}
    story.fault("fill_etcd", "node2", took_s=14.0, amount=1, **hit)
    story._tell("node2", "failure", **failure)
    story.all_tell("rank failed", "failed", but={"node1", "node3"})
    story.all_tell("rank 1 on node2 failed: Signal 9 (SIGKILL) received", but={"node2"})
    story.stop()
    story._verdict = failure
    story.restarts += 1
    story.run("0 do")
    story.finish()
    told = only(story, "a failure that cannot be written ends the job")
    assert "rank 1 on node2 was killed, and the job waited 14 s for etcd" in told


def test_a_node_s_own_record_that_was_deleted_stops_nobody(story):
    story.nothing("delete_record", "node2", record="node", deleted=1)
    story.finish()
    story.find("end", 1)["at_s"] += 60
    assert problems(story.entries) == []


def test_a_node_that_takes_a_new_store_for_the_old_one(story):
    story.end_job("return_host", STORE_GONE, node="node1", killed=1)
    story.find("agent_end", 0)["code"] = -9
    story.finish()
    story.find("end", 2)["at_s"] += 60
    assert "rank 2 on node3 ran for" in only(story, "worlds without a store stop")


def test_a_worker_whose_lease_another_store_has_renewed(story):
    story.end_job("return_host", STORE_GONE, node="node1", killed=1)
    story.find("agent_end", 0)["code"] = -9
    story.finish()
    killed_s = story.find("fault")["began_s"]
    end = story.find("end", 2)
    end["last_ns"] = int((killed_s + LEASE_S) * 1e9)
    assert "workers do not outlive their store" not in laws(story)
    end["last_ns"] = int((killed_s + LEASE_S + 1) * 1e9)
    assert "workers do not outlive their store" in laws(story)


# Nodes that flap


def test_others_that_are_disturbed_by_a_node_that_flaps(story):
    story.flap("node3", flaps=4, starts=1)
    story.finish()
    assert "while 4 agents of node3 came and went, 4 gen" in only(story, "others run on beside a node that flaps")


def test_others_that_are_disturbed_by_the_first_arrivals_alone(story):
    story.flap("node3", flaps=3, starts=1)
    story.finish()
    assert not laws(story)


def test_a_flapping_node_that_costs_a_restart(story):
    story.restarts += 1
    story.flap("node3")
    story.finish()
    only(story, "restarts are counted for failures only")


# Hangs


def test_a_hang_that_leaves_no_stacks(story):
    story.hang("node2")
    story.finish()
    story.find("told", name="stacks")["details"]["is_kept"] = False
    only(story, "hangs leave stacks")


def test_a_hang_that_another_rank_is_blamed_for(story):
    story.hang("node2")
    story.finish()
    other = story.find("begin", life=1)
    for node in ("node1", "node2", "node3"):
        cause = story.find("told", name="verdict", node=node)["details"]["cause"]
        cause.update({"rank": 0, "host": "node1", "pid": other["pid"]})
    assert laws(story) == {"verdicts are on what was done", "failures have a verdict"}


def test_a_hang_that_is_told_as_a_kill(story):
    story.hang("node2")
    story.finish()
    for node in ("node1", "node2", "node3"):
        story.find("told", name="verdict", node=node)["details"]["cause"]["kind"] = "killed"
    only(story, "verdicts are on what was done")


# Restarts and causes


def test_a_lost_node_that_costs_a_restart(story):
    story.restarts += 1
    story.kill_agent("node3")
    story.finish()
    assert "rose by 1, and there were 0 verdicts" in only(story, "restarts are counted for failures only")


def test_a_failure_that_costs_none(story):
    story.restarts -= 1
    story.kill_worker("node2")
    story.finish()
    assert "rose by 0, and there were 1 verdicts" in only(story, "restarts are counted for failures only")


def test_a_restart_count_that_nodes_do_not_agree_on(story):
    story.kill_worker("node2")
    story.finish()
    story.find("told", name="attempt.started", node="node3")["details"]["restart"] = 7
    assert "restarts are counted for failures only" in laws(story)


def test_nodes_that_do_not_agree_on_the_verdict(story):
    story.kill_worker("node2")
    story.finish()
    story.find("told", name="verdict", node="node1")["details"]["cause"]["rank"] = 0
    assert laws(story) == {"verdicts agree", "verdicts are on what was done"}


@pytest.mark.parametrize(
    ("name", "value"), [("kind", "exit"), ("exit_code", 1), ("rank", 2), ("host", "node1"), ("pid", 4)]
)
def test_a_verdict_that_is_wrong(story, name, value):
    story.kill_worker("node2")
    story.finish()
    for node in ("node1", "node2", "node3"):
        story.find("told", name="verdict", node=node)["details"]["cause"][name] = value
    assert "verdicts are on what was done" in laws(story)


def test_a_victim_that_is_called_the_cause(story):
    story.kill_worker("node2")
    story.finish()
    for node in ("node1", "node2", "node3"):
        cause = story.find("told", name="verdict", node=node)["details"]["cause"]
        cause.update(story.find("begin", 0) | {"kind": "communication", "exit_code": 1, "rank": 0, "host": "node1"})
    assert laws(story) == {"verdicts are on what was done", "failures have a verdict"}


def test_a_kill_that_nobody_tells_of(story):
    story.restarts -= 1
    story.kill_worker("node2")
    story.finish()
    story.entries[:] = [entry for entry in story.entries if entry.get("name") != "verdict"]
    only(story, "failures have a verdict")


def test_a_generation_that_ends_by_itself(story):
    story.all_tell("lost node3")
    story.stop()
    story.fault("slow_link", "node2", amount=20)
    story.run("0 do")
    story.finish()
    assert laws(story) == {"generations end for a reason", "ends are told rightly"}


@pytest.mark.parametrize(
    "kind", [name for name, kind in ALL_KINDS.items() if kind.breaks is Break.NOTHING and Break.LOST not in kind.may]
)
def test_a_fault_that_should_change_nothing_and_does(story, kind):
    story.fault(kind, "node2", took_s=0.5)
    story.all_tell("lost node2", but={"node2"})
    story.stop()
    story.run("0 do")
    story.finish()
    assert "generations end for a reason" in laws(story)


def test_a_moment_that_took_longer_than_a_lease_may_cost_the_node_its_place(story):
    story.fault("pause_agent", "node2", took_s=4.0)
    story.all_tell("lost node2", but={"node2"})
    story.stop()
    story.run("0 do")
    story.finish()
    assert problems(story.entries) == []


def test_a_machine_that_was_too_slow_for_a_lease_may_lose_nodes_that_nothing_was_done_to(story):
    story.nothing("shift_clock", amount=7)
    story.fault("slow_link", "node2", amount=20)
    story.all_tell("the store cannot be reached; and so on")
    story.stop()
    story.run("0 do")
    began_s = story.entries[-1]["at_s"] - 3
    story.finish()
    assert laws(story) == {"generations end for a reason", "ends are told rightly"}
    story.add("slow", began_s=began_s, took_s=1.5)
    assert problems(story.entries) == []
    story.find("slow")["began_s"] = 0.5 - LEASE_S  # long before
    story.find("slow")["took_s"] = 0.1
    assert laws(story) == {"generations end for a reason", "ends are told rightly"}


@pytest.mark.parametrize("kind", ["kill_etcd_leader", "stop_etcd_leader", "cut_etcd_leader"])
def test_slow_answers_of_an_etcd_that_lost_its_leader_are_no_excuse(story, kind):
    story.fault(kind, "", member=0)
    story.all_tell("the store cannot be reached; and so on")
    story.stop()
    story.run("0 do")
    story.finish()
    slow = story.add("slow", began_s=story.find("fault")["at_s"], took_s=2.0, late_s=0.1)
    assert laws(story) == {"generations end for a reason", "ends are told rightly"}
    slow["late_s"] = 1.5  # the machine itself was slow
    assert problems(story.entries) == []
    slow |= {"late_s": 0.1, "took_s": 4.0}  # etcd had no leader for longer than a lease can bear
    assert problems(story.entries) == []


@pytest.mark.parametrize("kind", ["stop_keeper", "reset_link", "reset_all"])
def test_a_fault_that_may_cost_a_node_its_place_or_not(story, kind):
    node = "" if kind == "reset_all" else "node2"
    story.nothing(kind, node, took_s=3.0)
    story.all_tell("lost node2", but={"node2"})  # felt only when the next stage has begun
    story._tell("node2", "attempt.ended", outcome="stopped", reason="this node could not renew its lease in time")
    story.stop()
    story.run("0 do")
    story.finish()
    assert problems(story.entries) == []


def test_a_slow_machine_is_no_reason_for_a_failure(story):
    story.restarts += 1
    story.kill_agent("node3", reason="rank 0 on node1 failed: exit code 1")
    story.finish()
    story.add("slow", began_s=1.0, took_s=60.0)
    assert laws(story) == {"restarts are counted for failures only", "ends are told rightly"}


def test_a_loss_that_is_told_of_another_node(story):
    story.kill_agent("node3", reason="lost node1")
    story.finish()
    assert "node1 told: stopped: lost node1" in only(story, "ends are told rightly")


def test_a_loss_that_is_told_as_a_failure_of_their_own(story):
    story.kill_agent("node3", reason="rank 0 on node1 failed: exit code 1")
    story.finish()
    only(story, "ends are told rightly")


def test_how_a_worker_failed_is_not_known_where_the_disk_was_full(story):
    story.nothing("fill_disk", "node1", amount=0)
    story.kill_agent("node3", reason="rank 0 on node1 failed: nobody knows how")
    story.finish()
    assert problems(story.entries) == []
    freed = {"event": "undo", "at_s": 0.0, "step": 0, "kind": "fill_disk", "node": "node1"}
    story.entries.insert(story.entries.index(story.find("settled", 1)), freed)
    only(story, "ends are told rightly")


def test_how_a_worker_failed_is_not_known_where_the_disk_was_full_when_its_generation_began(story):
    story.fault("fill_disk", "node1", amount=0)
    story.remove_node("node3")
    story.add("undo", step=0, kind="fill_disk", node="node1")
    story.nothing("flap_link", "node2")
    story.kill_agent("node2", reason="rank 0 on node1 failed: nobody knows how")
    story.finish()
    assert problems(story.entries) == []
    story.entries.remove(story.find("fault", kind="fill_disk"))
    only(story, "ends are told rightly")


def test_victims_of_a_loss_may_tell_that_they_lost_a_peer(story):
    victim = story.failure("node1", "communication", 1)
    story.fault("kill_agent", "node3")
    story._end("node3", -9)
    story._tell("node1", "failure", **victim)
    story._tell("node1", "attempt.ended", outcome="failed", reason="rank 0 failed: connection reset")
    story._tell("node2", "attempt.ended", outcome="stopped", reason="rank 0 on node1 failed: connection reset")
    story.stop()
    story.run("0 do")
    story.finish()
    assert problems(story.entries) == []
    victim["kind"] = "exit"
    story.find("told", name="failure")["details"]["kind"] = "exit"
    assert "a worker's failure of its own" in only(story, "ends are told rightly")


# The training


def test_a_step_that_is_missing(story):
    story.finish()
    story.entries.remove(story.find("fact", step=0))
    only(story, "the training is right")


def test_workers_that_do_not_agree_on_the_last_step(story):
    story.finish()
    story.find("begin")["steps"] = 7
    assert "do not agree on how many steps" in only(story, "the training is right")


def test_a_step_with_too_few_samples(story):
    story.finish()
    story.find("fact", step=1)["samples"] = 63
    only(story, "the training is right")


def test_a_saved_step_that_is_trained_again(story):
    story.kill_worker("node2")
    story.finish()
    story.find("fact", generation=2, resumed_at=2)["resumed_at"] = 0
    assert "2 steps were saved before" in only(story, "the training is right")


@pytest.mark.parametrize("result", [{"loss": 0.1}, {"parameters": 1.0}, {"next_step": 7}, {"error": "no checkpoint"}])
def test_a_result_that_is_not_that_of_an_undisturbed_training(story, result):
    story.finish()
    story.find("result").update(result)
    only(story, "the training is right")


def test_a_training_that_was_not_compared_or_has_no_end(story):
    story.finish()
    story.entries.remove(story.find("result"))
    assert "was not compared" in only(story, "the training is right")
    story.entries.remove(story.find("done"))
    assert "did not get to its end" in only(story, "the training is right")


def test_a_line_that_is_cut_where_no_disk_was_full(story):
    story.nothing("fill_disk", "node2", amount=0)
    story.finish()
    story.add("unread", node="node2", line="{half")
    assert problems(story.entries) == []
    story.add("unread", node="node1", line="{half")
    only(story, "events can be read")
