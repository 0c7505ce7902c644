"""Agents that come too late are told from those that begin a job anew."""

from __future__ import annotations

import os
import socket

import pytest

from holdfast.launcher import LaunchConfig, elastic_launch
from holdfast.processes import DefaultLogsSpecs
from holdfast.rendezvous import ended_runs
from holdfast.rendezvous.ended_runs import NOTES_MAX, find_end, is_late, launch_of, note_end, seconds_ago
from holdfast.rendezvous.records import End, EndKind

END = End(EndKind.SUCCEEDED, "all 2 nodes succeeded")
STEP = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}


@pytest.fixture(autouse=True)
def _state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def test_a_run_that_did_not_end_here_has_no_note():
    note_end("job", "there", END)
    assert find_end("job", "elsewhere") is None
    assert find_end("job1", "there") is None
    assert find_end("job", "there").reason == END.reason


def test_a_process_that_began_before_the_end_is_late_and_one_that_began_later_is_not():
    note_end("job", "there", END, environ={})
    note = find_end("job", "there")
    assert is_late(note, {})  # this process
    assert not is_late(note, {}, began_s=note.ended_s + 1)
    assert 0 <= seconds_ago(note) < 60


def test_the_same_step_of_a_schedulers_job_is_one_launch():
    note_end("job", "there", END, environ=STEP)
    note = find_end("job", "there")
    later = note.ended_s + 1
    assert is_late(note, {**STEP, "SLURM_PROCID": "1"}, began_s=later)
    assert not is_late(note, STEP, began_s=later), "a script that repeats the command"
    assert not is_late(note, {**STEP, "SLURM_STEP_ID": "1"}, began_s=later)
    assert not is_late(note, {**STEP, "SLURM_RESTART_COUNT": "1"}, began_s=later)
    assert not is_late(note, {}, began_s=later)
    assert launch_of({}) == ""


def test_a_process_that_has_run_other_jobs_is_late_only_for_what_ended_after_it_began_this_one():
    before = ended_runs.now_s()
    note_end("job", "there", END, environ=STEP)
    note = find_end("job", "there")
    assert is_late(note, STEP, made_s=before)
    assert not is_late(note, STEP, made_s=ended_runs.now_s())


def test_a_process_runs_the_same_job_again_and_again(tmp_path, monkeypatch):
    """As in a notebook: the host of a job that has ended begins it anew, although its process is older than the end."""
    with socket.create_server(("localhost", 0)) as probe:
        port = probe.getsockname()[1]
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=2,
        nproc_per_node=1,
        run_id="sweep",
        rdzv_backend="c10d",
        rdzv_endpoint=f"localhost:{port}",
        rdzv_configs={"last_call_timeout": 0.01},
        logs_specs=DefaultLogsSpecs(log_dir=str(tmp_path / "logs")),
    )
    for name, value in STEP.items():
        monkeypatch.setenv(name, value)
    for value in range(3):
        assert elastic_launch(config, same)(value) == {0: value}


def same(value):
    return value


def test_a_note_of_another_boot_or_machine_means_nothing(monkeypatch):
    note_end("job", "there", END)
    monkeypatch.setattr(ended_runs, "_boot", lambda: "another")
    assert find_end("job", "there") is None


@pytest.mark.parametrize("text", [b"", b"{}", b"\xff", b"[" * 10_000])
def test_what_is_no_note_is_none(text, tmp_path):
    note_end("job", "there", END)
    (path,) = (tmp_path / "holdfast" / "ended").iterdir()
    path.write_bytes(text)
    assert find_end("job", "there") is None


def test_a_link_or_a_pipe_is_no_note(tmp_path):
    note_end("job", "there", END)
    (path,) = (tmp_path / "holdfast" / "ended").iterdir()
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert find_end("job", "there") is None
    path.unlink()
    os.mkfifo(path)
    assert find_end("job", "there") is None


def test_notes_have_a_limit(tmp_path):
    for number in range(NOTES_MAX + 5):
        note_end(f"job{number}", "there", END)
    names = os.listdir(tmp_path / "holdfast" / "ended")
    assert len(names) == NOTES_MAX
    assert find_end(f"job{NOTES_MAX + 4}", "there") is not None


def test_nothing_raises_where_nothing_can_be_kept(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    note_end("job", "there", END)
    assert find_end("job", "there") is None
