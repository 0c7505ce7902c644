"""A set from its start to its end: waiting, stopping, and what the result says."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time

import functions
import pytest
from liveness import exists, footprint, status, wait_for_end
from signpost import tell

from holdfast.errors import InputError
from holdfast.processes import DefaultLogsSpecs, PContext, RunProcsResult, Std, start_processes
from holdfast.processes.interruption import handlers

pytestmark = pytest.mark.usefixtures("image", "nothing_left")


@pytest.fixture
def gate(tmp_path):
    """A pipe that a worker waits on until the test opens it."""
    path = str(tmp_path / "gate")
    os.mkfifo(path)
    return path


# Waiting


def test_wait_zero_is_one_look(start, post, gate):
    context = start("sh", [("-c", f"read line < {gate}")])
    assert context.wait(0) is None
    tell(gate, "")
    while context.wait(0) is None:
        select.select([context], [], [], 60)
    assert context.wait(0) == RunProcsResult({0: None}, stdouts={0: ""}, stderrs={0: ""})


def test_a_look_does_not_wait_for_siblings_to_stop(start, post, gate):
    context = start(
        functions_of(post),
        [("wait_and_ignore_sigterm", post.path), ("fail_when_told", post.path, gate)],
        shutdown_timeout=1000,
    )
    post.lines(2)
    tell(gate, "")
    while context.first_failure() is None:
        select.select([context], [], [], 60)
        assert context.wait(0) is None, "one has failed, the other has its grace"
    assert context.wait(0.1) is None
    context.close(timeout=0)
    result = context.wait(0)
    assert list(result.failures) == [1]
    assert result.terminated == {0: -signal.SIGKILL}


@pytest.mark.parametrize("seconds", [1e7, 1e300, float("inf")])
def test_the_longest_times(start, post, seconds):
    """More than a system call can wait at once."""
    context = start(functions_of(post), [("report_signal", post.path)], shutdown_timeout=seconds)
    post.line()
    closer = threading.Thread(target=context.close)
    closer.start()
    result = context.wait(seconds)
    closer.join()
    assert result.terminated == {0: 0}
    assert post.line().startswith("SIGTERM")


@pytest.mark.parametrize("seconds", [-1, float("nan")])
def test_times_that_are_none(start, seconds):
    with pytest.raises(InputError, match="0 seconds or more"):
        start("true", [()], shutdown_timeout=seconds)
    context = start("sleep", [("1000",)])
    with pytest.raises(InputError, match="0 seconds or more"):
        context.close(timeout=seconds)
    if seconds != -1:
        with pytest.raises(InputError, match="0 seconds or more"):
            context.wait(seconds)


@pytest.mark.parametrize(
    ("args", "env", "message"),
    [
        (("a\0b",), {}, "zero byte"),
        ((), {"NAME": "a\0b"}, "rank 0: environment variable 'NAME'.*zero byte"),
        ((), {"A=B": "x"}, "cannot be called 'A=B'"),
        ((), {"": "x"}, "cannot be called ''"),
        ((), {"NAME": 7}, "7 is not a str"),
    ],
)
def test_what_no_program_can_be_given(start, args, env, message):
    with pytest.raises(InputError, match=message):
        start("true", [args], {0: env})


def test_a_stopped_keeper_is_continued(start, post):
    context = start("sh", [("-c", f"echo $$ > {post.path}; exec sleep 1000")])
    (pid,) = post.pids(1)
    os.kill(int(status(pid, "PPid")), signal.SIGSTOP)
    context.close()
    assert not exists(pid)


def test_a_forked_process_does_not_close_the_set_of_its_parent(start, post):
    context = start("sh", [("-c", f"echo $$ > {post.path}; exec sleep 1000")])
    (pid,) = post.pids(1)
    child = os.fork()
    if child == 0:
        context.close(timeout=0)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert exists(pid)
    assert context.wait(0) is None


@pytest.mark.parametrize("planted", ["pipe", "device", "nothing"])
def test_a_filtered_log_that_cannot_be_written_is_no_failure(planted, start, logs, tmp_path, capfd):
    path = {"pipe": str(tmp_path / "fifo"), "device": "/dev/full", "nothing": "/nonexistent/filtered"}[planted]
    os.mkfifo(tmp_path / "fifo")

    class Specs(type(logs())):
        def reify(self, envs):
            destinations = super().reify(envs)
            destinations.filtered_stdout = path
            return destinations

    specs = Specs(log_dir=str(logs().root_log_dir), tee=Std.OUT)
    before = handlers.users
    context = start("echo", [("hello",)], logs_specs=specs, duplicate_stdout_filters=["hello"])
    assert not context.wait().is_failed()
    assert handlers.users == before
    assert f"cannot open {path!r}" in capfd.readouterr().err


def test_a_program_whose_standard_streams_are_closed():
    """A daemon's workers still have three of them."""
    script = (
        "import os, sys\nfor fd in range(3): os.close(fd)\n"
        "from holdfast.processes import DefaultLogsSpecs, start_processes\n"
        "context = start_processes('set', 'sh', {0: ('-c', 'echo hi && exec <&0 && echo >&2')}, {0: {}}, "
        "DefaultLogsSpecs(log_dir='/dev/null'))\n"
        "os._exit(len(context.wait().failures))"
    )
    ran = subprocess.run([sys.executable, "-c", script], timeout=60, check=False)
    assert ran.returncode == 0


def test_a_stdout_that_is_any_object(start, monkeypatch):
    class Tee:
        def write(self, text):
            return len(text)

    monkeypatch.setattr(sys, "stdout", Tee())
    context = start("true", [()])
    monkeypatch.undo()
    assert not context.wait().is_failed()


def test_wait_returns_none_when_its_time_is_over(start, gate):
    context = start("sh", [("-c", f"read line < {gate}")])
    began = time.monotonic()
    assert context.wait(timeout=0.2, period=1000) is None
    assert time.monotonic() - began >= 0.2
    tell(gate, "")
    assert not context.wait(period=1000).is_failed()


def test_waiting_again_gives_the_same_result(start):
    context = start("true", [()])
    assert context.wait() is context.wait(0)
    assert context.wait(5) is context.wait()


def test_a_set_is_readable_when_something_ended(start, post, gate):
    context = start("sh", [("-c", f"echo ready > {post.path}; read line < {gate}")])
    post.line()
    assert context.wait(0) is None
    assert select.select([context], [], [], 0)[0] == []
    tell(gate, "")
    assert select.select([context], [], [], 60)[0] == [context]
    context.wait()
    with pytest.raises(ValueError, match="not running"):
        context.fileno()


def test_a_wait_makes_no_wake_ups(start, post):
    """Neither the waiting process nor the keeper runs while nothing happens."""
    context = start("sh", [("-c", f"echo $$ > {post.path}; exec sleep 1000")])
    (pid,) = post.pids(1)
    keeper = int(status(pid, "PPid"))
    assert keeper != os.getpid()

    def switches(of, task):
        with open(f"/proc/{of}/task/{task}/status") as file:
            return sum(int(line.split()[1]) for line in file if line.startswith("voluntary_ctxt_switches"))

    context.wait(0)
    while not status(keeper, "State").startswith("S"):
        os.sched_yield()  # it has just told that all have started, and is about to wait
    before = switches(keeper, keeper), switches(os.getpid(), threading.get_native_id())
    assert context.wait(timeout=2, period=0.01) is None
    after = switches(keeper, keeper), switches(os.getpid(), threading.get_native_id())
    assert after[0] == before[0]
    # One for the wait itself and a few around it; polling would add two hundred.
    assert after[1] - before[1] < 10


def test_waiting_for_what_was_not_started(logs):
    from holdfast.processes import SubprocessContext

    context = SubprocessContext("set", "true", {0: ()}, {0: {}}, logs())
    with pytest.raises(ValueError, match="not started"):
        context.wait()
    context.start()
    with pytest.raises(ValueError, match="was already started"):
        context.start()
    context.close()


# Failing


def test_siblings_of_a_failure_are_stopped_and_no_failures(start, post, gate):
    context = start(
        functions_of(post),
        [("fail_when_told", post.path, gate), *([("report_signal", post.path)] * 3)],
    )
    ready = post.lines(4)
    assert all(line.startswith("ready") for line in ready)
    tell(gate, "")
    result = context.wait()
    assert list(result.failures) == [0]
    assert result.terminated == {1: 0, 2: 0, 3: 0}
    assert result.return_values == {}
    assert [line.split()[0] for line in post.lines(3)] == ["SIGTERM"] * 3


def test_a_worker_that_had_failed_before_it_was_stopped_is_a_failure(start, post, gate):
    """Its interpreter took longer to end than the sibling that failed because of it."""
    context = start(
        functions_of(post), [("record_then_linger", post.path, "the true cause"), ("fail_when_told", post.path, gate)]
    )
    post.lines(2)
    tell(gate, "")
    result = context.wait()
    assert sorted(result.failures) == [0, 1]
    first = min(result.failures.values(), key=lambda failure: failure.record.timestamp)
    assert first.local_rank == 0
    assert "the true cause" in first.message


def test_the_time_of_a_failure_without_a_file_is_that_of_its_exit(start, post):
    before = time.time()
    context = start("false", [()])
    select.select([context], [], [], 60)
    after = time.time()
    failure = context.wait().failures[0]
    assert before <= failure.record.timestamp <= after
    assert failure.error_file == "<N/A>"


def test_all_that_failed_by_themselves_are_failures(start):
    """Both have ended before anybody looked."""
    context = start("sh", [("-c", "exit 3"), ("-c", "exit 4")])
    pids = context.pids().values()
    keeper_is_done = time.monotonic() + 60
    while any(exists(pid) for pid in pids) and time.monotonic() < keeper_is_done:
        select.select([context], [], [], 0.01)
    assert {rank: failure.exitcode for rank, failure in context.wait().failures.items()} == {0: 3, 1: 4}


# Stopping


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_close_sends_the_signal_and_waits(start, post, signum):
    context = start(functions_of(post), [("report_signal", post.path)] * 2)
    pids = post.pids(2)
    context.close(death_sig=signum)
    assert not any(exists(pid) for pid in pids)
    assert [line.split()[0] for line in post.lines(2)] == [signum.name] * 2
    assert context.wait().terminated == {0: 0, 1: 0}


def test_close_kills_what_ignores_the_signal_after_one_shared_deadline(start, post):
    context = start(functions_of(post), [("wait_and_ignore_sigterm", post.path)] * 4)
    pids = post.pids(4)
    began = time.monotonic()
    context.close(timeout=4)
    took = time.monotonic() - began
    assert not any(exists(pid) for pid in pids)
    assert context.wait().terminated == dict.fromkeys(range(4), -signal.SIGKILL)
    assert 4 <= took < 4 * 4, "one deadline for all, not one after the other"


def test_the_shutdown_timeout_holds_when_a_sibling_failed(start, post, gate):
    context = start(
        functions_of(post),
        [("wait_and_ignore_sigterm", post.path), ("fail_when_told", post.path, gate)],
        shutdown_timeout=0.2,
    )
    post.lines(2)
    tell(gate, "")
    result = context.wait()
    assert result.terminated == {0: -signal.SIGKILL}
    assert list(result.failures) == [1]


def test_close_ends_stopped_processes_by_their_own_handlers(start, post):
    context = start(functions_of(post), [("report_signal", post.path)])
    (pid,) = post.pids(1)
    os.kill(pid, signal.SIGSTOP)
    context.close()
    assert post.line().startswith("SIGTERM")


def test_closing_again_does_nothing(start):
    context = start("sleep", [("1000",)])
    context.close()
    context.close()
    assert context.wait().terminated == {0: -signal.SIGTERM}


def test_a_set_is_a_context_manager(start):
    with start("sleep", [("1000",)]) as context:
        pids = context.pids()
    assert not any(exists(pid) for pid in pids.values())


def test_close_from_another_thread_ends_a_wait(start, post):
    before = handlers.users
    context = start("sh", [("-c", f"echo $$ > {post.path}; exec sleep 1000")])
    post.line()
    closer = threading.Thread(target=context.close)
    closer.start()
    result = context.wait()
    closer.join()
    assert result.failures == {}
    assert list(result.terminated) == [0]
    assert handlers.users == before, "both threads closed it, and it closed once"


def test_works_off_the_main_thread(logs):
    results = []

    def work():
        context = start_processes("set", "sh", {0: ("-c", "exit 5")}, {0: {}}, logs())
        results.append(context.wait())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert results[0].failures[0].exitcode == 5


def test_two_sets_at_once(start, post, gate):
    one = start("sh", [("-c", f"read line < {gate}")])
    with start("sleep", [("1000",)]) as other:
        tell(gate, "")
        assert not one.wait().is_failed()
        assert other.wait(0) is None


def test_a_start_that_fails_stops_what_had_started(start, post, logs):
    class Specs(type(logs())):
        def reify(self, envs):
            destinations = super().reify(envs)
            destinations.stdouts[1] = "/no/such/directory"
            return destinations

    before = footprint()
    with pytest.raises(FileNotFoundError):
        start("sh", [("-c", f"echo $$ > {post.path}; exec sleep 1000")] * 2, logs_specs=Specs())
    assert footprint() == before


def test_the_longest_grace_does_not_delay_a_set_that_ends(start, post):
    """No fixed wait anywhere: the close returns when the last process has ended."""
    context = start("sh", [("-c", f"echo $$ > {post.path}; exec sleep 1000")] * 2, shutdown_timeout=100_000)
    post.lines(2)
    context.close()
    assert context.wait().terminated == {0: -signal.SIGTERM, 1: -signal.SIGTERM}


def test_hooks_of_the_base_class():
    with pytest.raises(NotImplementedError):
        PContext("set", "true", {0: ()}, {0: {}}, DefaultLogsSpecs(log_dir="/dev/null"))._launches()


# Output


def test_tee_shows_and_keeps_every_line(start, logs, capfd):
    script = "import sys; print('out'); print('err', file=sys.stderr); print('no newline', end='')"
    context = start(
        sys.executable,
        [("-c", script)] * 2,
        logs_specs=logs(tee=Std.ALL),
        log_line_prefixes={0: "[zero]", 1: "[one]"},
    )
    result = context.wait()
    shown = capfd.readouterr()
    assert sorted(shown.out.splitlines()) == ["[one]no newline", "[one]out", "[zero]no newline", "[zero]out"]
    assert sorted(shown.err.splitlines()) == ["[one]err", "[zero]err"]
    with open(result.stdouts[0]) as log:
        assert log.read() == "out\nno newline"


def test_lines_that_match_a_filter_are_kept_in_one_file(start, logs, capfd):
    context = start(
        "sh",
        [("-c", f"echo loss {n}; echo noise; echo step {n}; echo warn {n} >&2; echo x >&2") for n in range(2)],
        logs_specs=logs(tee=Std.ALL),
        duplicate_stdout_filters=["loss", "step"],
        duplicate_stderr_filters=["warn"],
    )
    context.wait()
    with open(context.logs.filtered_stdout) as log:
        assert sorted(log) == ["[set0]:loss 0\n", "[set0]:step 0\n", "[set1]:loss 1\n", "[set1]:step 1\n"]
    with open(context.logs.filtered_stderr) as log:
        assert sorted(log) == ["[set0]:warn 0\n", "[set1]:warn 1\n"]
    assert "noise" in capfd.readouterr().out


def test_tee_goes_to_the_stdout_of_the_moment(start, logs, capsys):
    start("echo", [("hello",)], logs_specs=logs(tee=Std.OUT)).wait()
    assert capsys.readouterr().out == "[set0]:hello\n"


def test_a_console_that_nobody_reads_does_not_make_the_program_deaf(tmp_path):
    """A signal stops the workers, another ends the wait for the console."""
    script = f"""
import os, sys
from holdfast.processes import DefaultLogsSpecs, SignalException, Std, start_processes
specs = DefaultLogsSpecs(log_dir={str(tmp_path)!r}, tee=Std.OUT)
context = start_processes("set", "sh", {{0: ("-c", "seq 100000; exec sleep 1000")}}, {{0: {{}}}}, specs)
done = False
print("running", file=sys.stderr, flush=True)
while not done:
    try:
        context.wait()
    except SignalException:
        try:
            print("closing", file=sys.stderr, flush=True)
            context.close()
            done = True
        except SignalException:
            context.close()
            done = True
os._exit(len(context.wait().terminated))
"""
    program = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert program.stderr.readline() == b"running\n"
        (log,) = tmp_path.rglob("stdout.log")
        deadline = time.monotonic() + 60
        while not log.read_text().endswith("100000\n") and time.monotonic() < deadline:
            os.sched_yield()
        time.sleep(0.2)  # it is in its wait by now; if not, the signal ends it in another place
        program.terminate()
        assert program.stderr.readline() == b"closing\n"
        with pytest.raises(subprocess.TimeoutExpired):
            program.wait(1)
        program.terminate()
        assert program.wait(60) == 1
    finally:
        program.kill()
        program.communicate()


def test_numa_options_are_accepted_and_said_to_do_nothing(start, capfd):
    start("true", [()], numa_options=object()).wait()
    assert "NUMA" in capfd.readouterr().err


# Many


def test_two_hundred_starts_and_stops_leave_nothing():
    specs = DefaultLogsSpecs(log_dir="/dev/null")
    before = None
    for round_ in range(200):
        if round_ % 2:
            start_processes("set", "true", {0: (), 1: ()}, {0: {}, 1: {}}, specs).wait()
        else:
            with start_processes("set", "sleep", {0: ("1000",), 1: ("1000",)}, {0: {}, 1: {}}, specs):
                pass
        before = before or footprint()
    assert footprint() == before


def functions_of(post):
    """A command that calls one of the test's functions with the arguments that follow."""
    script = os.path.join(os.path.dirname(post.path), "call.py")
    with open(script, "w") as file:
        file.write(
            f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {os.path.dirname(functions.__file__)!r})\n"
            "import functions\nfrom holdfast.errors import record\n"
            "record(getattr(functions, sys.argv[1]))(*sys.argv[2:])\n"
        )
    os.chmod(script, 0o755)
    return script


def test_subprocess_is_not_needed():
    """The start-up path: a set of commands runs without the modules that cost most to import."""
    script = (
        "import sys\nfrom holdfast.processes import start_processes, DefaultLogsSpecs\n"
        "start_processes('set', 'true', {0: ()}, {0: {}}, DefaultLogsSpecs(log_dir='/dev/null')).wait()\n"
        "print(sorted({'subprocess', 'threading', 'asyncio', 'logging', 'json', 'typing', 'dataclasses', 'tempfile',"
        " 'multiprocessing', 'socket', 'ctypes', 'importlib.metadata', 'traceback', 'msgspec'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout == "[]\n"


# The fence


def test_a_fence_that_is_not_renewed_kills_the_set(start, post):
    context = start(functions_of(post), [("wait_and_ignore_sigterm", post.path)] * 2, shutdown_timeout=1000)
    pids = post.pids(2)
    context.fence(time.monotonic() + 1000)
    assert context.wait(0) is None
    context.fence(time.monotonic())
    result = context.wait()
    assert context.is_fenced
    assert not result.failures
    assert result.terminated == {0: -signal.SIGKILL, 1: -signal.SIGKILL}
    assert not any(map(exists, pids))


def test_a_fence_that_is_renewed_harms_nobody(start, post, gate):
    context = start("sh", [("-c", f"echo $$ > {post.path}; read line < {gate}")])
    post.line()
    for _ in range(3):
        context.fence(time.monotonic() + 1000)
    tell(gate, "")
    assert not context.wait().is_failed()
    assert not context.is_fenced
    context.fence(time.monotonic())  # of a set that is gone


def test_a_fence_that_comes_while_the_keeper_starts_is_not_lost():
    """Another thread renews a lease at any time."""

    def before_start(context):
        keep = context._keep
        context.fence(time.monotonic() + 1000)

        def keep_and_fence():
            kept = keep()
            context.fence(time.monotonic())
            return kept

        context._keep = keep_and_fence

    context = start_processes("set", "sleep", {0: ("1000",)}, {0: {}}, DefaultLogsSpecs(), before_start=before_start)
    try:
        assert context.wait(60) is not None
        assert context.is_fenced
    finally:
        context.close(timeout=0)


def test_a_set_whose_fence_has_passed_before_it_starts_never_runs(tmp_path):
    """The agent was stopped between the word that its workers may start and their start."""
    ran = tmp_path / "ran"
    context = start_processes(
        "set",
        "touch",
        {rank: (str(ran),) for rank in range(2)},
        {0: {}, 1: {}},
        DefaultLogsSpecs(),
        before_start=lambda context: context.fence(time.monotonic() - 1.0),
    )
    try:
        result = context.wait(60)
        assert result is not None
        assert context.is_fenced
        assert not result.is_failed()
        assert not ran.exists()
    finally:
        context.close(timeout=0)


def test_a_stopped_agent_cannot_hold_up_the_fence(tmp_path, post):
    """The point of it: other nodes go on when the lease ends, whether or not this agent can run. Here it is stopped by
    the first thing that its worker does.
    """
    script = tmp_path / "agent.py"
    script.write_text(f"""
import os, time
from holdfast.processes import DefaultLogsSpecs, start_processes
stop = f"kill -STOP {{os.getpid()}}; echo $$ > {post.path}; exec sleep 1000"
context = start_processes(
    "set", "sh", {{0: ("-c", stop)}}, {{0: {{}}}}, DefaultLogsSpecs(),
    before_start=lambda context: context.fence(time.monotonic() + 1.0),
)
context.wait()
print("fenced" if context.is_fenced else "not fenced")
""")
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as agent:
        (worker,) = post.pids(1)
        os.waitpid(agent.pid, os.WUNTRACED)
        assert wait_for_end([worker]) == []
        assert status(agent.pid, "State").startswith("T")
        os.kill(agent.pid, signal.SIGCONT)
        assert agent.communicate(timeout=60)[0] == "fenced\n"


def test_the_first_failure_is_known_before_the_others_have_stopped(start, post, gate):
    context = start(
        functions_of(post),
        [("wait_and_ignore_sigterm", post.path), ("fail_when_told", post.path, gate)],
        shutdown_timeout=1000,
    )
    post.lines(2)
    assert context.first_failure() is None
    tell(gate, "")
    while context.first_failure() is None:
        select.select([context], [], [], 60)
        assert context.wait(0) is None
    assert context.first_failure().local_rank == 1
    context.close(timeout=0)
    assert list(context.wait(0).failures) == [1]
