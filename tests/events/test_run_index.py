from __future__ import annotations

import os
import subprocess
import sys

import pytest

from holdfast.events import run_index
from holdfast.events.run_index import index_directory, known_runs, newest_has_no_directory, register


@pytest.fixture(autouse=True)
def index(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "holdfast" / "runs"


def made(path):
    path.mkdir(parents=True)
    return str(path)


def test_runs_are_known_the_newest_first(tmp_path):
    runs = [made(tmp_path / "logs" / name) for name in ("b", "a", "c")]
    for run in runs:
        register(run)
    register(runs[0])
    assert known_runs() == [runs[0], runs[2], runs[1]]


def test_the_index_is_private(tmp_path, index):
    register(made(tmp_path / "run"))
    assert index.stat().st_mode & 0o777 == 0o700
    assert index.parent.stat().st_mode & 0o777 == 0o700


def test_a_run_that_is_gone_is_forgotten(tmp_path, index):
    register(made(tmp_path / "run"))
    os.rmdir(tmp_path / "run")
    assert known_runs() == []
    assert os.listdir(index) == []


def test_a_link_of_another_machine_is_left_alone(tmp_path, index):
    register(made(tmp_path / "run"))
    os.symlink("/only/there", index / "2026-01-01T00-00-00.000000000Z_7_another-host")
    assert known_runs() == [str(tmp_path / "run")]
    assert len(os.listdir(index)) == 2


def test_the_oldest_are_forgotten_when_there_are_too_many(tmp_path, index, monkeypatch):
    monkeypatch.setattr(run_index, "RUNS_MAX", 3)
    runs = [made(tmp_path / str(number)) for number in range(5)]
    for run in runs:
        register(run)
    assert known_runs() == [runs[4], runs[3], runs[2]]
    assert len(os.listdir(index)) == 3


@pytest.mark.parametrize("state_home", ["/proc/nowhere", "/dev/null", "relative"])
def test_where_nothing_can_be_kept_nothing_is_and_nobody_is_told(state_home, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", state_home)
    monkeypatch.setenv("HOME", "/dev/null")
    register(str(tmp_path))
    assert known_runs() == []


def test_without_a_directory_there_is_nothing_to_remember(index):
    register(None)
    register("")
    assert not index.exists()


def test_a_run_without_a_directory_is_known_to_have_been(tmp_path):
    assert not newest_has_no_directory()
    register(made(tmp_path / "older"))
    assert not newest_has_no_directory()
    register(os.devnull)
    assert newest_has_no_directory()
    assert known_runs() == [str(tmp_path / "older")]
    register(made(tmp_path / "newer"))
    assert not newest_has_no_directory()


def test_the_place_follows_the_convention(monkeypatch):
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert index_directory() == "/home/somebody/.local/state/holdfast/runs"


def test_agents_that_register_at_the_same_time_are_all_known(tmp_path):
    code = "import sys; from holdfast.events.run_index import register; sys.stdin.read(); register(sys.argv[1])"
    runs = {made(tmp_path / str(number)) for number in range(8)}
    agents = [subprocess.Popen([sys.executable, "-c", code, run], stdin=subprocess.PIPE) for run in runs]
    for agent in agents:
        agent.stdin.close()
    for agent in agents:
        assert agent.wait(60) == 0
    assert set(known_runs()) == runs


def test_to_register_imports_nothing_heavy():
    code = (
        "import sys; before = set(sys.modules); from holdfast.events.run_index import register; register('/tmp');"
        "print(*sorted(set(sys.modules) - before))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert set(ran.stdout.split()) <= {
        "__future__",
        *("holdfast", "holdfast._lazy", "holdfast.events", "holdfast.events.run_index"),
        *("contextlib", "collections", "functools", "types", "reprlib", "itertools", "_collections", "_functools"),
        *("keyword", "operator", "_operator", "heapq", "_heapq", "linecache", "tokenize", "re", "abc", "enum"),
    }
