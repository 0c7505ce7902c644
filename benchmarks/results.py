"""All that a run of the benchmark found, and its file: JSON with every sample, a line for each measurement."""

from __future__ import annotations

import json
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.measuring import Measurement, Target
from benchmarks.topics import TOPICS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.topics import Topic

SAMPLE_DIGITS = 6
"""How many digits of a sample are kept; the clocks are not better."""


class ResultsError(Exception):
    """A file does not hold the results of a benchmark."""


class Results(NamedTuple):
    """`machine` says what it was measured on, by name; a quick run's numbers are few."""

    machine: dict[str, str]
    is_quick: bool
    measurements: list[Measurement]

    def by_topic(self) -> list[tuple[Topic, list[Measurement]]]:
        """Topics in their order, those without a measurement left out."""
        groups = ((topic, [each for each in self.measurements if each.topic == topic]) for topic in TOPICS)
        return [(topic, group) for topic, group in groups if group]

    def missed(self) -> int:
        """How many targets were not met."""
        return sum(not verdict.is_met for each in self.measurements for verdict in each.verdicts())


def to_text(results: Results) -> str:
    rows = ",\n".join(json.dumps(_row(each), ensure_ascii=False) for each in results.measurements)
    machine = json.dumps(results.machine, ensure_ascii=False)
    return f'{{"machine": {machine},\n"quick": {json.dumps(results.is_quick)},\n"measurements": [\n{rows}\n]}}\n'


def from_text(text: str) -> Results:
    """Raises ResultsError if it was not written by `to_text`."""
    try:
        document = json.loads(text)
        topics = {topic.title: topic for topic in TOPICS}
        measurements = [_measurement(row, topics) for row in document["measurements"]]
        return Results(dict(document["machine"]), bool(document["quick"]), measurements)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ResultsError(f"this is not a file of results: {type(error).__name__}: {error}") from None


def read(path: str) -> Results:
    """Raises ResultsError, which names the file."""
    try:
        with open(path, encoding="utf-8") as file:
            return from_text(file.read())
    except (OSError, UnicodeDecodeError, ResultsError) as error:
        raise ResultsError(f"{path}: {getattr(error, 'strerror', None) or error}") from None


def _row(measurement: Measurement) -> dict[str, Any]:
    """With what follows from the samples as they are kept, so that whoever reads them finds the same."""
    rounds = {
        name: [[_rounded(sample) for sample in samples] for samples in rounds]
        for name, rounds in measurement.samples.items()
    }
    kept = copy(measurement)
    kept.samples = rounds
    return {
        "topic": measurement.topic.title,
        "what": measurement.what,
        "unit": measurement.unit,
        "is_headline": measurement.is_headline,
        "ceiling": measurement.ceiling,
        "nodes": measurement.nodes,
        "targets": [
            verdict.target._asdict() | {"value": _rounded(verdict.value), "is_met": verdict.is_met}
            for verdict in kept.verdicts()
        ],
        "rounds": rounds,
    }


def _measurement(row: dict[str, Any], topics: dict[str, Topic]) -> Measurement:
    targets: Sequence[Target] = [
        Target(float(each["bound"]), bool(each["at_most"]), str(each["against"])) for each in row["targets"]
    ]
    rounds = {
        str(name): [[float(sample) for sample in samples] for samples in rounds]
        for name, rounds in row["rounds"].items()
    }
    if not all(rounds.values()) or not all(samples for each in rounds.values() for samples in each):
        raise ValueError(f"{row['what']} has a contestant without samples")
    return Measurement(
        str(row["what"]),
        str(row["unit"]),
        rounds,
        targets,
        topic=topics[row["topic"]],
        ceiling=None if row["ceiling"] is None else float(row["ceiling"]),
        nodes=int(row["nodes"]),
        is_headline=bool(row["is_headline"]),
    )


def _rounded(value: float) -> float:
    return float(f"{value:.{SAMPLE_DIGITS}g}")
