"""Which run is meant, and the two commands."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import written_runs

from holdfast import files
from holdfast.cli.command import main
from holdfast.errors.tree import InputError
from holdfast.events.run_index import register
from holdfast.files import open_regular
from holdfast.report import entries, find_run, finding, read_node
from holdfast.report.finding import recent_runs
from holdfast.report.records import Outcome

NOBODY = 65534


@pytest.fixture(autouse=True)
def state_home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def test_a_runs_own_directory_is_that_node_alone(tmp_path):
    nodes = written_runs.four_nodes(tmp_path)
    assert [node.host for node in find_run(nodes[2].directory).nodes] == ["gpu-host-2"]


def test_a_directory_of_several_nodes_is_their_run(tmp_path):
    written_runs.four_nodes(tmp_path)
    assert [node.group_rank for node in find_run(str(tmp_path)).nodes] == [0, 1, 2, 3]


def test_a_directory_of_several_runs_is_the_newest_of_them(tmp_path):
    written_runs.restarted(tmp_path, run_id="other", wall=written_runs.START - 9000)
    written_runs.four_nodes(tmp_path, random="aaaa")
    run = find_run(str(tmp_path))
    assert [node.run_id for node in run.nodes] == ["job7"] * 4
    assert run.notes[0].startswith("1 more job is in this directory; this is the newest.")


def test_a_run_id_that_was_used_twice_is_the_newer_run(tmp_path):
    written_runs.restarted(tmp_path, random="aa")
    newer = written_runs.killed_agent(tmp_path, random="bb", wall=written_runs.START + 99_999)
    (node,) = find_run(str(tmp_path)).nodes
    assert node.directory == newer.directory


def test_a_known_run_is_found_by_its_id_with_the_nodes_beside_it(tmp_path):
    nodes = written_runs.four_nodes(tmp_path / "shared")
    register(nodes[1].directory)
    register(written_runs.success(tmp_path / "own").directory)
    register(written_runs.restarted(tmp_path / "own", run_id="job8").directory)
    assert find_run("").run_id == "job8"
    assert len(find_run("job8").nodes) == 1
    # The newest of that id is the one that succeeded; its name's beginning is that of the four.
    assert find_run("job7").outcome is Outcome.SUCCEEDED


def test_nodes_that_share_a_log_directory_are_shown_together(tmp_path):
    nodes = written_runs.four_nodes(tmp_path / "shared")
    register(nodes[1].directory)
    assert len(find_run("job7").nodes) == 4
    assert len(find_run().nodes) == 4


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("nonsense", "no run or directory 'nonsense'; see holdfast runs"),
        ("no/such/place", "no run or directory 'no/such/place'"),
    ],
)
def test_a_run_that_is_not_known_is_one_line_that_says_what_is(name, problem, tmp_path, capsys):
    register(written_runs.success(tmp_path).directory)
    assert main(["report", name]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"holdfast report: error: {problem}")


def test_where_no_run_is_known_the_error_says_what_to_name(capsys):
    assert main(["report"]) == 2
    assert "no runs are recorded here; give a run's directory" in capsys.readouterr().err


def test_a_directory_without_a_run_is_bad_input(tmp_path):
    with pytest.raises(InputError, match="contains none"):
        find_run(str(tmp_path))


def test_the_newest_run_is_reported_as_text_and_as_json(tmp_path, capsys):
    register(written_runs.restarted(tmp_path).directory)
    assert main(["report"]) == 0
    assert capsys.readouterr().out.startswith("Run job7\n")
    assert main(["report", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["run_id"] == "job7"


def test_runs_are_listed_the_newest_first(tmp_path, capsys):
    register(written_runs.success(tmp_path).directory)
    register(written_runs.four_nodes(tmp_path, run_id="job8")[2].directory)
    register(written_runs.killed_agent(tmp_path, run_id="job9").directory)
    assert main(["runs"]) == 0
    title, *lines = capsys.readouterr().out.splitlines()
    titles = ["run id", "job id", "started", "length", "nodes", "workers", "outcome", "directory"]
    assert re.split("  +", title) == titles
    assert [line.split()[0] for line in lines] == ["job9", "job8", "job7"]
    assert "✕ failed: rank 5 on gpu-host-2: exception ValueError" in lines[1]
    assert "✓ succeeded" in lines[2]
    assert main(["runs", "-n", "1", "--json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert (listed["run_id"], listed["outcome"], listed["workers"]) == ("job9", "unknown", 2)


def test_no_runs_are_a_sentence(capsys):
    assert main(["runs"]) == 0
    assert capsys.readouterr().out.startswith("no run is known here (")


@pytest.mark.parametrize("words", [["runs", "-n", "0"], ["runs", "-n", "x"], ["report", "--json", "--html"]])
def test_bad_options_are_refused(words, capsys):
    with pytest.raises(SystemExit) as raised:
        main(words)
    assert raised.value.code == 2


def test_an_agent_of_this_machine_is_running_until_it_is_gone(tmp_path):
    program = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as agent:
        try:
            agent.stdout.readline()
            known = {"host": os.uname().nodename, "pid": agent.pid, "boot": time.monotonic(), "wall": time.time()}
            written = written_runs.WrittenNode(tmp_path, **known).starts(started_s=0)
            node = read_node(written.directory)
            assert (node.outcome, node.attempts[0].outcome) == (Outcome.RUNNING, Outcome.RUNNING)
            assert node.length_s > 0
        finally:
            agent.send_signal(signal.SIGKILL)
            agent.wait(60)
    assert read_node(written.directory).outcome is Outcome.LOST


def test_a_process_id_that_was_used_again_is_not_the_agent(tmp_path):
    known = {"host": os.uname().nodename, "pid": os.getpid(), "wall": written_runs.START - 1e8}
    assert read_node(written_runs.killed_agent(tmp_path, **known).directory).outcome is Outcome.LOST


def test_colours_are_for_terminals_only(tmp_path, capsys, monkeypatch):
    directory = written_runs.four_nodes(tmp_path)[0].directory
    assert main(["report", directory]) == 0
    assert "\x1b" not in capsys.readouterr().out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert main(["report", directory]) == 0
    assert "\x1b[31m" in capsys.readouterr().out
    monkeypatch.setenv("NO_COLOR", "1")
    assert main(["report", directory]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_a_run_id_with_a_slash_is_found(tmp_path):
    events = Path(written_runs.success(tmp_path).directory, "events.jsonl")
    events.write_text(events.read_text().replace("job7", "team/job7"))
    register(str(events.parent))
    assert find_run("team/job7").run_id == "team/job7"


def test_a_part_that_cannot_be_read_does_not_hide_the_others(tmp_path):
    nodes = written_runs.four_nodes(tmp_path / "shared")
    register(nodes[1].directory)
    log = Path(nodes[3].directory, "events.jsonl")
    log.unlink()
    log.symlink_to("/proc/self/mem")  # a file, and its first byte cannot be read by anybody
    assert len(find_run("job7").nodes) == 3
    assert len(find_run(str(tmp_path / "shared")).nodes) == 3
    with pytest.raises(InputError, match="cannot be read"):
        find_run(nodes[3].directory)


def opened_logs(monkeypatch):
    """The directories whose logs are opened from now on."""
    opened = []

    def noted(path, *args, **kwargs):
        opened.append(os.path.dirname(path))
        return open_regular(path, *args, **kwargs)

    monkeypatch.setattr(entries, "open_regular", noted)
    monkeypatch.setattr(files, "open_regular", noted)
    return opened


@pytest.mark.root
@pytest.mark.parametrize("job", ["", "beef"])
def test_what_another_user_puts_beside_a_run_is_neither_opened_nor_part_of_the_job(job, tmp_path, monkeypatch):
    nodes = [written_runs.WrittenNode(tmp_path, rank=rank, job=job).starts(nodes=3) for rank in range(3)]
    for node in nodes:
        node.passes(10).done("succeeded")
    os.chown(nodes[2].directory, NOBODY, NOBODY)
    register(nodes[0].directory)
    opened = opened_logs(monkeypatch)
    assert [len(run.nodes) for run in (find_run(), find_run("job7"), *recent_runs(9))] == [2, 2, 2]
    assert nodes[2].directory not in opened
    assert find_run(nodes[2].directory).nodes[0].host == "node0", "its directory is named"
    assert len(find_run(str(tmp_path)).nodes) in (1, 2), "never those of both users"


def test_a_listing_reads_little_of_a_long_log_and_knows_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(entries, "LISTED_MAX_BYTES", 4000)
    written = written_runs.WrittenNode(tmp_path).starts()
    for number in range(100):
        written.event("warned", text=f"warning {number}")
    register(written.done("succeeded").directory)
    (listed,) = recent_runs(1)
    assert (listed.outcome, listed.nodes[0].is_cut) == (Outcome.SUCCEEDED, True)
    assert not find_run("job7").nodes[0].is_cut


def test_the_logs_of_a_job_are_read_up_to_a_limit_together_and_a_note_says_so(tmp_path, monkeypatch):
    nodes = written_runs.four_nodes(tmp_path)
    register(nodes[0].directory)
    monkeypatch.setattr(finding, "JOB_MAX_BYTES", max(os.path.getsize(node.path) for node in nodes) + 1)
    for name in ("", str(tmp_path)):
        run = find_run(name)
        assert len(run.nodes) == 2
        assert any(note.startswith("2 more agents were not read: the event logs of this job") for note in run.notes)
