"""The limit of open files: raised for the agent, and given back to workers. Each in a process of its own."""

from __future__ import annotations

import pytest
from fresh_python import run_fresh

BEGIN = """
import resource
from holdfast import descriptors
def limits():
    return resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 200))
"""


def said(code):
    done = run_fresh(BEGIN + code)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(("wanted", "limit"), [(32, 64), (64, 64), (100, 100), (200, 200), (1_000_000, 200)])
def test_it_is_raised_as_far_as_it_can_be_and_never_lowered(wanted, limit):
    assert said(f"print(descriptors.allow({wanted}), *limits())") == [f"{limit} {limit} 200"]


def test_a_limit_that_was_not_changed_is_not_given_back():
    assert said("print(descriptors.before(), descriptors.allow(10), descriptors.before())") == ["None 64 None"]


def test_the_one_before_the_first_change_is_given_back():
    assert said("""
descriptors.allow(100)
descriptors.allow(150)
print(descriptors.before())
descriptors.restore(descriptors.before())
print(*limits())
""") == ["64", "64 200"]


def test_what_other_code_has_set_since_stays():
    assert said("""
descriptors.allow(100)
resource.setrlimit(resource.RLIMIT_NOFILE, (80, 200))
print(descriptors.before())
descriptors.allow(120)
print(descriptors.before())
""") == ["None", "80"]
