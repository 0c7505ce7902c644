"""Commands as processes of a set."""

from __future__ import annotations

import os
import resource
import signal
import sys
from pathlib import Path

import pytest
from liveness import exists, status

from holdfast import descriptors
from holdfast.errors import InputError
from holdfast.processes import Std

SUPPORT = {"PYTHONPATH": os.path.join(os.path.dirname(__file__), "../support")}


def waiting(post):
    """Arguments for an interpreter that says its identifier and waits for a signal."""
    return "-c", f"import functions; functions.wait_for_signal({post.path!r})"


pytestmark = pytest.mark.usefixtures("image", "nothing_left")


def test_a_set_that_succeeds(run_python, logs):
    scripts = ["print('out')", "import sys; print('err', file=sys.stderr)"]
    context = run_python(scripts, logs_specs=logs(redirects=Std.ALL))
    result = context.wait()
    assert not result.is_failed()
    assert result.return_values == {0: None, 1: None}
    assert result.failures == {}
    assert Path(result.stdouts[0]).read_text() == "out\n"
    assert Path(result.stderrs[1]).read_text() == "err\n"


def test_arguments_and_environments_by_rank(start, tmp_path, monkeypatch):
    monkeypatch.setenv("INHERITED", "yes")
    monkeypatch.setenv("REPLACED", "no")
    script = (
        "import os, sys; values = map(os.environ.get, ('INHERITED', 'REPLACED'));"
        "open(sys.argv[1], 'w').write(' '.join([*sys.argv[2:], *values]))"
    )
    context = start(
        sys.executable,
        [("-c", script, tmp_path / f"result{rank}", rank, "a b") for rank in range(2)],
        envs={rank: {"REPLACED": f"rank{rank}"} for rank in range(2)},
    )
    assert not context.wait().is_failed()
    assert [(tmp_path / f"result{rank}").read_text() for rank in range(2)] == ["0 a b yes rank0", "1 a b yes rank1"]


def test_a_command_is_found_on_the_path_of_its_environment(start, tmp_path):
    tool = tmp_path / "tool-of-this-test"
    tool.write_text("#!/bin/sh\nexit 7\n")
    tool.chmod(0o755)
    context = start(tool.name, [()], envs={0: {"PATH": f"{tmp_path}:/usr/bin:/bin"}})
    assert context.wait().failures[0].exitcode == 7


@pytest.mark.parametrize(
    ("command", "error"),
    [("no-such-command", FileNotFoundError), ("/etc/passwd", PermissionError), ("/", PermissionError)],
)
def test_a_command_that_cannot_start_raises_and_its_siblings_end(start, command, error):
    with pytest.raises(error) as raised:
        start(command, [(), (), ()])
    assert raised.value.filename == command


def test_a_log_that_cannot_be_opened_raises_its_name(start, logs):
    class Specs(type(logs())):
        def reify(self, envs):
            destinations = super().reify(envs)
            destinations.stdouts[1] = "/no/such/directory/stdout.log"
            return destinations

    with pytest.raises(FileNotFoundError, match=r"/no/such/directory/stdout\.log"):
        start("sleep", [("1000",), ("1000",)], logs_specs=Specs())


@pytest.mark.parametrize(
    ("script", "exitcode", "signal_name"),
    [
        ("raise SystemExit(3)", 3, "<N/A>"),
        ("import os; os._exit(255)", 255, "<N/A>"),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL, "SIGKILL"),
        ("import os; os.abort()", -signal.SIGABRT, "SIGABRT"),
        ("1/0", 1, "<N/A>"),
    ],
)
def test_a_failure_has_its_exit_code(run_python, script, exitcode, signal_name):
    result = run_python([script]).wait()
    failure = result.failures[0]
    assert result.is_failed()
    assert (failure.local_rank, failure.exitcode, failure.signal_name()) == (0, exitcode, signal_name)
    assert failure.pid > 0


def test_a_kill_from_outside(start, post):
    context = start(sys.executable, [waiting(post)], {0: SUPPORT})
    (pid,) = post.pids(1)
    assert context.pids() == {0: pid}
    os.kill(pid, signal.SIGKILL)
    assert context.wait().failures[0].signal_name() == "SIGKILL"


def test_workers_lead_sessions_of_their_own(start, post):
    start(sys.executable, [waiting(post)] * 2, {0: SUPPORT, 1: SUPPORT})
    for pid in post.pids(2):
        assert os.getsid(pid) == pid
        assert os.getpgid(pid) == pid


def test_workers_start_with_the_signals_of_a_plain_program(start, post):
    """Ours must not be inherited: an ignored signal would be ignored by the user's program for good."""
    ignored_here = {s for s in signal.valid_signals() if signal.getsignal(s) is signal.SIG_IGN}
    assert ignored_here >= {signal.SIGPIPE}, "Python ignores it; a worker must not"
    start("sh", [("-c", f"echo $$ >> {post.path}; exec sleep 1000")])
    (pid,) = post.pids(1)
    ignored_there = int(status(pid, "SigIgn"), 16)
    ignored_there = {s for s in signal.valid_signals() if ignored_there & (1 << (s - 1))}
    assert ignored_there == ignored_here - {signal.SIGPIPE, signal.SIGXFSZ}
    assert int(status(pid, "SigBlk"), 16) == 0


def test_a_signal_that_the_parent_ignores_stays_ignored(start, post):
    before = signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    try:
        start("sh", [("-c", f"echo $$ >> {post.path}; exec sleep 1000")])
        (pid,) = post.pids(1)
        assert int(status(pid, "SigIgn"), 16) & (1 << (signal.SIGUSR2 - 1))
    finally:
        signal.signal(signal.SIGUSR2, before)


def test_a_limit_that_the_agent_has_raised_for_itself_is_not_the_workers(start, image, monkeypatch):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    monkeypatch.setattr(descriptors, "_change", descriptors._change)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        assert descriptors.allow(300) == 300
        assert descriptors.allow(400) == 400
        assert descriptors.allow(350) == 400
        result = start("sh", [("-c", 'test "$(ulimit -Sn) $(ulimit -Hn)" = "256 $0"', str(hard))]).wait()
        assert not result.is_failed()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (400, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_workers_inherit_the_standard_descriptors_only(start, tmp_path):
    with open(tmp_path / "secret", "w") as secret:
        os.set_inheritable(secret.fileno(), True)
        listing = tmp_path / "listing"
        # The shell's own descriptor for the listing is 1, and ls holds the directory.
        assert not start("sh", [("-c", f"exec ls /proc/self/fd > {listing}")]).wait().is_failed()
    assert sorted(listing.read_text().split(), key=int) == ["0", "1", "2", "3"]


def test_the_set_has_one_log_line_for_each_write_and_appends(run_python, logs, tmp_path):
    script = "import os; os.write(1, b'a\\n'); os.truncate(1, 0); os.write(1, b'b\\n')"
    result = run_python([script], logs_specs=logs(redirects=Std.OUT)).wait()
    assert Path(result.stdouts[0]).read_bytes() == b"b\n", "a log that was cut must not get a hole"


@pytest.mark.parametrize(
    ("args", "envs", "message"),
    [
        ({}, {}, "no process"),
        ({0: (), 1: ()}, {0: {}}, "envs has no rank 1"),
        ({0: (), 2: ()}, {0: {}, 1: {}}, "args has no rank 1"),
        ({1: ()}, {1: {}}, "args has no rank 0"),
        ({0: ()}, {0: {}, 1: {}}, "args has no rank 1"),
    ],
)
def test_a_missing_rank_is_named(logs, args, envs, message):
    from holdfast.processes import start_processes

    with pytest.raises(InputError, match=message):
        start_processes("set", "true", args, envs, logs())
    with pytest.raises(RuntimeError, match="set: "):
        start_processes("set", "true", args, envs, logs())


def test_hundreds_of_processes(start):
    result = start("sh", [("-c", "exit 0") for _ in range(300)]).wait()
    assert len(result.return_values) == 300


def test_processes_are_reaped_when_wait_returns(run_python):
    context = run_python(["", ""])
    pids = context.pids()
    assert len(set(pids.values())) == 2
    context.wait()
    assert not any(exists(pid) for pid in pids.values())
