from __future__ import annotations

import os

import pytest

from holdfast.doctor.finding import State
from holdfast.doctor.stacks import Facts, judge, probe
from holdfast.stacks.spy import find_py_spy

SPY = "/srv/bin/py-spy"


@pytest.mark.parametrize(
    ("facts", "state", "words"),
    [
        (Facts(SPY, True), State.OK, "can read another process"),
        (Facts(None, False), State.NOTE, "install holdfast with its extra stacks"),
        (Facts(None, False, "", 1), State.NOTE, "sysctl kernel.yama.ptrace_scope=0"),
        (Facts(SPY, False, "py-spy: Permission denied", 1), State.NOTE, "sysctl kernel.yama.ptrace_scope=0"),
        (Facts(SPY, False, "py-spy: Permission denied"), State.NOTE, "--cap-add SYS_PTRACE"),
        (Facts(SPY, False, "py-spy: Permission denied", 1, True), State.NOTE, "--cap-add SYS_PTRACE"),
    ],
)
def test_what_is_said_of_ptrace(facts, state, words):
    found = judge(facts)
    assert found.state is state
    assert words in f"{found.what} {found.advice}"


@pytest.mark.skipif(find_py_spy() is None, reason="needs py-spy")
def test_a_child_is_really_looked_at():
    facts = probe()
    assert facts.is_seen or facts.reason
    if os.geteuid() == 0:
        assert facts.is_seen


def test_a_py_spy_that_fails_says_why(tmp_path, monkeypatch):
    program = tmp_path / "py-spy"
    program.write_text("#!/bin/sh\necho 'Error: Permission denied (os error 13)' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    facts = probe()
    assert (facts.is_seen, facts.reason) == (False, "py-spy: Permission denied (os error 13)")
