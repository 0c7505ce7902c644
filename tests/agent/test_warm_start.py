"""The template that workers of a warm start are forked from: which program it prepares for, and when there is none."""

from __future__ import annotations

import sys

import functions
import pytest

from holdfast.agent import WorkerSpec
from holdfast.agent.warm_start import template_for


def spec_of(entrypoint, *args):
    return WorkerSpec("worker", 1, None, entrypoint=entrypoint, args=args)


@pytest.mark.parametrize(
    ("entrypoint", "args", "start_method", "has_template"),
    [
        (sys.executable, ("-u", "train.py"), "spawn", True),
        ("/bin/true", ("-c", "x"), "spawn", False),
        (functions.nothing, (), "spawn", True),
        (functions.nothing, (), "fork", False),
    ],
)
def test_only_python_programs_that_are_not_forked_already_have_a_template(entrypoint, args, start_method, has_template):
    assert (template_for(spec_of(entrypoint, *args), start_method, warm=True) is not None) is has_template
