"""What a person is told of a failure. Whole processes that fail are in the integration tests."""

from __future__ import annotations

import json
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors.advice import advice
from holdfast.errors.diagnosis import (
    SOURCE_LINE_MAX_CHARS,
    STACKS_MAX_CHARS,
    TAIL_MAX_CHARS,
    TAIL_MAX_LINES,
    Evidence,
    diagnose,
    is_usage_error,
    where_in,
)
from holdfast.errors.error_file import ErrorReport, read_error_file
from holdfast.errors.kind import COMMAND_LINE, MODULE_START, FailureKind

TRACEBACK = """\
Traceback (most recent call last):
  File "/home/me/train.py", line 40, in <module>
    main()
  File "/home/me/train.py", line 12, in main
    loss.backward()
  File "/usr/lib/python3.11/site-packages/torch/_tensor.py", line 500, in backward
    torch.autograd.backward(self)
ValueError: loss is nan
"""
CHAINED = """\
Traceback (most recent call last):
  File "a.py", line 1, in f
KeyError: 'x'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "a.py", line 3, in g
RuntimeError: no x
"""
STACKS = """\
Fatal Python error: Segmentation fault

Thread 0x00007f01 (most recent call first):
  File "/home/me/loader.py", line 7 in fetch

Current thread 0x00007f02 (most recent call first):
  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at
  File "/home/me/train.py", line 3 in crash
  File "/home/me/train.py", line 9 in <module>
"""


def of_exit(code, **evidence):
    return diagnose(code, 77, None, Evidence(**evidence))


def of_report(message):
    """The outcome of a process that left an error file with this message."""
    return diagnose(1, 77, ErrorReport({"message": message}, message, 1.0), Evidence())


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (TRACEBACK, "/home/me/train.py:12 in main"),
        (STACKS, "/home/me/train.py:3 in crash"),
        ('  File "train.py", line 3\n    x =\n       ^\nSyntaxError: invalid syntax\n', "train.py:3"),
        ('  | Traceback (most recent call last):\n  |   File "a.py", line 4, in f\n', "a.py:4 in f"),
        ('Traceback (most recent call last):\n  File "<frozen runpy>", line 1, in x\n', "<frozen runpy>:1 in x"),
        ("", ""),
        ("no frames here", ""),
    ],
)
def test_where_it_was_in_the_users_own_code(text, where):
    assert where_in(text) == where


def test_an_error_file_says_it_all(tmp_path):
    path = tmp_path / "error.json"
    message = {"message": "ValueError: loss is nan", "extraInfo": {"py_callstack": TRACEBACK, "timestamp": "1"}}
    path.write_text(json.dumps({"message": message}))
    found = diagnose(1, 77, read_error_file(str(path), 1.0), Evidence(stderr="noise"))
    assert (found.kind, found.exception, found.message) == (FailureKind.EXCEPTION, "ValueError", TRACEBACK)
    assert found.where == "/home/me/train.py:12 in main"


@pytest.mark.parametrize(
    ("code", "kind", "begins"),
    [(1, FailureKind.EXCEPTION, "Exception in thread"), (-9, FailureKind.KILLED, "Signal 9 (SIGKILL)")],
)
def test_a_thread_that_failed_is_the_reason_unless_the_process_went_on_until_a_signal(tmp_path, code, kind, begins):
    path = tmp_path / "error.json"
    info = {"py_callstack": f"Exception in thread monitor:\n{TRACEBACK}", "timestamp": "1", "thread": "monitor"}
    path.write_text(json.dumps({"message": {"message": "ValueError: loss is nan", "extraInfo": info}}))
    found = diagnose(code, 77, read_error_file(str(path), 1.0), Evidence())
    assert found.kind is kind
    assert found.message.startswith(begins)
    assert "ValueError: loss is nan" in found.message


def test_a_crash_shows_the_thread_that_crashed_first():
    found = of_exit(-signal.SIGSEGV, stacks=STACKS)
    assert found.kind is FailureKind.CRASH
    first_line, fatal, _, thread, *_ = found.message.split("\n")
    assert first_line == "Signal 11 (SIGSEGV) received by PID 77"
    assert fatal == "Fatal Python error: Segmentation fault"
    assert thread.startswith("Current thread")
    assert "loader.py" in found.message
    assert found.where == "/home/me/train.py:3 in crash"


def test_stacks_that_only_stderr_has_are_found():
    found = of_exit(-signal.SIGSEGV, stderr=f"loading\n{STACKS}\n")
    assert found.kind is FailureKind.CRASH
    assert found.where == "/home/me/train.py:3 in crash"
    assert found.message.endswith("The last lines of its stderr:\n  loading")
    assert found.message.count("Fatal Python error") == 1
    assert of_exit(-signal.SIGSEGV, stderr="loading\n").message.endswith("  loading")


def test_stacks_are_bounded():
    more = "\n\n".join(f'Thread 0x{n} (most recent call first):\n  File "a.py", line 1 in f' for n in range(1000))
    found = of_exit(-signal.SIGSEGV, stacks=f"{STACKS}\n\n{more}")
    assert len(found.message) < STACKS_MAX_CHARS + 200
    assert "in crash" in found.message


def test_an_abort_because_of_a_collective_is_a_victims():
    text = "[E ProcessGroupNCCL.cpp:632] Watchdog caught collective operation timeout\n"
    assert of_exit(-signal.SIGABRT, stderr=text).kind is FailureKind.COMMUNICATION
    assert of_exit(-signal.SIGABRT, stderr="free(): invalid pointer\n").kind is FailureKind.CRASH


def test_out_of_memory_says_how_much_there_was():
    found = of_exit(-signal.SIGKILL, out_of_memory="the kernel did it", max_rss_kib=2048 * 1024)
    assert found.kind is FailureKind.OUT_OF_MEMORY
    assert found.message.endswith("the kernel did it; its peak memory was 2,048 MiB")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGUSR1, 40])
def test_any_other_signal_was_somebody_elses(number):
    found = of_exit(-number, stderr="almost done\n")
    assert found.kind is FailureKind.KILLED
    assert found.message.endswith("The last lines of its stderr:\n  almost done")


def test_the_last_lines_are_bounded_and_can_be_shown():
    found = of_exit(3, stderr="".join(f"line {n}\n" for n in range(500)) + " 10%\r 20%\r\x1b[31mred\n")
    lines = found.message.split("\n")
    assert len(lines) == TAIL_MAX_LINES + 2
    assert lines[-2] == "  line 499"
    assert "10%" not in lines[-1]
    assert "\x1b" not in lines[-1]
    assert len(of_exit(3, stderr="x" * 100_000).message) < TAIL_MAX_CHARS + 200


@pytest.mark.parametrize("frames", [100, 1_000])
def test_a_progress_bar_does_not_push_out_the_lines_before_it(frames):
    bar = "".join(f"\r{n:>60}" for n in range(frames))
    lines = of_exit(3, stderr=f"important line\n{bar}").message.split("\n")
    assert lines[-2:] == ["  important line", f"  {frames - 1:>60}"]
    assert of_exit(3, stderr=f"important line\r\n{bar}\r\n").message.split("\n")[-2:] == lines[-2:]


@pytest.mark.parametrize("text", [TRACEBACK, CHAINED, "noise\n" + TRACEBACK])
def test_a_traceback_that_only_stderr_has_is_found(text):
    found = of_exit(1, stderr=text)
    assert found.kind is FailureKind.EXCEPTION
    assert found.message == text.removeprefix("noise\n").rstrip()
    assert found.exception in ("ValueError", "RuntimeError")


def test_a_traceback_whose_message_has_more_lines_is_found():
    frame = 'Traceback (most recent call last):\n  File "a.py", line 4, in f\n'
    text = f"{frame}RuntimeError: \n\n    Do this:\n        that"
    found = of_exit(1, stderr=f"noise\n{text}\n    \n")
    assert (found.kind, found.exception, found.message) == (FailureKind.EXCEPTION, "RuntimeError", text)
    assert found.where == "a.py:4 in f"
    assert of_exit(1, stderr=f"{text}\ngoing on\n").kind is FailureKind.EXIT


def broken_pipe(line, file="/home/me/train.py"):
    frames = f'  File "/home/me/train.py", line 3, in <module>\n    main()\n  File "{file}", line 9, in f\n    {line}\n'
    return f"Traceback (most recent call last):\n{frames}BrokenPipeError: [Errno 32] Broken pipe\n"


@pytest.mark.parametrize(
    "line",
    [
        "print(step)",
        "print(step, flush=True)",
        "builtin_print(*args, **kwargs)",
        "print(step, file=sys.stderr)",
        "sys.stdout.write(text)",
        "sys.stdout.buffer.write(data)",
        "sys.stderr.flush()",
        "print(step)\n    ~~~~~^^^^^^",
    ],
)
def test_who_prints_and_has_no_reader_lost_no_peer(line):
    found = of_exit(1, stderr=broken_pipe(line))
    assert (found.kind, found.exception) == (FailureKind.EXCEPTION, "BrokenPipeError")
    assert "Nobody reads the program's output" in advice(found.kind, found.exception, found.where)


@pytest.mark.parametrize(
    "text",
    [
        broken_pipe("peer.sendall(data)"),
        broken_pipe("print(data, file=peer)"),
        broken_pipe("stdin.flush()"),
        broken_pipe("self._send(header + buf)", "/usr/lib/python3.11/multiprocessing/connection.py"),
        broken_pipe("print(all_reduce(x))").replace(
            "BrokenPipe",
            '  File "/opt/site-packages/torch/distributed.py", line 1, in all_reduce\n    w.wait()\nBrokenPipe',
        ),
        broken_pipe("print(step)").replace("BrokenPipeError", "ConnectionResetError"),
        'Traceback (most recent call last):\n  File "a.py", line 4, in f\nBrokenPipeError: [Errno 32] Broken pipe',
    ],
)
def test_another_broken_pipe_is_a_lost_peer(text):
    assert of_exit(1, stderr=text).kind is FailureKind.COMMUNICATION


def test_only_the_beginning_of_a_long_source_line_is_searched():
    """A worker may write a line that the whole search would take hours for."""
    assert of_exit(1, stderr=broken_pipe(" " * 5_000 + "print(step)")).kind is FailureKind.EXCEPTION
    assert of_exit(1, stderr=broken_pipe("x" * SOURCE_LINE_MAX_CHARS + "print(")).kind is FailureKind.COMMUNICATION
    hostile = "print(" * 200_000 + "file=x"
    assert of_report(broken_pipe(hostile)).kind is FailureKind.EXCEPTION


@pytest.mark.parametrize("piece", ["nccl ", "gloo ", "connection was ", "a.", "print(file=", ": No module named "])
def test_no_text_of_a_worker_takes_long(piece):
    """The text of the largest error file: an expression that takes quadratic time would not end here."""
    text = piece * (2_000_000 // len(piece))
    for message in (f"RuntimeError: {text}", text, f"{TRACEBACK}RuntimeError: {text}"):
        assert of_report(message).kind in FailureKind
        assert of_exit(1, stderr=message).kind in FailureKind


def test_a_name_without_an_end_is_cut():
    assert len(of_report("E" * 1_000_000 + ": x").exception) <= SOURCE_LINE_MAX_CHARS


def test_what_torch_and_we_ourselves_write_around_a_traceback_does_not_hide_it():
    lost = 'Traceback (most recent call last):\n  File "a.py", line 4, in f\nRuntimeError: Connection closed by peer'
    prefixed = "".join(f"[rank4]: {line}\n" for line in lost.splitlines())
    notice = "holdfast: the error file '/logs/error.json' was not written, ...: [Errno 28] No space left on device\n"
    for text in (prefixed, lost + "\n" + notice, "[W1116 a warning]\n" + prefixed + notice):
        found = of_exit(1, stderr=text)
        assert (found.kind, found.exception, found.message) == (FailureKind.COMMUNICATION, "RuntimeError", lost)
    assert of_exit(1, stderr=notice).kind is FailureKind.EXIT


def test_a_traceback_that_the_program_survived_is_not_the_reason():
    assert of_exit(1, stderr=TRACEBACK + "going on\n nevertheless, 3 of 5\n").kind is FailureKind.EXIT
    assert of_exit(4, stderr=TRACEBACK).kind is FailureKind.EXIT


@pytest.mark.parametrize(
    "reason",
    [
        "No module named nosuch",
        "No module named nosuch.__main__; 'nosuch' is a package and cannot be directly executed",
        "Error while finding module specification for 'no.such' (ModuleNotFoundError: No module named 'no')",
        "Error while finding module specification for 't.py' (ModuleNotFoundError: ...). Try 't' instead of 't.py'",
    ],
)
def test_a_module_that_python_cannot_start_is_a_missing_module(reason):
    line = f"/opt/my pythons/python3.11: {reason}"
    found = of_exit(1, stderr=f"{line}\n")
    assert (found.kind, found.exception, found.where) == (FailureKind.EXCEPTION, "ModuleNotFoundError", MODULE_START)
    assert found.message == line
    # A program that has said something else has been started, and tells of a program that it started.
    assert of_exit(1, stderr=f"loading\n{line}\n").kind is FailureKind.EXIT
    assert of_exit(3, stderr=f"{line}\n").kind is FailureKind.EXIT


def test_nothing_at_all_is_said_to_be_nothing():
    assert "its stderr was empty" in of_exit(3).message
    assert "(as a shell reports SIGKILL)" in of_exit(137).message


def test_arguments_that_a_program_refuses():
    assert is_usage_error(2, "usage: train.py [-h]\ntrain.py: error: unrecognized arguments: --x\n")
    assert not is_usage_error(1, "usage: train.py [-h]\ntrain.py: error: no\n")
    assert not is_usage_error(2, "")
    assert of_exit(2, stderr="usage: train.py [-h]\ntrain.py: error: no\n").where == COMMAND_LINE
    assert not of_exit(2, stderr="no such file").where


@given(st.integers(-64, 255), st.text(), st.text(), st.text())
def test_whatever_is_known_something_is_told(code, stderr, stacks, oom):
    found = of_exit(code or 1, stderr=stderr, stacks=stacks, out_of_memory=oom)
    assert found.message
    assert isinstance(found.kind, FailureKind)


def test_a_text_of_empty_lines_is_searched_in_linear_time():
    assert where_in("E: x" + "\n" * 60_000) == ""
