from __future__ import annotations

import pytest

from holdfast.doctor.finding import State
from holdfast.doctor.names import (
    SLOW_S,
    Name,
    hosts_entries,
    judge_endpoint,
    judge_localhost,
    judge_own,
    look_up,
)

HOSTS = """
127.0.0.1  localhost
127.0.1.1  node0.example.org Node0   # Debian writes this
# 10.0.0.9 node0
fd00::1    node0
"""


def test_the_lines_of_a_hosts_file_are_found():
    assert hosts_entries("node0", HOSTS) == ["127.0.1.1", "fd00::1"]
    assert hosts_entries("node1", HOSTS) == []


@pytest.mark.parametrize(
    ("name", "state", "words"),
    [
        (Name("node0", ("10.0.0.1",), ("10.0.0.1",)), State.OK, "node0, means 10.0.0.1"),
        (Name("node0", error="Name or service not known"), State.WARNING, "cannot resolve its own name"),
        (
            Name("node0", ("127.0.1.1",), ("127.0.1.1",), in_hosts_file=("127.0.1.1",)),
            State.WARNING,
            "replace 127.0.1.1 by the machine's address in /etc/hosts",
        ),
        (Name("node0", ("10.0.0.9",), ()), State.WARNING, "not an address of this machine"),
        (Name("node0", ("10.0.0.1",), ("10.0.0.1",), "", SLOW_S), State.WARNING, "does not answer"),
        (Name("node0", ("127.0.1.1", "10.0.0.1"), ("127.0.1.1", "10.0.0.1")), State.OK, "127.0.1.1, 10.0.0.1"),
    ],
)
def test_the_machines_own_name(name, state, words):
    found = judge_own(name, is_alone=False)
    assert found.state is state
    assert words in f"{found.what} {found.advice}"


def test_a_machine_that_is_alone_may_take_its_name_for_the_loopback():
    assert judge_own(Name("node0", ("127.0.1.1",), ("127.0.1.1",)), is_alone=True).state is State.NOTE


@pytest.mark.parametrize(
    ("name", "state", "words"),
    [
        (Name("node0", ("10.0.0.1",)), State.OK, "node0, means 10.0.0.1"),
        (Name("10.0.0.1", ("10.0.0.1",)), State.OK, "is an address"),
        (Name("node0", error="Name or service not known"), State.PROBLEM, "check the spelling"),
        (Name("localhost", ("127.0.0.1",)), State.NOTE, "no other machine can join"),
        (Name("127.0.0.1", ("127.0.0.1",)), State.NOTE, "no other machine can join"),
        (Name("node7", ("127.0.1.1",)), State.NOTE, "served on all addresses"),
        (Name("node0", ("127.0.1.1",)), State.PROBLEM, "means 127.0.1.1 here"),
        (Name("node0", ("10.0.0.1",), (), "", SLOW_S), State.WARNING, "does not answer"),
    ],
)
def test_the_name_of_the_endpoint(name, state, words):
    found = judge_endpoint(name, "node7")
    assert found.state is state
    assert words in f"{found.what} {found.advice}"


def test_localhost_has_to_be_this_machine():
    assert judge_localhost(Name("localhost", ("::1", "127.0.0.1"))).state is State.OK
    assert judge_localhost(Name("localhost", ("10.0.0.1",))).state is State.WARNING
    assert judge_localhost(Name("localhost", error="not known")).state is State.WARNING


def test_names_are_really_looked_up():
    assert "127.0.0.1" in look_up("localhost").own
    assert look_up("no such name").error
    assert look_up("x" * 70).error  # a label that no name can have
