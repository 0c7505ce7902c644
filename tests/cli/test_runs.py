"""``holdfast runs``: the list of real runs."""

from __future__ import annotations

import json

import pytest

from holdfast.cli.command import main


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return {"XDG_STATE_HOME": tmp_path / "state"}


@pytest.fixture
def run_job(holdfast, script, here):
    def run(name, code=""):
        words = ("run", "--log-dir", "logs", "--rdzv-id", name, script(code, f"{name}.py"))
        return holdfast(*words, **here).returncode

    return run


def listed(capsys, *words):
    assert main(["runs", *words]) == 0
    return capsys.readouterr().out


def test_without_a_run_it_says_where_it_looked(here, capsys):
    shown = listed(capsys)
    assert shown.startswith("no run is known here (")
    assert str(here["XDG_STATE_HOME"]) in shown
    assert json.loads(listed(capsys, "--json")) == []


def test_the_newest_comes_first(run_job, capsys):
    assert (run_job("first"), run_job("second", "1 / 0")) == (0, 1)
    shown = listed(capsys)
    assert 0 < shown.index("second") < shown.index("first")
    found = json.loads(listed(capsys, "--json"))
    assert [run["run_id"] for run in found] == ["second", "first"]
    assert [run["run_id"] for run in json.loads(listed(capsys, "--json", "-n", "1"))] == ["second"]
    assert "/first_" in shown
    assert "/first_" not in listed(capsys, "-n", "1")


@pytest.mark.parametrize("words", [("-n", "0"), ("-n", "-1"), ("-n", "x"), ("-n", "1.5"), ("more",)])
def test_other_words_are_bad_input(words, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["runs", *words])
    assert capsys.readouterr().err.count("\n") == 1
