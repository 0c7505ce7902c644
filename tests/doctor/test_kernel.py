from __future__ import annotations

import pytest

from holdfast.doctor.finding import State
from holdfast.doctor.kernel import FEATURES, Facts, judge, probe

NOTHING_MISSING = {feature.check: "" for feature in FEATURES}


def test_this_kernel_has_all_of_it():
    facts = probe()
    assert facts.errors == NOTHING_MISSING
    assert judge(facts)[0].state is State.OK


@pytest.mark.parametrize("feature", FEATURES, ids=lambda feature: feature.check)
def test_what_is_missing_is_a_problem_where_it_is_needed(feature):
    facts = Facts("linux", {**NOTHING_MISSING, feature.check: "Operation not permitted"}, 128)
    missing, others = judge(facts)
    assert missing.check == feature.check
    assert missing.state is (State.PROBLEM if feature.is_needed else State.WARNING)
    assert "Operation not permitted" in missing.what
    assert feature.name not in others.what


def test_few_inotify_instances_are_a_note():
    assert [finding.state for finding in judge(Facts("linux", NOTHING_MISSING, 8))] == [State.OK, State.NOTE]
    assert [finding.state for finding in judge(Facts("linux", NOTHING_MISSING, 0))] == [State.OK]


def test_another_system_is_a_warning():
    assert [finding.state for finding in judge(Facts("darwin", {}, 0))] == [State.WARNING]
