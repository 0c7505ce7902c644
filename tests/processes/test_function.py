"""Functions as processes of a set."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from multiprocessing import shared_memory
from pathlib import Path

import functions
import pytest
from liveness import exists

from holdfast.errors import InputError
from holdfast.processes import MultiprocessContext, RunProcsResult, Std

METHODS = ("spawn", "fork", "forkserver")

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.fixture(params=METHODS)
def method(request):
    return request.param


def test_return_values_by_rank(start, method):
    result = start(functions.double, [(1,), ("a",), ([2],)], start_method=method).wait()
    assert result.return_values == {0: 2, 1: "aa", 2: [2, 2]}
    assert not result.is_failed()


def test_the_kind_of_context(start):
    assert isinstance(start(functions.nothing, [()]), MultiprocessContext)


def test_a_function_without_a_value_returns_none(start, method):
    assert start(functions.nothing, [(), ()], start_method=method).wait().return_values == {0: None, 1: None}


@pytest.mark.parametrize("count", [0, 1, 5_000_000])
def test_four_values_of_any_size_at_once(start, method, count):
    values = start(functions.many_bytes, [(count,)] * 4, start_method=method).wait().return_values
    assert {rank: len(value) for rank, value in values.items()} == dict.fromkeys(range(4), count)


def test_a_hundred_megabytes_come_back(start, method):
    (value,) = start(functions.many_bytes, [(100_000_000,)], start_method=method).wait().return_values.values()
    assert len(value) == 100_000_000


def test_large_arguments_reach_the_function(start, method):
    assert start(len, [(b"x" * 50_000_000,)], start_method=method).wait().return_values == {0: 50_000_000}


def test_the_environment_of_a_rank_is_there_before_the_function(start, method):
    envs = {rank: {"OF_THE_RANK": str(rank)} for rank in range(2)}
    result = start(functions.environment, [("OF_THE_RANK", "PATH")] * 2, envs, start_method=method).wait()
    assert result.return_values == {rank: [str(rank), os.environ["PATH"]] for rank in range(2)}
    assert "OF_THE_RANK" not in os.environ
    result = start(functions.c_environment, [("OF_THE_RANK",)] * 2, envs, start_method=method).wait()
    assert result.return_values == {0: b"0", 1: b"1"}


def test_an_exception_is_explained(start, method):
    failure = start(functions.fail, [("the reason",)], start_method=method).wait().failures[0]
    assert failure.exitcode == 1
    assert failure.error_file_data["message"]["message"] == "ValueError: the reason"
    assert "raise ValueError(text)\nValueError: the reason" in failure.message.replace("    ", "")


@pytest.mark.parametrize(("code", "exitcode"), [(3, 3), ("text", 1), (True, 1)])
def test_leaving_with_a_code(start, method, code, exitcode):
    assert start(functions.leave, [(code,)], start_method=method).wait().failures[0].exitcode == exitcode


@pytest.mark.parametrize("code", [0, None])
def test_leaving_with_success_returns_none(start, method, code):
    assert start(functions.leave, [(code,)], start_method=method).wait() == RunProcsResult(
        {0: None}, stdouts={0: ""}, stderrs={0: ""}
    )


def test_leaving_at_once(start, method):
    assert start(functions.leave_at_once, [(4,)], start_method=method).wait().failures[0].exitcode == 4


def test_a_value_that_cannot_be_pickled(start, method):
    failure = start(functions.return_unpicklable, [()], start_method=method).wait().failures[0]
    assert failure.exitcode == 1
    assert "return_unpicklable" in failure.message
    assert "cannot be sent to its parent" in failure.message


def test_a_value_that_cannot_be_read(start, method):
    failure = start(functions.return_unreadable, [()], start_method=method).wait().failures[0]
    assert "cannot be rebuilt" in failure.message


def test_a_segmentation_fault(start, method):
    failure = start(functions.crash, [()], start_method=method).wait().failures[0]
    assert failure.exitcode == -signal.SIGSEGV
    assert failure.signal_name() == "SIGSEGV"


@pytest.mark.parametrize("value", [None, 0, "text", b"\0"], ids=repr)
def test_a_crash_after_the_value_was_delivered(start, value):
    result = start(functions.crash_afterwards, [(value,), (value,)]).wait()
    assert not result.is_failed()
    assert result.return_values == {0: value, 1: value}
    assert [crash.signal_name() for crash in result.late_crashes.values()] == ["SIGABRT", "SIGABRT"]


def test_a_crash_after_the_value_was_delivered_where_that_counts(start):
    result = start(
        functions.crash_afterwards, [(1,)], before_start=lambda context: setattr(context, "strict_exit", True)
    ).wait()
    assert result.failures[0].signal_name() == "SIGABRT"
    assert result.late_crashes == {}


def test_a_kill_from_outside(start, method, post):
    context = start(functions.wait_for_signal, [(post.path,), (post.path,)], start_method=method)
    victim = post.pids(2)[0]
    os.kill(victim, signal.SIGKILL)
    result = context.wait()
    (failure,) = result.failures.values()
    assert (failure.pid, failure.signal_name()) == (victim, "SIGKILL")
    assert list(result.terminated.values()) == [-signal.SIGTERM]


def test_all_or_nothing(start, method):
    result = start(functions.leave, [(0,), (1,)], start_method=method).wait()
    assert result.return_values == {}
    assert list(result.failures) == [1]


def test_output_is_redirected(start, method, logs):
    result = start(functions.print_lines, [(2,), (1,)], start_method=method, logs_specs=logs(redirects=Std.ALL)).wait()
    assert not result.is_failed(), result
    for files in (result.stdouts, result.stderrs):
        assert [Path(files[rank]).read_text() for rank in range(2)] == ["line 0\nline 1\n", "line 0\n"]


def test_output_of_c_code_is_redirected(start, method, logs):
    result = start(functions.talk_in_c, [("from C",)], start_method=method, logs_specs=logs(redirects=Std.OUT)).wait()
    assert Path(result.stdouts[0]).read_text() == "from C\n"


def test_queues_and_locks_of_multiprocessing_can_be_shared(start, method):
    context = multiprocessing.get_context("fork" if method == "fork" else "spawn")
    queue, value, lock = context.SimpleQueue(), context.Value("i", 0), context.Lock()
    try:
        running = start(functions.put, [(queue, rank) for rank in range(3)], start_method=method)
        assert sorted(queue.get() for _ in range(3)) == [0, 1, 2]
        assert not running.wait().is_failed()
        assert not start(functions.add_under_lock, [(value, lock, 100)] * 3, start_method=method).wait().is_failed()
        assert value.value == 300
    finally:
        queue.close()


def test_the_parent_of_a_function_is_this_process(start, method):
    assert start(functions.parent_is_alive, [()], start_method=method).wait().return_values == {0: (True, os.getpid())}


def test_an_argument_that_cannot_be_pickled_raises_and_fork_needs_no_pickle(start):
    generator = (number for number in (1, 2))
    for needs_pickle in ("spawn", "forkserver"):
        with pytest.raises(Exception, match="pickle") as raised:
            start(next, [(generator,)], start_method=needs_pickle)
        assert "fork" in raised.value.__notes__[0]
    assert start(next, [(generator,)], start_method="fork").wait().return_values == {0: 1}


def test_an_unknown_start_method(start):
    with pytest.raises(InputError, match="unknown start method 'thread'; choose from spawn, fork, forkserver"):
        start(functions.nothing, [()], start_method="thread")


MAIN = """
import sys
from holdfast.processes import DefaultLogsSpecs, start_processes

def square(number):
    return number ** 2

if __name__ == "__main__":
    specs = DefaultLogsSpecs(log_dir="/dev/null")
    context = start_processes("main", square, {0: (3,), 1: (4,)}, {0: {}, 1: {}}, specs, start_method=sys.argv[1])
    print(context.wait().return_values)
"""


def test_a_function_of_the_main_module(tmp_path, method):
    script = tmp_path / "main.py"
    script.write_text(MAIN)
    ran = subprocess.run([sys.executable, script, method], capture_output=True, text=True, timeout=120, check=False)
    assert (ran.stdout, ran.stderr) == ("{0: 9, 1: 16}\n", "")


@pytest.mark.torch
def test_tensors_come_back(tmp_path, method):
    script = tmp_path / "main.py"
    script.write_text(MAIN.replace("import sys\n", "import sys, torch\n").replace("(3,)", "(torch.full((3,), 2.0),)"))
    ran = subprocess.run([sys.executable, script, method], capture_output=True, text=True, timeout=120, check=False)
    assert ran.stdout == "{0: tensor([4., 4., 4.]), 1: 16}\n", ran.stderr


def test_what_this_process_had_not_written_yet_is_written_once(tmp_path):
    script = tmp_path / "main.py"
    script.write_text("print('before', end=' ')\n" + MAIN)
    ran = subprocess.run([sys.executable, script, "fork"], capture_output=True, text=True, timeout=120, check=False)
    assert ran.stdout == "before {0: 9, 1: 16}\n"


def test_shared_memory_of_this_process_outlives_workers_that_use_it(start, method):
    memory = shared_memory.SharedMemory(create=True, size=16)
    try:
        assert not start(functions.write_shared, [(memory.name,)], start_method=method).wait().is_failed()
        assert bytes(memory.buf[:5]) == b"hello"
        shared_memory.SharedMemory(memory.name).close()
    finally:
        memory.close()
        memory.unlink()


def test_an_interrupt_is_an_exception_as_in_every_python_program(start, method, post):
    context = start(functions.tell_interrupt, [(post.path,)], start_method=method)
    post.line()
    context.close(signal.SIGINT)
    assert post.line() == "KeyboardInterrupt"


def test_a_set_within_a_forked_worker(start, post):
    """What the parent had installed for signals must not be taken for the worker's own."""
    assert start(functions.nested, [(2,)], start_method="fork").wait().return_values == {0: (2, True)}


def test_processes_are_reaped_when_wait_returns(start, method):
    context = start(functions.nothing, [(), ()], start_method=method)
    pids = context.pids()
    context.wait()
    assert not any(exists(pid) for pid in pids.values())
