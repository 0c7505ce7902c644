"""From a configuration to a running job."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import functions
import pytest
from signpost import Signpost

from holdfast.agent import LocalElasticAgent
from holdfast.errors import ChildFailedError, InputError
from holdfast.events import EventLog
from holdfast.launcher import LaunchConfig, elastic_launch, launch_agent
from holdfast.processes import DefaultLogsSpecs, SignalException, Std
from holdfast.processes.interruption import handlers
from holdfast.rendezvous import RendezvousHandler, RendezvousParameters, registry
from holdfast.rendezvous.static import StaticRendezvous


@pytest.fixture
def config(tmp_path):
    def make(**options):
        specs = DefaultLogsSpecs(log_dir=str(tmp_path / "logs"))
        return LaunchConfig(**{"min_nodes": 1, "max_nodes": 1, "nproc_per_node": 2, "logs_specs": specs, **options})

    return make


def test_values_by_global_rank(config):
    assert elastic_launch(config(), functions.double)(21) == {0: 42, 1: 42}


def test_launch_agent(config):
    assert launch_agent(config(), functions.double, [4]) == {0: 8, 1: 8}


def test_a_command(config, tmp_path):
    logs = DefaultLogsSpecs(log_dir=str(tmp_path), redirects=Std.OUT)
    assert elastic_launch(config(logs_specs=logs), "echo")("${local_rank}") == {0: None, 1: None}
    assert sorted(path.read_text() for path in tmp_path.rglob("stdout.log")) == ["0\n", "1\n"]


def test_a_failure_is_raised(config):
    with pytest.raises(ChildFailedError, match="fail FAILED") as raised:
        elastic_launch(config(max_restarts=0), functions.fail)("the reason")
    rank, failure = raised.value.get_first_failure()
    assert rank in {0, 1}
    assert "ValueError: the reason" in failure.message


def test_a_launch_without_a_guard_says_that_workers_import_the_file(tmp_path):
    program = tmp_path / "unguarded.py"
    program.write_text(
        "from holdfast.launcher import LaunchConfig, elastic_launch\n"
        "def train(): pass\n"
        "elastic_launch(LaunchConfig(1, 1, 2, rdzv_backend='static'), train)()\n"
    )
    ended = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    block = ended.stderr.rpartition("Root Cause")[2]
    assert "kind      : exception" in block
    assert f"where     : {program}:3 in <module>" in block
    assert 'advice    : Put the launch under `if __name__ == "__main__":`' in block
    assert "recorded no Python exception" not in ended.stderr
    assert "restart 1" not in ended.stderr


@pytest.mark.parametrize("entrypoint", [5, "", None, ["train.py"]])
def test_what_cannot_be_run_is_named(entrypoint, config):
    with pytest.raises(InputError, match=rf"the entry point {re.escape(repr(entrypoint))} must be a function, or the"):
        elastic_launch(config(), entrypoint)()


def test_keyword_arguments_reach_the_function(config):
    assert elastic_launch(config(), functions.scaled)(21, factor=2) == {0: 42, 1: 42}
    assert elastic_launch(config(start_method="fork"), lambda *, by: by)(by=3) == {0: 3, 1: 3}


def test_a_failure_with_keyword_arguments_has_the_functions_name(config):
    with pytest.raises(ChildFailedError, match=r"\n=+\nfail FAILED"):
        elastic_launch(config(max_restarts=0), functions.fail)(text="why not")


def test_a_program_has_no_keyword_arguments(config):
    with pytest.raises(InputError, match="the program 'echo' has no argument 'lr'; write it as a word"):
        elastic_launch(config(), "echo")(lr=1)


def test_the_handler_comes_from_the_registrys_function_and_is_shut_down_once(config, monkeypatch):
    """As torch does: also if the function was replaced, and if the agent raises, but not after a signal."""
    made = []

    class Handler(StaticRendezvous):
        def shutdown(self):
            made.append("shut down")
            return super().shutdown()

    def replaced(params):
        made.append(params.run_id)
        return Handler.alone(params)

    monkeypatch.setattr(registry, "get_rendezvous_handler", replaced)
    assert elastic_launch(config(run_id="mine"), functions.double)(1) == {0: 2, 1: 2}
    assert made == ["mine", "shut down"]

    def broken(*_):
        raise RuntimeError("the agent is broken")

    made.clear()
    monkeypatch.setattr(LocalElasticAgent, "run", broken)
    with pytest.raises(RuntimeError, match="the agent is broken"):
        elastic_launch(config(run_id="mine"), functions.double)(1)
    assert made == ["mine", "shut down"]

    def asked_to_stop(*_):
        raise SignalException("asked to stop", signal.SIGTERM)

    made.clear()
    monkeypatch.setattr(LocalElasticAgent, "run", asked_to_stop)
    with pytest.raises(SignalException):
        elastic_launch(config(run_id="mine"), functions.double)(1)
    assert made == ["mine"]


def test_a_script_gives_the_failure_its_name(config):
    with pytest.raises(ChildFailedError, match=r"train\.py FAILED"):
        elastic_launch(config(max_restarts=0), sys.executable)("-u", "train.py", "--flag")


def test_one_agent_event_for_a_run(config):
    for entrypoint, expected in ((functions.nothing, "SUCCEEDED"), (functions.crash, "FAILED")):
        settings = config(max_restarts=0)
        with contextlib.suppress(ChildFailedError):
            elastic_launch(settings, entrypoint)()
        lines = [
            json.loads(line) for line in (Path(settings.logs_specs.run_dir) / "events.jsonl").read_text().splitlines()
        ]
        ends = [
            event["metadata"]["state"]
            for event in lines
            if event["name"].startswith("torchelastic.worker.status.")
            and event["source"] == "AGENT"
            and event["metadata"]["duration_ms"] is None
        ]
        assert ends == [expected]
        times = [event["timestamp"] for event in lines]
        assert times == sorted(times)
        assert times[0] > 1_700_000_000


@pytest.mark.parametrize("entrypoint", [functions.nothing, functions.crash])
def test_the_agents_event_is_written_before_the_log_is_closed(config, monkeypatch, entrypoint):
    done = []
    write, close = EventLog.write, EventLog.close

    def noted_write(log, event):
        done.append(getattr(event, "name", "an event of the run"))
        write(log, event)

    def noted_close(log):
        done.append("closed")
        close(log)

    monkeypatch.setattr(EventLog, "write", noted_write)
    monkeypatch.setattr(EventLog, "close", noted_close)
    with contextlib.suppress(ChildFailedError):
        elastic_launch(config(max_restarts=0), entrypoint)()
    assert done.count("closed") == 1
    assert done[-2].startswith("torchelastic.worker.status.")
    assert done[-1] == "closed"


def test_from_a_thread(config):
    results = []
    thread = threading.Thread(target=lambda: results.append(elastic_launch(config(), functions.double)(1)))
    thread.start()
    thread.join()
    assert results == [{0: 2, 1: 2}]


def test_inside_a_running_event_loop(config):
    async def main():
        return elastic_launch(config(), functions.double)(1)

    assert asyncio.run(main()) == {0: 2, 1: 2}


@pytest.mark.parametrize("start_method", ["spawn", "fork", "forkserver"])
def test_start_methods(config, start_method):
    assert elastic_launch(config(start_method=start_method), functions.double)(3) == {0: 6, 1: 6}


def test_a_run_without_an_id_gets_one(config):
    found = elastic_launch(config(run_id=""), functions.environment)("TORCHELASTIC_RUN_ID")
    assert found[0] == found[1]
    assert len(found[0][0]) == 32
    assert elastic_launch(config(run_id="mine"), functions.environment)("TORCHELASTIC_RUN_ID")[0] == ["mine"]


def test_the_signals_to_handle_are_told_to_the_workers_and_forgotten_afterwards(config):
    settings = config(signals_to_handle="SIGTERM,SIGUSR1")
    found = elastic_launch(settings, functions.environment)("TORCHELASTIC_SIGNALS_TO_HANDLE")
    assert found[0] == ["SIGTERM,SIGUSR1"]
    assert "TORCHELASTIC_SIGNALS_TO_HANDLE" not in os.environ
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_the_signals_to_handle_are_those_of_the_configuration_whatever_the_environment_says(config, monkeypatch):
    """And nothing of the launch is in the environment of this process, where another thread would find it."""
    seen = []
    look = LocalElasticAgent._monitor_workers

    def watch(agent, group):
        seen.append((dict(os.environ), signal.getsignal(signal.SIGUSR1), signal.getsignal(signal.SIGUSR2)))
        return look(agent, group)

    monkeypatch.setattr(LocalElasticAgent, "_monitor_workers", watch)
    monkeypatch.setenv("TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGUSR2")
    before = dict(os.environ)
    settings = config(signals_to_handle="SIGUSR1")
    assert elastic_launch(settings, functions.environment)("TORCHELASTIC_SIGNALS_TO_HANDLE")[0] == ["SIGUSR1"]
    assert seen
    assert all(environ == before for environ, _, _ in seen)
    assert all(usr1 == handlers._handle and usr2 is signal.SIG_DFL for _, usr1, usr2 in seen)


def test_the_rendezvous_is_shut_down_after_success_and_failure_but_not_after_a_signal(config, monkeypatch, tmp_path):
    calls = []
    monkeypatch.setattr(StaticRendezvous, "shutdown", lambda self: calls.append(self) or True)
    elastic_launch(config(), "true")()
    with pytest.raises(ChildFailedError):
        elastic_launch(config(max_restarts=0), "false")()
    assert len(calls) == 2
    post = Signpost(tmp_path / "signpost")
    main_thread = threading.get_ident()
    sender = threading.Thread(target=lambda: (post.lines(2), signal.pthread_kill(main_thread, signal.SIGTERM)))
    sender.start()
    with pytest.raises(SignalException):
        elastic_launch(config(), functions.wait_for_signal)(post.path)
    sender.join()
    post.close()
    assert len(calls) == 2


def test_an_interrupted_cell_gets_a_keyboard_interrupt(config, tmp_path):
    post = Signpost(tmp_path / "signpost")
    main_thread = threading.get_ident()
    sender = threading.Thread(target=lambda: (post.lines(2), signal.pthread_kill(main_thread, signal.SIGINT)))
    sender.start()
    with pytest.raises(KeyboardInterrupt) as raised:
        elastic_launch(config(), functions.wait_for_signal)(post.path)
    sender.join()
    post.close()
    assert isinstance(raised.value, SignalException)
    assert raised.value.sigval is signal.SIGINT


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shutdown_timeout": -1}, r"LaunchConfig\(shutdown_timeout=-1\)"),
        ({"signals_to_handle": "SIGNONE"}, r"LaunchConfig\(signals_to_handle='SIGNONE'\): unknown signal"),
        ({"rdzv_backend": "nonsense"}, "--rdzv-backend 'nonsense'"),
        ({"start_method": "thread"}, r"LaunchConfig\(start_method='thread'\): choose from spawn, fork"),
        ({"nproc_per_node": 0}, r"LaunchConfig\(nproc_per_node=0\): must be at least 1"),
        ({"min_nodes": 0}, r"LaunchConfig\(min_nodes=0\): must be at least 1"),
    ],
)
def test_bad_input(config, options, message):
    before = dict(os.environ)
    with pytest.raises(InputError, match=message):
        elastic_launch(config(**options), functions.nothing)()
    assert dict(os.environ) == before


def test_the_shutdown_timeout_of_the_environment(config, monkeypatch):
    monkeypatch.setenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "x")
    with pytest.raises(InputError, match="TORCH_ELASTIC_SHUTDOWN_TIMEOUT 'x'"):
        elastic_launch(config(), functions.nothing)()


def test_several_jobs_one_after_the_other_on_one_port(config):
    for _ in range(3):
        settings = config(rdzv_backend="static", rdzv_endpoint="127.0.0.1:29511", rdzv_configs={"rank": 0})
        assert elastic_launch(settings, functions.environment)("MASTER_PORT") == {0: ["29511"], 1: ["29511"]}


def test_a_handler_that_was_made_for_torch_is_asked_for_no_more_than_torch_asks(config, monkeypatch):
    class Theirs:
        """Without the extensions of ours."""

        def __init__(self):
            own = StaticRendezvous.alone(RendezvousParameters("static", "", "theirs", 1, 1))
            for name in [*RendezvousHandler.__abstractmethods__, "use_agent_store"]:
                setattr(self, name, getattr(own, name))

    monkeypatch.setattr(registry, "get_rendezvous_handler", lambda _: Theirs())
    assert elastic_launch(config(), functions.environment)("TORCHELASTIC_RUN_ID")[0] == ["theirs"]


TYPED = """
from holdfast import LaunchConfig, elastic_launch, record

config = LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node=2)

@record
def other(x: int) -> None: ...

def train(steps: int, *, rate: float = 0.1) -> str:
    return str(steps * rate)

reveal_type(elastic_launch(config, train)(3, rate=0.5))
reveal_type(elastic_launch(config, "train.py")("--steps", 3))
reveal_type(elastic_launch(config, lambda: 1)())
elastic_launch(config, train)("3")  # wrong
elastic_launch(config, train)()  # wrong
elastic_launch(config, train)(3, speed=1)  # wrong
elastic_launch(config, 5)  # wrong
LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node="gpu")  # wrong
LaunchConfig(1, 1, 1, no_such_field=1)  # wrong
"""


def test_a_type_checker_knows_the_functions_arguments_and_its_results(tmp_path):
    pytest.importorskip("mypy")
    program = tmp_path / "program.py"
    program.write_text(TYPED)
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={tmp_path}", "program.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    found = re.findall(r"^program\.py:(\d+): (error|note: Revealed type is \".*\")", checked.stdout, re.MULTILINE)
    types = [what.partition('"')[2].rstrip('"').replace("builtins.", "") for _, what in found if what != "error"]
    assert types == ["dict[int, str]", "dict[int, None]", "dict[int, int]"], checked.stdout
    wrong = [number for number, line in enumerate(TYPED.splitlines(), start=1) if line.endswith("# wrong")]
    assert [int(number) for number, what in found if what == "error"] == wrong, checked.stdout
