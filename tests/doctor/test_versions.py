from __future__ import annotations

import os
import sys

import pytest

from holdfast.doctor.finding import State
from holdfast.doctor.versions import EXTRAS, Facts, judge, probe

GOOD = Facts(
    "3.11.7",
    "6.1.0-18-amd64",
    "glibc 2.36",
    {"torch": "2.13.0", **dict.fromkeys(EXTRAS, "1.0")},
    ("/srv/venv/bin/holdfast",),
    "/srv/venv/bin/python",
    "/srv/venv/bin/python3",
    "/srv/venv",
)


@pytest.mark.parametrize(
    ("changes", "check", "state", "words"),
    [
        ({}, "holdfast", State.OK, "holdfast 0.1.0, Python 3.11.7"),
        ({}, "kernel", State.OK, "6.1.0-18-amd64"),
        ({"kernel": "4.19.0-26"}, "kernel", State.NOTE, "from 5.3 on"),
        ({}, "frameworks", State.OK, "torch 2.13.0"),
        ({"packages": {}}, "frameworks", State.OK, "no framework"),
        ({}, "extras", State.OK, "grpcio, protobuf"),
        (
            {"packages": {"grpcio": "1.60", "protobuf": "4.25"}},
            "extras",
            State.NOTE,
            "install holdfast with its extras notebook and stacks, if you need them",
        ),
        ({"packages": {"cloudpickle": "3"}}, "extras", State.NOTE, "with its extras etcd and stacks, if"),
        ({"commands": ("/a/holdfast", "/b/holdfast")}, "command", State.WARNING, "/a/holdfast, /b/holdfast"),
        ({"python_on_path": "/usr/bin/python3"}, "python", State.NOTE, "PYTHON_EXEC"),
    ],
)
def test_what_is_said_of_versions(changes, check, state, words):
    found = {finding.check: finding for finding in judge(GOOD._replace(**changes), "0.1.0")}[check]
    assert found.state is state
    assert words in f"{found.what} {found.advice}"


def test_a_good_machine_is_told_nothing_of_its_path():
    assert {finding.check for finding in judge(GOOD, "0.1.0")} == {"holdfast", "kernel", "frameworks", "extras"}
    assert "python" not in {finding.check for finding in judge(GOOD._replace(python_on_path=""), "0.1.0")}


def test_commands_are_found_in_the_path_and_links_are_followed(tmp_path):
    for name in ("a", "b", "c", "d"):
        (tmp_path / name).mkdir()
    for name in ("a", "b"):
        (tmp_path / name / "holdfast").write_text("#!/bin/sh\n")
        (tmp_path / name / "holdfast").chmod(0o755)
    (tmp_path / "c/holdfast").symlink_to(tmp_path / "a/holdfast")
    (tmp_path / "d/holdfast").write_text("not a program")
    path = os.pathsep.join(str(tmp_path / name) for name in ("a", "b", "c", "d", "none"))
    facts = probe({"PATH": path})
    assert facts.commands == (str(tmp_path / "a/holdfast"), str(tmp_path / "b/holdfast"))
    assert (facts.interpreter, facts.python_on_path) == (sys.executable, "")
    assert facts.packages
