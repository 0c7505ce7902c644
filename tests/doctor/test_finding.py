"""Findings of the doctor: how each kind is made, and how numbers are shown."""

from __future__ import annotations

import pytest

from holdfast.doctor.finding import State, Topic, counted, size


@pytest.mark.parametrize(
    ("count_bytes", "shown"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (64 << 20, "64 MiB"),
        (150 << 30, "150 GiB"),
        (1 << 40, "1 TiB"),
        (1 << 52, "4096 TiB"),
    ],
)
def test_a_size_has_the_largest_unit_that_leaves_a_whole_part(count_bytes, shown):
    assert size(count_bytes) == shown


def test_one_is_singular():
    assert [counted(count, "worker") for count in (0, 1, 2)] == ["0 workers", "1 worker", "2 workers"]


def test_a_topic_names_itself_in_its_findings():
    topic = Topic("memory")
    found = [topic.problem("swap", "none", "add some"), topic.skipped("swap", "no permission")]
    assert [(finding.topic, finding.state) for finding in found] == [
        ("memory", State.PROBLEM),
        ("memory", State.SKIPPED),
    ]
