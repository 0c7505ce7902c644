"""The agent with real processes."""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import functions
import pytest
from liveness import exists, status
from signpost import tell

from holdfast.agent import WorkerSpec, WorkerState, effects
from holdfast.errors import InputError
from holdfast.errors.tree import InfrastructureError
from holdfast.processes import PContext, SignalException, Std
from holdfast.processes.keeper_client import KeeperClient

ENVIRONMENT = [
    "LOCAL_RANK",
    "RANK",
    "GROUP_RANK",
    "ROLE_RANK",
    "ROLE_NAME",
    "LOCAL_WORLD_SIZE",
    "WORLD_SIZE",
    "GROUP_WORLD_SIZE",
    "ROLE_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_MAX_RESTARTS",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_USE_AGENT_STORE",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING",
    "TORCHELASTIC_ERROR_FILE",
]


def events(agent):
    """Those that torch has, too."""
    path = agent._event_log_path()
    lines = [json.loads(line) for line in Path(path).read_text().splitlines()]
    return [event for event in lines if not event["name"].startswith("holdfast.")]


def states(agent, source=None):
    return [e["metadata"]["state"] for e in events(agent) if source in (None, e["source"])]


# Results


def test_success(agent_of):
    agent = agent_of(entrypoint=functions.double, args=(21,))
    result = agent.run()
    assert (result.state, result.return_values, result.failures) == (WorkerState.SUCCEEDED, {0: 42, 1: 42}, {})
    assert not result.is_failed()
    assert agent.get_worker_group().state is WorkerState.SUCCEEDED


def test_failure_by_global_rank_and_the_others_are_terminated(python_agent, post):
    script = (
        f"import os, sys; sys.path.insert(0, {os.path.dirname(functions.__file__)!r}); import functions\n"
        f"if os.environ['RANK'] == '1':\n    open({post.path!r}, 'r').readline(); sys.exit(7)\n"
        f"functions.wait_for_signal({post.path + '2'!r})"
    )
    second = type(post)(post.path + "2")
    agent = python_agent(script)
    threading.Thread(target=lambda: (second.line(), tell(post.path, "fail"))).start()
    result = agent.run()
    second.close()
    assert result.is_failed()
    assert {rank: failure.exitcode for rank, failure in result.failures.items()} == {1: 7}
    assert result.terminated == {0: -signal.SIGTERM}
    assert result.return_values == {}
    assert agent.get_worker_group().state is WorkerState.FAILED
    assert sorted(states(agent, "WORKER")) == ["FAILED", "TERMINATED"]


@pytest.mark.timeout(60)
def test_a_failure_that_is_known_with_the_start_is_not_slept_through(python_agent, monkeypatch):
    wait_until = KeeperClient.wait_until

    def wait_for_the_exit_too(kept, *args):
        poll = select.poll()
        poll.register(kept, select.POLLIN)
        while not kept.exits:
            poll.poll()
            kept.update()
        wait_until(kept, *args)

    monkeypatch.setattr(KeeperClient, "wait_until", wait_for_the_exit_too)
    agent = python_agent("import os, signal\nos._exit(3) if os.environ['RANK'] == '0' else signal.pause()")
    result = agent.run()
    assert {rank: failure.exitcode for rank, failure in result.failures.items()} == {0: 3}


def test_restarts_until_it_works(python_agent):
    script = "import os, sys; sys.exit(int(os.environ['TORCHELASTIC_RESTART_COUNT']) < 2)"
    agent = python_agent(script, max_restarts=3)
    result = agent.run()
    assert result.state is WorkerState.SUCCEEDED
    assert states(agent, "AGENT") == ["RENDEZVOUS", "ASSIGN_WORKER_RANKS", "START"] * 3
    assert states(agent, "WORKER")[-2:] == ["SUCCEEDED", "SUCCEEDED"]
    attempts = sorted(path.name for path in Path(agent._logs_specs.run_dir).glob("attempt_*"))
    assert attempts == ["attempt_0", "attempt_1", "attempt_2"]


def test_restarts_are_used_up(python_agent):
    agent = python_agent("import sys; sys.exit(3)", max_restarts=2, local_world_size=1)
    result = agent.run()
    assert result.is_failed()
    assert states(agent, "WORKER") == ["FAILED"] * 3
    restarts = [event["metadata"]["agent_restarts"] for event in events(agent) if event["source"] == "WORKER"]
    assert restarts == [0, 1, 2]


def test_a_newcomer_restarts_the_workers_without_using_the_budget(python_agent, rdzv, post):
    newcomers = []  # one comes once the first worker runs
    rdzv.needs_polling = True
    rdzv.num_nodes_waiting = lambda: len(newcomers) and newcomers.pop()
    agent = python_agent(
        f"import sys, os; sys.path.insert(0, {os.path.dirname(functions.__file__)!r}); import functions, signpost\n"
        f"first = not os.path.exists({post.path + '.second'!r})\n"
        f"open({post.path + '.second'!r}, 'a').close()\n"
        f"first and functions.wait_for_signal({post.path!r})",
        local_world_size=1,
        monitor_interval=0.01,
    )
    watcher = threading.Thread(target=lambda: (post.line(), newcomers.append(1)))
    watcher.start()
    result = agent.run()
    watcher.join()
    assert result.state is WorkerState.SUCCEEDED
    assert agent._remaining_restarts == 0
    assert states(agent, "AGENT").count("START") == 2
    attempts = sorted(path.name for path in Path(agent._logs_specs.run_dir).glob("attempt_*"))
    assert attempts == ["attempt_0", "attempt_0.1"], "the logs of the first attempt are kept"


def test_a_command_that_is_not_there_is_bad_input(agent_of):
    with pytest.raises(InputError, match="cannot start 'no-such-command': No such file"):
        agent_of(entrypoint="no-such-command").run()


def test_a_script_without_its_first_line_is_bad_input(agent_of, tmp_path):
    script = tmp_path / "script"
    script.write_text("echo hello\n")
    script.chmod(0o755)
    with pytest.raises(InputError, match=r"Exec format error; it is not a program, or has no #! line$"):
        agent_of(entrypoint=str(script)).run()


# The environment


def test_the_environment_of_a_worker(agent_of, monkeypatch):
    monkeypatch.delenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", raising=False)
    agent = agent_of(entrypoint=functions.environment, args=tuple(ENVIRONMENT), max_restarts=4)
    values = {rank: dict(zip(ENVIRONMENT, found, strict=True)) for rank, found in agent.run().return_values.items()}
    for rank in range(2):
        port, file = values[rank].pop("MASTER_PORT"), values[rank].pop("TORCHELASTIC_ERROR_FILE")
        assert int(port) > 0
        assert file.endswith(f"/attempt_0/{rank}/error.json")
        assert values[rank] == {
            "LOCAL_RANK": str(rank),
            "RANK": str(rank),
            "GROUP_RANK": "0",
            "ROLE_RANK": str(rank),
            "ROLE_NAME": "trainer",
            "LOCAL_WORLD_SIZE": "2",
            "WORLD_SIZE": "2",
            "GROUP_WORLD_SIZE": "1",
            "ROLE_WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "TORCHELASTIC_RESTART_COUNT": "0",
            "TORCHELASTIC_MAX_RESTARTS": "4",
            "TORCHELASTIC_RUN_ID": "the-run",
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        }


def test_what_the_parent_and_the_specification_say_wins(agent_of, monkeypatch):
    monkeypatch.setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")
    names = ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_TIMER_FILE")
    names = (*names, "TORCHELASTIC_USE_AGENT_STORE")
    agent = agent_of(entrypoint=functions.environment, args=names, master_addr="10.0.0.9", master_port=77)
    assert agent.run().return_values[0] == ["0", "10.0.0.9", "77", None, "False"]


def test_what_jax_looks_for(agent_of, monkeypatch):
    names = ("JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "JAX_LOCAL_DEVICE_IDS", "JAX_COORDINATOR_ADDRESS", "MASTER_PORT")
    monkeypatch.setenv("JAX_PROCESS_ID", "stale")
    values = agent_of(entrypoint=functions.environment, args=names).run().return_values
    assert [values[rank][:3] for rank in range(2)] == [["2", "0", "0"], ["2", "1", "1"]]
    address, master_port = values[0][3:]
    assert values[1][3] == address
    assert address.startswith("127.0.0.1:")
    assert address != f"127.0.0.1:{master_port}"
    monkeypatch.setenv("JAX_LOCAL_DEVICE_IDS", "7")
    assert agent_of(entrypoint=functions.environment, args=names[2:3]).run().return_values == {0: ["7"], 1: ["7"]}
    monkeypatch.delenv("JAX_LOCAL_DEVICE_IDS")
    one = agent_of(entrypoint=functions.environment, args=names[2:3], local_world_size=1)
    assert one.run().return_values == {0: [None]}, "a single worker may use all devices"


PING = """
import os, socket, struct
with socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))) as store:
    store.sendall(struct.pack("<BIBI", 0, 0x3C85F7CE, 13, 4711))
    assert store.recv(4) == struct.pack("<I", 4711)
"""


def test_the_agent_answers_at_the_masters_port(python_agent):
    assert python_agent(PING).run().state is WorkerState.SUCCEEDED
    assert not [thread for thread in threading.enumerate() if "torchstore" in thread.name]


def test_every_attempt_has_a_store_of_its_own(python_agent):
    script = """
import os, socket, struct
def blob(text): return struct.pack("<Q", len(text)) + text
with socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))) as store:
    store.sendall(struct.pack("<BI", 0, 0x3C85F7CE) + b"\x07")
    assert store.recv(8) == struct.pack("<q", 0), "no keys"
    store.sendall(b"\x01" + blob(b"key") + blob(b"value") + b"\x07")
    assert store.recv(8) == struct.pack("<q", 1)
assert os.environ["TORCHELASTIC_RESTART_COUNT"] == "1"
"""
    assert python_agent(script, local_world_size=1, max_restarts=1).run().state is WorkerState.SUCCEEDED


def test_a_store_that_nobody_uses_costs_no_thread(python_agent, monkeypatch):
    from holdfast.torchstore import TorchStoreServer

    monkeypatch.setattr(TorchStoreServer, "start", lambda _: pytest.fail("nobody has connected"))
    assert python_agent("").run().state is WorkerState.SUCCEEDED


@pytest.mark.parametrize(
    ("visible", "expected"), [(None, ["0", "1"]), ("5,7,9", ["5", "7"]), ("GPU-a,GPU-b", ["GPU-a", "GPU-b"])]
)
def test_virtual_local_ranks(agent_of, monkeypatch, visible, expected):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    names = ("LOCAL_RANK", "RANK", "CUDA_VISIBLE_DEVICES")
    values = agent_of(entrypoint=functions.environment, args=names, virtual_local_rank=True).run().return_values
    assert values == {0: ["0", "0", expected[0]], 1: ["0", "1", expected[1]]}


def test_virtual_local_ranks_need_devices(agent_of, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    with pytest.raises(InputError, match="CUDA_VISIBLE_DEVICES='3': it lists 1 devices"):
        agent_of(virtual_local_rank=True).run()


def test_the_local_rank_in_arguments(agent_of):
    agent = agent_of(
        entrypoint="sh", args=("-c", "echo ${local_rank} $local_rank $$ ${HOME}"), logs={"redirects": Std.OUT}
    )
    agent.run()
    for rank in range(2):
        first, second, *_ = (Path(agent._logs_specs.run_dir) / f"attempt_0/{rank}/stdout.log").read_text().split()
        assert (first, second) == (str(rank), str(rank))


@pytest.mark.parametrize("how", ["argument", "environment"])
def test_the_prefix_of_lines(agent_of, monkeypatch, capfd, how):
    template = "<${role_name}:${rank}:${local_rank}> "
    if how == "environment":
        monkeypatch.setenv("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", template)
    agent = agent_of(
        entrypoint="echo",
        args=("hello",),
        logs={"tee": Std.OUT},
        agent={"log_line_prefix_template": template} if how == "argument" else None,
    )
    agent.run()
    assert sorted(capfd.readouterr().out.splitlines()) == ["<trainer:0:0> hello", "<trainer:1:1> hello"]


# Signals and stopping


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_passed_on(python_agent, post, signum):
    agent = python_agent(
        f"import sys; sys.path.insert(0, {os.path.dirname(functions.__file__)!r}); import functions\n"
        f"functions.report_signal({post.path!r})"
    )
    main, got = threading.get_ident(), []

    def interrupt():
        got.extend(post.lines(2))
        signal.pthread_kill(main, signum)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(SignalException) as raised:
        agent.run()
    thread.join()
    assert raised.value.sigval is signum
    assert [line.split()[0] for line in post.lines(2)] == [signum.name] * 2
    assert not any(exists(int(line.split()[1])) for line in got)


@pytest.mark.parametrize("signals", [1, 2])
def test_no_signal_leaves_workers_behind_when_the_agent_shuts_down_after_an_error(python_agent, post, signals):
    """After `run`, a node gives back its lease, and others may start beside workers that live."""
    ignoring = f"import sys; sys.path.insert(0, {os.path.dirname(functions.__file__)!r}); import functions\n"
    ignoring += f"functions.outlive_signals({post.path!r})"
    agent = python_agent(ignoring, agent={"shutdown_timeout": 3.0 if signals == 1 else 600.0})
    pids = []
    main = threading.get_ident()

    def interrupt():
        for signum in (signal.SIGINT, signal.SIGTERM)[:signals]:
            post.lines(2)  # each worker has got a signal, so the agent waits for their end
            signal.pthread_kill(main, signum)

    thread = threading.Thread(target=interrupt)

    def fail(_group):
        pids.extend(int(line.split()[1]) for line in post.lines(2))
        thread.start()
        raise OSError(errno.EMFILE, "Too many open files")

    agent._wait_for_change = fail
    with pytest.raises(SignalException):
        agent.run()
    thread.join()
    assert len(pids) == 2
    assert not any(map(exists, pids))


def test_a_signal_while_the_rendezvous_waits(agent_of, rdzv):
    main = threading.get_ident()

    def wait_for_nobody():
        threading.Timer(0.1, signal.pthread_kill, (main, signal.SIGTERM)).start()
        threading.Event().wait(60)
        raise AssertionError("the wait was not interrupted")

    rdzv.next_rendezvous = wait_for_nobody
    with pytest.raises(SignalException):
        agent_of().run()


def test_a_signal_in_the_pause_between_attempts_tells_of_no_failure_twice(python_agent, post, monkeypatch):
    """The workers listened for the request to stop, and are gone."""
    script = "import os, holdfast.worker as w; w.heartbeat(1); os.kill(os.getpid(), 9)"
    agent = python_agent(script, max_restarts=5, local_world_size=1)
    monkeypatch.setattr(effects, "pause_until", lambda _: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(SignalException):
        agent.run()
    assert states(agent, "WORKER") == ["FAILED", "FAILED"]
    lines = Path(agent._event_log_path()).read_text().splitlines()
    assert sum(json.loads(line)["name"] == "holdfast.failure" for line in lines) == 2


def test_the_shutdown_timeout_holds_when_a_worker_fails(python_agent, post):
    script = (
        f"import os, sys, signal; sys.path.insert(0, {os.path.dirname(functions.__file__)!r}); import functions\n"
        f"signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"if os.environ['RANK'] == '1':\n    open({post.path!r}, 'r').readline(); sys.exit(7)\n"
        f"functions.wait_and_ignore_sigterm({post.path + '2'!r})"
    )
    second = type(post)(post.path + "2")
    agent = python_agent(script, agent={"shutdown_timeout": 0.2})
    threading.Thread(target=lambda: (second.line(), tell(post.path, "fail"))).start()
    began = time.monotonic()
    result = agent.run()
    second.close()
    assert result.terminated == {0: -signal.SIGKILL}
    assert time.monotonic() - began < 25, "30 s is what it would be with the default"


def test_an_idle_agent_does_not_wake_up(tmp_path, post):
    """Context switches of the agent's process over some seconds, from its workers' start on."""
    script = f"""
import sys; sys.path.insert(0, {os.path.dirname(functions.__file__)!r})
import functions
from holdfast.launcher import LaunchConfig, elastic_launch
if __name__ == "__main__":
    elastic_launch(LaunchConfig(1, 1, 2, rdzv_backend="c10d"), functions.wait_for_signal)({post.path!r})
"""
    (tmp_path / "job.py").write_text(script)
    job = subprocess.Popen([sys.executable, tmp_path / "job.py"])
    try:
        pids = post.pids(2)
        while not status(job.pid, "State").startswith("S"):
            os.sched_yield()
        # The events that were held back are being written now; let them.
        time.sleep(0.5)
        before = status(job.pid, "voluntary_ctxt_switches"), status(job.pid, "nonvoluntary_ctxt_switches")
        time.sleep(3)
        assert before == (status(job.pid, "voluntary_ctxt_switches"), status(job.pid, "nonvoluntary_ctxt_switches"))
    finally:
        job.terminate()
        job.wait(60)
    assert not any(exists(pid) for pid in pids)


# Watchdog and health


@pytest.fixture
def timers(monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_ENABLE_FILE_TIMER", "1")


TIMER = """
import os, time
from {package} import FileTimerClient, configure, expires
configure(FileTimerClient(os.environ["TORCHELASTIC_TIMER_FILE"]))
with expires(after=0.1 if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" else 600, scope="the slow part"):
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and os.environ["RANK"] == "0":
        time.sleep(600)
"""


@pytest.mark.parametrize(
    "package",
    [
        pytest.param("holdfast.watchdog", id="our client"),
        pytest.param("torch.distributed.elastic.timer", id="torch's client", marks=pytest.mark.torch),
    ],
)
@pytest.mark.usefixtures("timers")
def test_an_expired_timer_costs_one_attempt_and_not_the_agent(python_agent, package, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    agent = python_agent(TIMER.format(package=package), max_restarts=1, local_world_size=1)
    result = agent.run()
    assert result.state is WorkerState.SUCCEEDED
    (failed,) = [event["metadata"] for event in events(agent) if event["metadata"]["state"] == "FAILED"]
    assert "the slow part" in failed["raw_error"]
    names = [event["name"] for event in events(agent)]
    assert "timer expired" in names
    assert "kill worker process" in names
    assert not list(tmp_path.glob("watchdog_timer_*")), "the pipe is gone"


def test_health_is_answered_from_before_the_rendezvous_on(agent_of, rdzv, monkeypatch):
    asked = []
    original = rdzv.next_rendezvous
    server = None

    def next_rendezvous():
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/", timeout=30) as answer:
            asked.append((answer.status, json.load(answer)["healthy"]))
        return original()

    rdzv.next_rendezvous = next_rendezvous
    monkeypatch.setenv("TORCHELASTIC_HEALTH_CHECK_PORT", "0")
    agent = agent_of()
    setup = agent._setup_healthcheck

    def setup_and_tell():
        nonlocal server
        setup()
        server = agent._health_check_server

    agent._setup_healthcheck = setup_and_tell
    barrier = agent._exit_barrier

    def exit_barrier():
        next_rendezvous()
        barrier()

    agent._exit_barrier = exit_barrier
    agent.run()
    assert asked == [(200, True)] * 2
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://127.0.0.1:{server.port}/", timeout=30)


@pytest.mark.parametrize(
    ("text", "address"),
    [("0", "0.0.0.0"), ("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "::1"), ("localhost:0", "127.0.0.1")],
)
def test_health_is_answered_at_the_address_that_was_given(agent_of, monkeypatch, text, address):
    monkeypatch.setenv("TORCHELASTIC_HEALTH_CHECK_PORT", text)
    agent = agent_of()
    bound = []
    setup = agent._setup_healthcheck

    def setup_and_look():
        setup()
        bound.append(agent._health_check_server._listener.getsockname()[0])

    agent._setup_healthcheck = setup_and_look
    agent.run()
    assert bound == [address]


@pytest.mark.parametrize("text", ["abc", "127.0.0.1:", "127.0.0.1:abc", "65536", "9" * 5_000])
def test_a_health_port_that_is_no_number(agent_of, monkeypatch, text):
    monkeypatch.setenv("TORCHELASTIC_HEALTH_CHECK_PORT", text)
    assert agent_of().run().state is WorkerState.SUCCEEDED


def test_a_health_port_that_is_taken_is_bad_input(agent_of, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        text = f"127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setenv("TORCHELASTIC_HEALTH_CHECK_PORT", text)
        with pytest.raises(InputError, match=f"^TORCHELASTIC_HEALTH_CHECK_PORT={text}: .*Address already in use"):
            agent_of().run()


# Torch on the other side


@pytest.mark.torch
def test_torchs_record_in_a_worker_is_understood(python_agent):
    script = (
        "from torch.distributed.elastic.multiprocessing.errors import record\n"
        "@record\ndef main():\n    raise ValueError('said to torch')\nmain()"
    )
    failure = python_agent(script, local_world_size=1).run().failures[0]
    assert failure.error_file_data["message"]["message"] == "ValueError: said to torch"
    assert "said to torch" in failure.message


# The specification


def test_a_specification_says_what_is_wrong(rdzv):
    for spec, message in (
        ({"local_world_size": 0}, "0 workers"),
        ({"monitor_interval": 0}, "monitor interval"),
        ({"max_restarts": -1}, "-1 restarts"),
        ({"entrypoint": None}, "neither a function nor a command"),
    ):
        with pytest.raises(InputError, match=message):
            WorkerSpec(**{"role": "r", "local_world_size": 1, "rdzv_handler": rdzv, "entrypoint": "true", **spec})


def test_the_old_name_of_an_entrypoint(rdzv):
    with pytest.warns(DeprecationWarning, match="entrypoint"):
        spec = WorkerSpec("r", 1, rdzv, fn=functions.double)
    assert spec.entrypoint is functions.double
    assert spec.get_entrypoint_name() == "double"


def test_nothing_is_started_beside_a_process_that_survives_sigkill(python_agent, monkeypatch):
    """No process survives root's SIGKILL here: that one does is what the set is made to say."""
    agent = python_agent("raise SystemExit(3)", max_restarts=3)
    monkeypatch.setattr(PContext, "stuck", property(lambda _: (4242,)))
    with pytest.raises(InfrastructureError, match="SIGKILL did not end PID 4242"):
        agent.run()
    run = Path(agent._logs_specs.run_dir)
    assert [path.name for path in run.glob("attempt_*")] == ["attempt_0"]


def test_a_worker_stuck_in_the_kernel_is_not_restarted():
    from holdfast.agent.uninterruptible import UninterruptibleWatch

    state = {1: "S", 2: "D"}
    watch = UninterruptibleWatch(10, state.get)
    assert watch.look([1, 2], 0) is None
    assert watch.look([1, 2], 9) is None
    assert watch.look([1, 2], 10) == 2
    state[2] = "R"
    assert watch.look([1, 2], 20) is None
    state[2] = "D"
    assert watch.look([1, 2], 21) is None, "it starts anew"
