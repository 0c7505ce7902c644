"""The directory of an agent's pages, which nobody else removes while the agent lives."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from holdfast.agent import shared_memory
from holdfast.agent.shared_memory import WorkerPages


@pytest.fixture
def memory(tmp_path, monkeypatch):
    monkeypatch.setattr(shared_memory, "MEMORY", str(tmp_path))
    return tmp_path


def touch(path):
    with open(path, "w"):
        pass


def test_every_attempt_has_fresh_names_and_nothing_stays(memory):
    ours = WorkerPages()
    first = ours.open([0, 1])
    assert list(first) == [0, 1]
    touch(first[0])
    second = ours.open([0, 1])
    assert not set(first.values()) & set(second.values())
    assert not os.path.exists(first[0])
    touch(second[1])
    ours.close()
    ours.close()
    assert os.listdir(memory) == []


def test_what_a_killed_agent_left_is_removed_and_what_a_living_one_has_is_not(memory):
    script = f"""
import os
from holdfast.agent import shared_memory
shared_memory.MEMORY = {str(memory)!r}
for path in shared_memory.WorkerPages().open([0]).values():
    open(path, "w").close()
os._exit(9)
"""
    subprocess.run([sys.executable, "-c", script], check=False)
    (left,) = os.listdir(memory)
    living, another = WorkerPages(), WorkerPages()
    path = living.open([0])[0]
    touch(path)
    assert left not in os.listdir(memory)
    another.open([0])
    assert os.path.exists(path)
    another.close()
    living.close()
    assert os.listdir(memory) == []


def test_without_a_memory_file_system_any_temporary_directory_does(tmp_path, monkeypatch):
    monkeypatch.setattr(shared_memory, "MEMORY", "/nowhere")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    ours = WorkerPages()
    assert ours.open([0])[0].startswith(str(tmp_path))
    ours.close()


def test_a_link_that_somebody_made_leads_an_agent_nowhere(memory, tmp_path_factory):
    precious = tmp_path_factory.mktemp("home") / "precious"
    touch(precious)
    os.symlink(precious.parent, memory / f"{shared_memory.PREFIX}0123456789abcdef")
    ours = WorkerPages()
    ours.open([0])
    ours.close()
    assert precious.exists()


@pytest.mark.root
def test_what_another_user_left_is_left_alone_by_root(memory):
    theirs = memory / f"{shared_memory.PREFIX}0123456789abcdef"
    theirs.mkdir()
    touch(theirs / "1.0")
    os.chown(theirs, 65534, 65534)
    ours = WorkerPages()
    ours.open([0])
    ours.close()
    assert os.listdir(theirs) == ["1.0"]
