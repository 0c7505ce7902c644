from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from holdfast.agent.requests import Requests
from holdfast.cli import stacks as command
from holdfast.errors.tree import InputError, UserError
from holdfast.events.run_index import register
from holdfast.run_directory import RunDirectory
from holdfast.stacks.dump import gather, keep
from holdfast.stacks.wire import RankStacks

DEADLINE_S = 60
STACK = 'Current thread 0x0000000000000002 (most recent call first):\n  File "/srv/{0}.py", line 8 in {0}\n'


class Agent:
    """Answers one request of a run's directory, as an agent does."""

    def __init__(self, run_dir, answers=True):
        self._run_dir = RunDirectory(str(run_dir))
        self.requests = Requests(self._run_dir.requests)
        self._answers = answers
        self._thread = threading.Thread(target=self._serve)
        self._stop, self._stopper = os.pipe()
        self._thread.start()

    def _serve(self):
        import select

        readable, _, _ = select.select([self.requests, self._stop], [], [], DEADLINE_S)
        if self.requests in readable:
            for request in self.requests.read():
                ranks = {
                    rank: RankStacks("node0", rank, STACK.format("load" if rank == 1 else "reduce"))
                    for rank in range(3)
                }
                if self._answers:
                    keep(gather("job7", "somebody asked", 0.0, ranks), self._run_dir, request.id)
        self.requests.close()

    def close(self):
        os.write(self._stopper, b"x")
        self._thread.join(DEADLINE_S)
        os.close(self._stop)
        os.close(self._stopper)


@pytest.fixture
def start_agent():
    agents = []

    def start(run_dir, **options):
        agents.append(Agent(run_dir, **options))
        return agents[-1]

    yield start
    for agent in agents:
        agent.close()


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def make_run(tmp_path):
    """A run's directory that is known here."""

    def make(name, run_id, job=""):
        run_dir = tmp_path / "logs" / name
        run_dir.mkdir(parents=True)
        event = {"name": "holdfast.run.started", "source": "AGENT", "timestamp": 0, "metadata": {"run_id": run_id}}
        details = json.dumps({"attempt": 1, "job": job})
        attempt = event | {"name": "holdfast.attempt.started", "metadata": {"run_id": run_id, "details": details}}
        (run_dir / "events.jsonl").write_text(f"{json.dumps(event)}\n{json.dumps(attempt)}\n")
        register(str(run_dir))
        return run_dir

    return make


def test_the_stacks_of_a_run_are_shown(make_run, start_agent, capsys):
    run_dir = make_run("job7_1", "job7")
    start_agent(run_dir)
    command.main([str(run_dir)])
    shown = capsys.readouterr().out
    assert ">>> rank 1 on node0, 1 of 3: in a different place than the others" in shown
    assert "\033" not in shown
    text, _, path = shown.rpartition("\nkept in ")
    assert Path(path.strip()).read_text() == text


def test_a_run_is_found_by_its_id_and_the_one_that_runs_is_meant(make_run, start_agent, capsys):
    run_dir = make_run("job7_1", "job7")
    make_run("job7_2", "job7")  # newer, but over
    make_run("other_1", "other")
    start_agent(run_dir)
    command.main(["job7", "--json"])
    assert json.loads(capsys.readouterr().out)["outliers"] == [1]
    assert os.listdir(run_dir / "stacks")


def test_a_run_is_found_by_the_beginning_of_its_job_id(make_run, start_agent, capsys):
    run_dir = make_run("none_1", "none", job="f00d0123456789ab")
    start_agent(run_dir)
    start_agent(make_run("none_2", "none", job="beef0123456789ab"))
    command.main(["f00d0123", "--json"])
    out, err = capsys.readouterr()
    assert (json.loads(out)["outliers"], err) == ([1], "")
    assert os.listdir(run_dir / "stacks")


def test_a_run_id_of_two_jobs_that_run_is_the_newest_and_a_note_says_so(make_run, start_agent, capsys):
    start_agent(make_run("none_1", "none", job="f00d0123456789ab"))
    newest = make_run("none_2", "none", job="beef0123456789ab")
    start_agent(newest)
    make_run("none_3", "none", job="cafe0123456789ab")  # over
    command.main(["none"])
    assert capsys.readouterr().err == (
        f"holdfast stacks: 1 more job runs here as 'none'; this is {newest}. To see another, name its directory.\n"
    )


def test_without_a_name_the_newest_that_runs_is_meant(make_run, start_agent, capsys):
    start_agent(make_run("a_1", "a"))
    newest = make_run("b_1", "b")
    start_agent(newest)
    make_run("c_1", "c")
    command.main([])
    assert f"kept in {newest}" in capsys.readouterr().out


def test_a_directory_of_runs_will_do(make_run, start_agent, capsys):
    run_dir = make_run("a_1", "a")
    make_run("b_1", "b")
    start_agent(run_dir)
    command.main([str(run_dir.parent)])
    assert f"kept in {run_dir}" in capsys.readouterr().out


def test_a_run_that_is_over_is_named_as_such(make_run):
    run_dir = make_run("job7_1", "job7")
    for name in (str(run_dir), "job7"):
        with pytest.raises(InputError, match="not running on this machine"):
            command.main([name])


def test_a_pipe_that_nobody_reads_is_no_run(make_run):
    run_dir = make_run("job7_1", "job7")
    os.mkfifo(run_dir / "requests")
    with pytest.raises(InputError, match="not running on this machine"):
        command.main(["job7"])


def test_a_file_in_place_of_the_pipe_is_not_written_to(make_run):
    run_dir = make_run("job7_1", "job7")
    (run_dir / "requests").write_text("mine")
    with pytest.raises(InputError, match="not running on this machine"):
        command.main([str(run_dir)])
    assert (run_dir / "requests").read_text() == "mine"


def test_an_unknown_run_and_no_run_at_all_are_bad_input():
    with pytest.raises(InputError, match="'job7' is neither a run's directory nor the id of a known run"):
        command.main(["job7"])
    with pytest.raises(InputError, match="none of your runs is active"):
        command.main([])


def test_an_agent_that_ends_first_is_not_waited_for(make_run, start_agent):
    run_dir = make_run("job7_1", "job7")
    start_agent(run_dir, answers=False)
    with pytest.raises(UserError, match="ended before it answered"):
        command.main([str(run_dir)])


def test_an_agent_that_does_not_answer_is_not_waited_for_for_ever(make_run, monkeypatch):
    monkeypatch.setattr(command, "ANSWER_MAX_S", 0.2)
    run_dir = make_run("job7_1", "job7")
    requests = Requests(str(run_dir / "requests"))
    try:
        with pytest.raises(UserError, match="did not answer within"):
            command.main([str(run_dir)])
    finally:
        requests.close()


def test_a_wrong_option_is_one_line_and_exit_code_2(capsys):
    with pytest.raises(SystemExit) as left:
        command.main(["--what"])
    assert left.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_help_imports_little():
    code = (
        "import sys; from holdfast.cli.stacks import _parser; _parser().format_help(); print('msgspec' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
