"""The laws of agents and of jobs: how they end, and when they must. Pure, as all laws."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from chaos.attribution import ENDED, RUNS, SIGKILL_CODE, STUCK
from chaos.generations import job_of
from chaos.kinds import (
    DELETE_RECORD,
    FILL_ETCD,
    FLAP_NODE,
    HANG_WORKER,
    KILLS_AN_AGENT,
    KINDS,
    LEAVES,
    LOSE_HOST,
    RETURN_HOST,
)
from chaos.world import STOP_GRACE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from chaos.attribution import Stage
    from chaos.checker import Transcript
    from chaos.record import Entry

SIGTERM = 15
SIGTERM_EXIT = 128 + SIGTERM
FAILURE_CODES = range(1, 128)
"""What an agent may end with that gives up a job: not as if all were well, and not by a signal."""

LATE_S = 10.0
"""How long an end may take on top of a lease and the workers' grace: a busy machine, a message that is tried again."""

FENCE_SLACK_S = 0.5
"""How long the end of workers may take that are fenced: on a busy machine, SIGKILL is not at once."""

FLAP_STARTS_MAX = 3
"""How many generations may begin while a node flaps: it is let in once, is lost again, and something else may happen.
How much of the time that takes depends on the machine."""


def agents_end_as_they_were_made_to(transcript: Transcript) -> Iterator[str]:
    """A killed one by the signal, one that was asked to go with the code for that, those of a job that a fault has
    ended with a failure, all others with 0.
    """
    right = _right_codes(transcript)
    codes = {entry["agent"]: entry["code"] for entry in transcript.all("agent_end")}
    cleared = {entry["agent"] for entry in transcript.all("cleared")}
    for entry in transcript.all("agent"):
        code, expected = codes.get(entry["agent"]), right.get(entry["agent"], {0})
        if entry["agent"] not in cleared and (code is None or code not in expected):
            ended = "did not end" if code is None else f"ended with {code}"
            yield f"agent {entry['agent']} of {entry['node']} {ended}, not with {min(expected)}"


def _right_codes(transcript: Transcript) -> dict[int, Collection[int]]:
    right: dict[int, Collection[int]] = {}
    newest: dict[str, int] = {}
    for entry in transcript.entries:
        match entry["event"]:
            case "agent":
                newest[entry["node"]] = entry["agent"]
            case "fault":
                right |= _made_to_end(entry, newest)
            case "job_end":
                of_job = [agent["agent"] for agent in transcript.all("agent") if job_of(agent) == job_of(entry)]
                right |= {agent: FAILURE_CODES for agent in of_job if agent not in right}
    return right


def _made_to_end(fault: Entry, newest: dict[str, int]) -> dict[int, Collection[int]]:
    """The agents that a fault has ended, each with the codes that are right for that."""
    kind = fault["kind"]
    if kind == FLAP_NODE:
        # One that has hardly begun has no handler yet, and ends by the signal itself.
        codes = {SIGTERM_EXIT, -SIGTERM} if fault["signal"] == SIGTERM else {SIGKILL_CODE}
        return dict.fromkeys(fault["flapped"], codes)
    if kind in KILLS_AN_AGENT:
        return {fault.get("killed", newest[fault["node"]]): {SIGKILL_CODE}}
    return {newest[fault["node"]]: {SIGTERM_EXIT}} if kind in LEAVES else {}


def jobs_end_alike_and_say_why(transcript: Transcript) -> Iterator[str]:
    """Where a fault has ended a job, all agents that gave it up end with the same code, and each names the reason."""
    ended = {entry["agent"]: entry for entry in transcript.all("agent_end")}
    for stage, agents in _ended_jobs(transcript):
        ends = [ended[agent] for agent in agents]
        if len({end["code"] for end in ends}) > 1:
            yield f"after {stage.text} agents ended with { ({end['node']: end['code'] for end in ends}) }"
        pattern = "|".join(KINDS[fault["kind"]].ends for fault in _ending(stage))
        if not pattern:
            yield f"{stage.text} ended the job, and must not"
        for end in ends:
            if not re.search(pattern, end["said"]):
                yield f"after {stage.text} {end['node']} ended without a word of it ({pattern}): {end['said'][-300:]!r}"


def jobs_end_in_time(transcript: Transcript) -> Iterator[str]:
    """Nobody stays for long in a job that cannot go on."""
    limit_s = transcript.lease_s + STOP_GRACE_S + LATE_S
    ended = {entry["agent"]: entry for entry in transcript.all("agent_end")}
    for stage, agents in _ended_jobs(transcript):
        began_s = max(map(_hit_s, _ending(stage)), default=stage.until_s)
        for end in (ended[agent] for agent in agents):
            took_s = end["at_s"] - began_s
            if took_s > limit_s:
                yield f"{end['node']} ended {took_s:.1f} s after {stage.text}, not within {limit_s:g} s"


def a_failure_that_cannot_be_written_ends_the_job(transcript: Transcript) -> Iterator[str]:
    """A worker that fails while the store takes no writes: the job ends before the store is freed, and nobody waits."""
    for stage in transcript.stages:
        full = [fault for fault in stage.faults if fault["kind"] == FILL_ETCD and "killed_s" in fault]
        if full and stage.outcome == RUNS:
            waited_s = full[0]["began_s"] + full[0]["took_s"] - full[0]["killed_s"]
            who = f"rank {full[0]['rank']} on {full[0]['node']}"
            yield f"{who} was killed, and the job waited {waited_s:.0f} s for etcd"


def worlds_without_a_store_stop(transcript: Transcript) -> Iterator[str]:
    """Workers whose store is gone, whose record was deleted, or of whom nobody can be told stop within a lease, their
    grace and some time. Nobody takes another store for theirs.
    """
    limit_s = transcript.lease_s + STOP_GRACE_S + LATE_S
    ends = {entry["life"]: entry["at_s"] for entry in transcript.all("end")}
    for fault in filter(_must_stop_workers, transcript.faults):
        hit_s = _hit_s(fault)
        lived = [
            (ends.get(life["life"], float("inf")) - hit_s, f"rank {life['environment']['RANK']} on {life['node']}")
            for life in transcript.all("begin")
            if life["at_s"] <= hit_s
        ]
        late = [one for one in lived if one[0] > limit_s]
        if late:
            longest_s, who = max(late)
            what = f"{fault['kind']} {fault.get('record', '')}".rstrip()
            yield f"{who} ran for {longest_s:.1f} s after {what}, not {limit_s:g} s at most; {len(late)} workers did"


def workers_do_not_outlive_their_store(transcript: Transcript) -> Iterator[str]:
    """A lease that was renewed just before the store was gone ends every worker within its time. One that lives on has
    had its lease renewed by another store.
    """
    lasts = {entry["life"]: entry.get("last_ns", 0) / 1e9 for entry in transcript.all("end")}
    for fault in transcript.faults:
        if fault["kind"] not in (LOSE_HOST, RETURN_HOST):
            continue
        hit_s = _hit_s(fault)
        for life in transcript.all("begin"):
            lived_s = lasts.get(life["life"], 0.0) - hit_s
            if life["at_s"] <= hit_s and lived_s > transcript.lease_s + FENCE_SLACK_S:
                who = f"rank {life['environment']['RANK']} on {life['node']}"
                yield f"{who} ran for {lived_s:.1f} s after {fault['kind']}; a lease is {transcript.lease_s:g} s"


def _must_stop_workers(fault: Entry) -> bool:
    kind = fault["kind"]
    if kind == DELETE_RECORD:
        return bool(fault["record"] == "generation" and fault["deleted"])
    return kind in (LOSE_HOST, RETURN_HOST) or (kind == FILL_ETCD and "killed_s" in fault)


def _hit_s(fault: Entry) -> float:
    return float(fault["killed_s"] if "killed_s" in fault else fault["began_s"])


def _ending(stage: Stage) -> list[Entry]:
    """The faults that may end the job."""
    return [fault for fault in stage.faults if KINDS[fault["kind"]].ends]


def _ended_jobs(transcript: Transcript) -> Iterator[tuple[Stage, list[int]]]:
    """Each stage that ended a job, with the agents that gave it up: not those that the storm has ended."""
    made = {agent for agent, codes in _right_codes(transcript).items() if codes is not FAILURE_CODES}
    cleared = {entry["agent"] for entry in transcript.all("cleared")}
    ended = {entry["agent"] for entry in transcript.all("agent_end")} - made - cleared
    for stage in transcript.stages:
        if stage.outcome == ENDED:
            of_job = [agent["agent"] for agent in transcript.all("agent") if job_of(agent) == stage.before.job]
            yield stage, [agent for agent in of_job if agent in ended]


def hangs_leave_stacks(transcript: Transcript) -> Iterator[str]:
    """Where a worker hung, the stacks of all ranks were kept, on some node whose disk was not full."""
    for stage in transcript.stages:
        hung = any(fault["kind"] == HANG_WORKER and fault["hit"] for fault in stage.faults)
        if hung and stage.outcome != STUCK and not stage.mute and stage.before not in transcript.stacks:
            yield f"{stage.text} left no stacks of generation {stage.before}"


def others_run_on_beside_a_node_that_flaps(transcript: Transcript) -> Iterator[str]:
    lives = transcript.numbering.lives
    for fault in transcript.faults:
        if fault["kind"] != FLAP_NODE:
            continue
        begins = (life for life in transcript.all("begin") if fault["from_s"] < life["at_s"] < fault["until_s"])
        begun = {lives[life["life"]] for life in begins}
        if len(begun) > FLAP_STARTS_MAX:
            agents = len(fault["flapped"]) - 1
            yield f"while {agents} agents of {fault['node']} came and went, {len(begun)} generations began"


JOB_LAWS: tuple[Callable[[Transcript], Iterator[str]], ...] = (
    agents_end_as_they_were_made_to,
    jobs_end_alike_and_say_why,
    jobs_end_in_time,
    a_failure_that_cannot_be_written_ends_the_job,
    worlds_without_a_store_stop,
    workers_do_not_outlive_their_store,
    hangs_leave_stacks,
    others_run_on_beside_a_node_that_flaps,
)
