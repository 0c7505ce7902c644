"""From what was seen of a storm to all that should not have been: pure.

Each law is a function from a transcript to sentences, one for each time that it was broken.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from chaos.attribution import RUNS, STUCK, Expected, Told, brief, failed_workers, is_as_done
from chaos.generations import Numbering, between, count_between
from chaos.job_laws import JOB_LAWS
from chaos.kinds import FILL_DISK, HITS_A_WORKER, NEVER_ALONE
from chaos.stages import stages
from chaos.world import support

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from chaos.attribution import Stage
    from chaos.generations import Key
    from chaos.record import Entry

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
        self.numbering = Numbering(entries)
        self.told: dict[Key, list[Told]] = defaultdict(list)
        self.verdicts: dict[Key, list[dict[str, Any]]] = defaultdict(list)
        self.restarts: dict[Key, set[int]] = defaultdict(set)
        self.stacks: set[Key] = set()
        """The generations of which somebody kept where all workers hung."""

        self._read_told()
        for life in self.all("begin"):
            environment = life["environment"]
            self.restarts[self.numbering.lives[life["life"]]].add(int(environment["TORCHELASTIC_RESTART_COUNT"]))
        self.generations = sorted({*self.told, *self.restarts})
        self.stages = list(stages(entries, self.numbering, self.lease_s))

    @property
    def lease_s(self) -> float:
        return float(self.storm["lease_s"])

    def ended_in(self, stage: Stage) -> list[Key]:
        """The generations that were over when the stage was."""
        return list(between(self.generations, stage.before, stage.after))

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
            entry["details"]["attempt"]: self.numbering.of_attempt(entry)
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
            elif entry["name"] == "stacks" and details["is_kept"] and details["reason"].startswith("hang"):
                if attempt in generations:
                    self.stacks.add(generations[attempt])
            elif entry["name"] == "attempt.started":
                self.restarts[generations[attempt]].add(details["restart"])
            elif entry["name"] == "verdict" and attempt + 1 in generations:
                # It is told when the next attempt is about to begin.
                later = generations[attempt + 1]
                self.verdicts[later._replace(number=later.number - 1)].append(details["cause"])
        for attempt, generation in generations.items():
            self.told[generation].append(Told(story[0]["node"], tuple(failures[attempt]), ended.get(attempt)))


def problems(entries: Sequence[Entry]) -> list[str]:
    """All that is wrong with a storm, in words; nothing if all is well."""
    return broken_laws(Transcript(entries))


def broken_laws(transcript: Transcript) -> list[str]:
    return [f"{law.__name__.replace('_', ' ')}: {found}" for law in LAWS for found in law(transcript)]


# Workers


def no_two_generations_at_once(transcript: Transcript) -> Iterator[str]:
    """And, of each generation: all agree on what it is, no rank is doubled, ranks follow each other on a node.

    An overlap is what the observer saw, or what the workers' own clocks prove: one that beat after another began.
    """
    lives = _lives(transcript)
    yield from _overlaps(lives)
    found = support("worker_lives").problems(lives)
    yield from (problem for problem in found if not problem.startswith("two generations at once"))


def worlds_that_settled_are_whole(transcript: Transcript) -> Iterator[str]:
    """Where the world was seen to run, every rank of the generation runs, and nobody else."""
    alive: dict[int, Entry] = {}
    number_of = {id(entry): place for place, entry in enumerate(transcript.entries)}
    for entry in transcript.entries:
        if entry["event"] == "begin":
            alive[entry["life"]] = entry
        elif entry["event"] == "end":
            alive.pop(entry["life"], None)
        elif entry["event"] == "settled":
            places = sorted(int(life["environment"]["RANK"]) for life in alive.values())
            sizes = {int(life["environment"]["WORLD_SIZE"]) for life in alive.values()}
            generations = {transcript.numbering.lives[number] for number in alive}
            seen = transcript.numbering.seen[number_of[id(entry)]]
            if sizes != {len(places)} or places != list(range(len(places))) or generations != {seen}:
                of = ", ".join(map(str, sorted(generations)))
                yield f"at {entry['stage']!r} ranks {places} of worlds of {sizes} ran, of generations {of}"


def nothing_is_left(transcript: Transcript) -> Iterator[str]:
    for entry in transcript.all("left"):
        yield f"on {entry['node']}, where nothing should run, there run {entry['pids']}"


def the_world_goes_on(transcript: Transcript) -> Iterator[str]:
    for entry in transcript.all("stuck"):
        yield entry["what"]


# Restarts and causes


def restarts_are_counted_for_failures_only(transcript: Transcript) -> Iterator[str]:
    """From one generation to the next the count rises by one if there was a verdict on it, else not at all."""
    for generation, counts in sorted(transcript.restarts.items()):
        if len(counts) > 1:
            yield f"generation {generation} has the restart counts {sorted(counts)}"
    for earlier, later in pairwise(sorted(transcript.restarts)):
        if earlier[:2] != later[:2]:  # it counts anew
            continue
        rise = max(transcript.restarts[later]) - max(transcript.restarts[earlier])
        judged = sum(bool(found) for key, found in transcript.verdicts.items() if earlier <= key < later)
        if rise != judged:
            yield f"from generation {earlier} to {later} the count rose by {rise}, and there were {judged} verdicts"


def verdicts_agree(transcript: Transcript) -> Iterator[str]:
    for generation, verdicts in sorted(transcript.verdicts.items()):
        causes = {tuple(cause[name] for name in ("rank", "host", "pid", "kind", "exit_code")) for cause in verdicts}
        if len(causes) > 1:
            yield f"on generation {generation} there are the verdicts {sorted(causes)}"


def verdicts_are_on_what_was_done(transcript: Transcript) -> Iterator[str]:
    """Every verdict names a worker that the storm made fail, and how; nothing else costs a restart."""
    failed = failed_workers(transcript.faults)
    for generation, verdicts in sorted(transcript.verdicts.items()):
        wrong = {brief(cause): cause for cause in verdicts if not is_as_done(cause, failed.get(cause["pid"]))}
        for text, cause in wrong.items():
            done = failed.get(cause["pid"], "nothing")
            yield f"the verdict on generation {generation} is {text}; what was done: {done}"


def failures_have_a_verdict(transcript: Transcript) -> Iterator[str]:
    """A worker that was made to fail is the cause of its generation's end. Of two faults at once the first that the
    store hears of ends the generation, and the other may end a worker that was about to be stopped anyway: then one of
    the two must have been told, which `ends_are_told_rightly` sees to.
    """
    for stage in transcript.stages:
        ending = [fault for fault in stage.faults if fault["kind"] not in NEVER_ALONE]
        if len(ending) != 1 or ending[0]["kind"] not in HITS_A_WORKER or not ending[0]["hit"]:
            continue
        told = [cause["pid"] for key in transcript.ended_in(stage) for cause in transcript.verdicts.get(key, ())]
        if ending[0]["pid"] not in told:
            yield f"no verdict on generation {stage.before} names {ending[0]}"


def generations_end_for_a_reason(transcript: Transcript) -> Iterator[str]:
    """A stage has as many ends of generations as it has faults that break one, at most, and none if it has none."""
    for stage in transcript.stages:
        most = Expected(stage, transcript.lease_s).most_generations(stage)
        ended = count_between(stage.before, stage.after)
        if stage.outcome == RUNS and ended > most and not stage.is_slow:
            new = f"{ended} new generations, not {most}"
            yield f"at {stage.name!r} ({stage.text}) there were {new}: {_endings(transcript, stage)}"


def ends_are_told_rightly(transcript: Transcript) -> Iterator[str]:
    """Whatever an agent tells of a generation's end is what was done to it, or its consequence."""
    for stage in transcript.stages:
        expected = Expected(stage, transcript.lease_s)
        for generation in transcript.ended_in(stage) if stage.outcome != STUCK else ():
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
    key_of = transcript.numbering.lives
    goals = {life["steps"] for life in begun if key_of[life["life"]] == key_of[begun[-1]["life"]]}
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
    restarts_are_counted_for_failures_only,
    verdicts_agree,
    verdicts_are_on_what_was_done,
    failures_have_a_verdict,
    generations_end_for_a_reason,
    ends_are_told_rightly,
    the_training_is_right,
    events_can_be_read,
    *JOB_LAWS,
)


# Reading


def _without_event(entry: Entry) -> Entry:
    return {name: value for name, value in entry.items() if name not in ("event", "at_s")}


def _lives(transcript: Transcript) -> list[Any]:
    """The workers as `worker_lives` knows them: each with those of other generations that it was seen beside, and the
    last time of its own clock.
    """
    kind = support("worker_lives").Life
    lives: dict[int, Any] = {}
    for entry in transcript.entries:
        if entry["event"] == "begin":
            name = {"HOLDFAST_GENERATION": str(transcript.numbering.lives[entry["life"]])}
            life = kind({**entry, "words": [], "environment": entry["environment"] | name})
            life.seen_with = {
                other for other in lives.values() if not other.has_ended and other.generation != life.generation
            }
            lives[entry["life"]] = life
        elif entry["event"] == "end":
            life = lives[entry["life"]]
            life.has_ended = True
            life.last_sign_ns = max(life.last_sign_ns, entry.get("last_ns", 0))
    return list(lives.values())


def _overlaps(lives: Sequence[Any]) -> Iterator[str]:
    """One sentence for each two generations, with the longest proof: how long a worker beat beside a later one."""
    pairs: dict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)
    for later in lives:
        for earlier in lives:
            if earlier.generation == later.generation or earlier.started_ns > later.started_ns:
                continue
            proof_ns = earlier.last_sign_ns - later.started_ns
            if proof_ns > 0 or earlier in later.seen_with or later in earlier.seen_with:
                pair = f"rank {earlier.rank} on {earlier.node} and rank {later.rank} on {later.node}"
                pairs[earlier.generation, later.generation].append((proof_ns, pair))
    for (earlier, later), proofs in pairs.items():
        proof_ns, pair = max(proofs)
        how = f"for {proof_ns / 1e9:.3f} s at least" if proof_ns > 0 else "as they were seen"
        yield f"two generations at once, {earlier} and {later}: {len(proofs)} pairs of workers, {how}: {pair}"


def _endings(transcript: Transcript, stage: Stage) -> str:
    told = [
        f"generation {generation}, {each.node}: {each.ended}"
        for generation in transcript.ended_in(stage)
        for each in transcript.told.get(generation, ())
    ]
    return "; ".join(told)
