"""The directory of an agent's run, and what moves with it."""

from __future__ import annotations

import os
import shutil

import pytest

from holdfast.agent.own_run import OwnRun
from holdfast.agent.requests import Requests
from holdfast.events.run_index import known_runs
from holdfast.processes import DefaultLogsSpecs


class Told:
    """The events of the run, and its inspection."""

    def __init__(self):
        self.moves = []
        self.requests = None

    def continue_in(self, path, lost):
        self.moves.append((path, lost))


@pytest.fixture(autouse=True)
def state_home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def told():
    told = Told()
    yield told
    if told.requests is not None:
        told.requests.close()


@pytest.fixture
def specs(tmp_path):
    return DefaultLogsSpecs(str(tmp_path / "logs"))


def started(specs, told):
    """A run in its first attempt."""
    run = OwnRun(told, told)
    assert run.directory is None
    specs.reify({0: {}})
    assert run.begin(specs) is run.directory
    return run


def test_a_run_in_its_directory_stays_there(specs, told):
    run = started(specs, told)
    run.check()
    specs.reify({0: {}})
    run.begin(specs)
    assert told.moves == []
    assert known_runs() == [run.directory.path]


@pytest.mark.parametrize("notice_by", ["check", "reify"])
def test_a_run_that_lost_its_directory_is_recorded_asked_and_found_in_the_new_one(notice_by, specs, told):
    run = started(specs, told)
    lost = run.directory.path
    told.requests = Requests(run.directory.requests)
    shutil.rmtree(lost)
    run.check() if notice_by == "check" else specs.reify({0: {}})
    assert run.directory.path != lost
    assert told.moves == [(run.directory.events, lost)]
    assert os.path.exists(run.directory.requests)
    assert known_runs() == [run.directory.path]
    run.begin(specs)
    run.check()
    assert len(told.moves) == 1
    assert len(os.listdir(os.environ["XDG_STATE_HOME"] + "/holdfast/runs")) == 1, "the lost one is forgotten"


def test_a_run_without_a_pipe_moves_too(specs, told):
    run = started(specs, told)
    shutil.rmtree(run.directory.path)
    run.check()
    assert len(told.moves) == 1
    assert not os.path.exists(run.directory.requests)


def test_where_no_directory_can_be_made_a_check_raises_nothing(specs, told, tmp_path):
    run = started(specs, told)
    shutil.rmtree(tmp_path / "logs")
    (tmp_path / "logs").touch()
    run.check()
    assert told.moves == []


def test_a_directory_of_other_specs_is_only_used(tmp_path, told):
    class Specs:
        run_dir = str(tmp_path)

    run = OwnRun(told, told)
    assert run.begin(Specs()).path == str(tmp_path)
    run.check()
    assert told.moves == []


def test_a_run_without_files_has_no_directory(told):
    specs = DefaultLogsSpecs(os.devnull)
    specs.reify({0: {}})
    run = OwnRun(told, told)
    assert run.begin(specs) is None
    run.check()
    assert known_runs() == []
