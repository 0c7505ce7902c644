"""From what was seen of a storm to all that should not have been: pure.

Each law is a function from a transcript to sentences, one for each time that it was broken.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from chaos.attribution import SIGKILL_CODE, Expected, Stage, Told, brief
from chaos.kinds import FILL_DISK, KILL_AGENT, KILL_WORKER, KINDS, NEVER_ALONE, REMOVE_NODE, After, Break
from chaos.world import support

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from chaos.record import Entry

SIGTERM_EXIT = 128 + 15

BATCH = 64
"""How many samples a step takes, in the example."""

LOSS_MAX_APART = 1e-3
PARAMETERS_MAX_APART = 0.05
"""How far a training in one process may be from the storm's: several workers add the same numbers in another order, and
thousands of steps carry that on. A step that is missing, doubled or made with other samples is far beyond it.
"""


class Transcript:
    """The entries of a record, put in order."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = entries
        self.storm: Entry = next((entry for entry in entries if entry["event"] == "storm"), {})
        self.facts = [_without_event(entry) for entry in self.all("fact")]
        self.faults = self.all("fault")
        self.told: dict[int, list[Told]] = defaultdict(list)
        self.verdicts: dict[int, list[dict[str, Any]]] = defaultdict(list)
        self.restarts: dict[int, set[int]] = defaultdict(set)
        self._read_told()
        for life in self.all("begin"):
            environment = life["environment"]
            self.restarts[_generation(life)].add(int(environment["TORCHELASTIC_RESTART_COUNT"]))
        self.stages = list(_stages(entries, self.storm["lease_s"]))

    def all(self, event: str) -> list[Entry]:
        return [entry for entry in self.entries if entry["event"] == event]

    def _read_told(self) -> None:
        runs: dict[str, list[Entry]] = defaultdict(list)
        for entry in self.all("told"):
            runs[entry["run"]].append(entry)
        for story in runs.values():
            self._read_run(story)

    def _read_run(self, story: list[Entry]) -> None:
        """One agent's events. What was told while its disk was full is missing, so attempts are known by number."""
        generations = {
            entry["details"]["attempt"]: entry["details"]["generation"]
            for entry in story
            if entry["name"] == "attempt.started"
        }
        failures: dict[int, list[dict[str, Any]]] = defaultdict(list)
        ended: dict[int, tuple[str, str]] = {}
        for entry in story:
            details = entry["details"]
            attempt = details.get("attempt", 0)
            if entry["name"] == "failure":
                failures[attempt].append(details)
            elif entry["name"] == "attempt.ended":
                ended[attempt] = (details["outcome"], details["reason"])
            elif entry["name"] == "attempt.started":
                self.restarts[generations[attempt]].add(details["restart"])
            elif entry["name"] == "verdict" and attempt + 1 in generations:
                # It is told when the next attempt is about to begin.
                self.verdicts[generations[attempt + 1] - 1].append(details["cause"])
        for attempt, generation in generations.items():
            self.told[generation].append(Told(story[0]["node"], tuple(failures[attempt]), ended.get(attempt)))


def problems(entries: Sequence[Entry]) -> list[str]:
    """All that is wrong with a storm, in words; nothing if all is well."""
    transcript = Transcript(entries)
    return [f"{law.__name__.replace('_', ' ')}: {found}" for law in LAWS for found in law(transcript)]


# Workers


def no_two_generations_at_once(transcript: Transcript) -> Iterator[str]:
    """And, of each generation: all agree on what it is, no rank is doubled, ranks follow each other on a node."""
    lives = _lives(transcript.entries)
    yield from support("worker_lives").problems(lives)


def worlds_that_settled_are_whole(transcript: Transcript) -> Iterator[str]:
    """Where the world was seen to run, every rank of the generation runs, and nobody else."""
    alive: dict[int, Entry] = {}
    for entry in transcript.entries:
        if entry["event"] == "begin":
            alive[entry["life"]] = entry
        elif entry["event"] == "end":
            alive.pop(entry["life"], None)
        elif entry["event"] == "settled":
            places = sorted(int(life["environment"]["RANK"]) for life in alive.values())
            sizes = {int(life["environment"]["WORLD_SIZE"]) for life in alive.values()}
            generations = {_generation(life) for life in alive.values()}
            if sizes != {len(places)} or places != list(range(len(places))) or generations != {entry["generation"]}:
                yield f"at {entry['stage']!r} ranks {places} of worlds of {sizes} ran, of generations {generations}"


def nothing_is_left(transcript: Transcript) -> Iterator[str]:
    for entry in transcript.all("left"):
        yield f"on {entry['node']}, where nothing should run, there run {entry['pids']}"


def the_world_goes_on(transcript: Transcript) -> Iterator[str]:
    for entry in transcript.all("stuck"):
        yield entry["what"]


# Agents


def agents_end_as_they_were_made_to(transcript: Transcript) -> Iterator[str]:
    """A killed one by the signal, one that was asked to go with the code for that, all others with 0."""
    expected: dict[int, int] = {}
    newest: dict[str, int] = {}
    for entry in transcript.entries:
        if entry["event"] == "agent":
            newest[entry["node"]] = entry["agent"]
        elif entry["event"] == "fault" and entry["kind"] == KILL_AGENT:
            expected[newest[entry["node"]]] = SIGKILL_CODE
        elif entry["event"] == "fault" and entry["kind"] == REMOVE_NODE:
            expected[newest[entry["node"]]] = SIGTERM_EXIT
    codes = {entry["agent"]: entry["code"] for entry in transcript.all("agent_end")}
    for entry in transcript.all("agent"):
        code, right = codes.get(entry["agent"]), expected.get(entry["agent"], 0)
        if code != right:
            ended = "did not end" if code is None else f"ended with {code}"
            yield f"agent {entry['agent']} of {entry['node']} {ended}, not with {right}"


# Restarts and causes


def restarts_are_counted_for_failures_only(transcript: Transcript) -> Iterator[str]:
    """From one generation to the next the count rises by one if there was a verdict on it, else not at all."""
    for generation, counts in sorted(transcript.restarts.items()):
        if len(counts) > 1:
            yield f"generation {generation} has the restart counts {sorted(counts)}"
    known = sorted(transcript.restarts)
    for earlier, later in pairwise(known):
        rise = max(transcript.restarts[later]) - max(transcript.restarts[earlier])
        judged = sum(1 for generation in range(earlier, later) if transcript.verdicts.get(generation))
        if rise != judged:
            yield f"from generation {earlier} to {later} the count rose by {rise}, and there were {judged} verdicts"


def verdicts_agree(transcript: Transcript) -> Iterator[str]:
    for generation, verdicts in sorted(transcript.verdicts.items()):
        causes = {tuple(cause[name] for name in ("rank", "host", "pid", "kind", "exit_code")) for cause in verdicts}
        if len(causes) > 1:
            yield f"on generation {generation} there are the verdicts {sorted(causes)}"


def verdicts_are_on_what_was_killed(transcript: Transcript) -> Iterator[str]:
    """Every verdict names a worker that the storm killed, and says so; nothing else costs a restart."""
    killed = {fault["pid"]: fault for fault in transcript.faults if fault["kind"] == KILL_WORKER and fault["hit"]}
    for generation, verdicts in sorted(transcript.verdicts.items()):
        for cause in verdicts:
            fault = killed.get(cause["pid"])
            found = (cause["kind"], cause["exit_code"], cause["rank"], cause["host"])
            if fault is None or found != ("killed", SIGKILL_CODE, fault["rank"], fault["node"]):
                yield f"the verdict on generation {generation} is {brief(cause)}; what was done: {fault or 'nothing'}"


def kills_have_a_verdict(transcript: Transcript) -> Iterator[str]:
    """A worker that was killed is the cause of its generation's end. Of two faults at once the first that the store
    hears of ends the generation, and the other may end a worker that was about to be stopped anyway: then one of the
    two must have been told, which `ends_are_told_rightly` sees to.
    """
    for stage in transcript.stages:
        ending = [fault for fault in stage.faults if fault["kind"] not in NEVER_ALONE]
        if [fault["kind"] for fault in ending] != [KILL_WORKER]:
            continue
        fault = ending[0]
        pids = {cause["pid"] for cause in transcript.verdicts.get(fault["generation"], ())}
        if fault["pid"] not in pids:
            yield f"no verdict on generation {fault['generation']} names {fault}"


def generations_end_for_a_reason(transcript: Transcript) -> Iterator[str]:
    """A stage has as many ends of generations as it has faults that break one, at most, and none if it has none."""
    for stage in transcript.stages:
        most = sum(KINDS[fault["kind"]].breaks is not Break.NOTHING for fault in stage.faults) + len(stage.returning)
        most += 2 * len(Expected(stage, transcript.storm["lease_s"]).away)  # lost, and let in again
        if stage.after - stage.before > most and not stage.is_slow:
            new = f"{stage.after - stage.before} new generations, not {most}"
            yield f"at {stage.name!r} ({stage.text}) there were {new}: {_endings(transcript, stage)}"


def ends_are_told_rightly(transcript: Transcript) -> Iterator[str]:
    """Whatever an agent tells of a generation's end is what was done to it, or its consequence."""
    for stage in transcript.stages:
        expected = Expected(stage, transcript.storm["lease_s"])
        for generation in range(stage.before, stage.after):
            all_told = transcript.told.get(generation, [])
            for told in all_told:
                wrong = expected.what_is_wrong(told, all_told)
                if wrong:
                    yield f"generation {generation} ended because of {stage.text}; {told.node} told: {wrong}"


# The training


def the_training_is_right(transcript: Transcript) -> Iterator[str]:
    done = transcript.all("done")
    if not done:
        yield "it did not get to its end"
        return
    begun = transcript.all("begin")
    goals = {life["steps"] for life in begun if _generation(life) == _generation(begun[-1])}
    if goals != {done[-1]["steps"]}:
        yield f"the last workers do not agree on how many steps there are: {sorted(goals)}"
    yield from support("training_history").problems(transcript.facts, done[-1]["steps"], BATCH)
    for result in transcript.all("result"):
        if "error" in result:
            yield f"it could not be made again: {result['error']}"
        elif result["next_step"] != done[-1]["steps"]:
            yield f"the checkpoint is of step {result['next_step']}, not {done[-1]['steps']}"
        elif result["loss"] > LOSS_MAX_APART or result["parameters"] > PARAMETERS_MAX_APART:
            yield f"it is not what an undisturbed one is: {result}"
    if not transcript.all("result"):
        yield "it was not compared with an undisturbed one"


def events_can_be_read(transcript: Transcript) -> Iterator[str]:
    """Only where a disk was full may a line be cut."""
    filled = {fault["node"] for fault in transcript.faults if fault["kind"] == FILL_DISK}
    for entry in transcript.all("unread"):
        if entry["node"] not in filled:
            yield f"{entry['node']} wrote {entry['line']!r}"


LAWS: tuple[Callable[[Transcript], Iterator[str]], ...] = (
    the_world_goes_on,
    no_two_generations_at_once,
    worlds_that_settled_are_whole,
    nothing_is_left,
    agents_end_as_they_were_made_to,
    restarts_are_counted_for_failures_only,
    verdicts_agree,
    verdicts_are_on_what_was_killed,
    kills_have_a_verdict,
    generations_end_for_a_reason,
    ends_are_told_rightly,
    the_training_is_right,
    events_can_be_read,
)


# Reading


def _generation(life: Entry) -> int:
    return int(life["environment"]["HOLDFAST_GENERATION"])


def _without_event(entry: Entry) -> Entry:
    return {name: value for name, value in entry.items() if name not in ("event", "at_s")}


def _lives(entries: Sequence[Entry]) -> list[Any]:
    """The workers as `worker_lives` knows them: each with those of other generations that it was seen beside."""
    kind = support("worker_lives").Life
    lives: dict[int, Any] = {}
    for entry in entries:
        if entry["event"] == "begin":
            life = kind({**entry, "words": []})
            life.seen_with = {
                other for other in lives.values() if not other.has_ended and other.generation != life.generation
            }
            lives[entry["life"]] = life
        elif entry["event"] == "end":
            lives[entry["life"]].has_ended = True
    return list(lives.values())


def _stages(entries: Sequence[Entry], lease_s: float) -> Iterator[Stage]:
    """From one time at which the world ran to the next. The last one has no end but the training's."""
    faults: list[Entry] = []
    returning: set[str] = set()
    full: set[str] = set()
    mute: set[str] = set()  # the nodes whose disk was full at some time of this stage,
    mute_at_start: set[str] = set()  # and of the one in which the generation began
    slow = [(entry["began_s"], entry["began_s"] + entry["took_s"]) for entry in entries if entry["event"] == "slow"]
    began_s = 0.0
    for entry in entries:
        if entry["event"] == "fault":
            faults.append(entry)
            if entry["kind"] == FILL_DISK:
                full.add(entry["node"])
                mute.add(entry["node"])
        elif entry["event"] == "undo":
            if entry["kind"] == FILL_DISK:
                full.discard(entry["node"])
            if KINDS[entry["kind"]].after is After.RETURNS:
                returning.add(entry["node"])
        elif entry["event"] == "settled":
            if entry["before"]:
                # What was slow just before may be felt when a lease ends.
                is_slow = any(since <= entry["at_s"] and until >= began_s - lease_s for since, until in slow)
                generations = (entry["before"], entry["generation"])
                away = frozenset(returning)
                yield Stage(entry["stage"], tuple(faults), away, *generations, is_slow, frozenset(mute | mute_at_start))
            if entry["before"] != entry["generation"]:
                mute_at_start = mute
            faults, returning, mute, began_s = [], set(), set(full), entry["at_s"]


def _endings(transcript: Transcript, stage: Stage) -> str:
    told = [
        f"generation {generation}, {each.node}: {each.ended}"
        for generation in range(stage.before, stage.after)
        for each in transcript.told.get(generation, ())
    ]
    return "; ".join(told)
