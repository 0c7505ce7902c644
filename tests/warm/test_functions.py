"""Functions as workers, forked from a template: each as in an interpreter of its own, or in a fork of a fresh one."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from warm_jobs import environment

# What the functions are in. `calendar` is what nobody else imports.
MODULE = """
import calendar
import atexit, json, os, random, signal, sys, threading

def state(*args):
    fds = sorted(int(fd) for fd in os.listdir("/proc/self/fd"))
    return {
        "args": args,
        "environ": {name: value for name, value in os.environ.items() if not name.startswith(("MASTER_PORT",
            "HOLDFAST_WORKER_PAGE", "TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_RUN_ID", "JAX_COORD"))},
        "argv": sys.argv,
        "path": sys.path,
        "flags": repr(sys.flags),
        "main": [sys.modules["__main__"].__name__, getattr(sys.modules["__main__"], "__file__", None)],
        "cwd": os.getcwd(),
        "streams": [(s.encoding, s.errors, s.line_buffering, s.write_through, s.isatty(), s.name, s.seekable())
                    for s in (sys.stdin, sys.stdout, sys.stderr)],
        "handlers": {int(n): str(signal.getsignal(n)) for n in signal.valid_signals()},
        "mask": sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ()))),
        "threads": [thread.name for thread in threading.enumerate()],
        "tasks": len(os.listdir("/proc/self/task")),
        "own": [os.getsid(0) == os.getpid(), threading.main_thread().native_id == os.getpid()],
        "umask": os.umask(0o22),
    }

def is_warm():
    return WAS_THERE

def unlike():
    import multiprocessing
    return random.random(), bytes(multiprocessing.current_process().authkey) != b"", os.getpid()

def at_exit(path):
    class Late:
        def __del__(self):
            with open(path, "a") as file: file.write("deleted ")
    state.late = Late()
    def end():
        with open(path, "a") as file: file.write("at exit ")
    atexit.register(end)
    file = open(path + ".open", "w")
    file.write("written")
    globals()["kept"] = file

def fail():
    raise ValueError("the reason")

def leave():
    sys.exit(3)

def crash():
    import ctypes
    ctypes.string_at(0)

def rank():
    return int(os.environ["RANK"])

def large(data):
    return data + b"!"

def children():
    import multiprocessing
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        return pool.map(abs, [-1, -2])
"""

PROGRAM = """
import json, sys
sys.path.insert(0, {directory!r})
import functions_of_test
from holdfast.errors import ChildFailedError
from holdfast.launcher import LaunchConfig, elastic_launch
from holdfast.processes import DefaultLogsSpecs, Std
if __name__ == "__main__":
    config = LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node={nproc}, max_restarts=0, warm={warm!r},
        start_method={method!r}, logs_specs=DefaultLogsSpecs(log_dir={logs!r}, redirects=Std({redirects})))
    try:
        result = elastic_launch(config, functions_of_test.{function})(*{args!r})
        print(json.dumps(result, default=repr))
    except ChildFailedError as error:
        failure = error.get_first_failure()[1]
        print(json.dumps([failure.exitcode, str(failure.kind), failure.message, failure.where], default=repr))
"""


@pytest.fixture
def launch(tmp_path):
    """Runs a function of `MODULE` in workers of a program."""
    (tmp_path / "functions_of_test.py").write_text("import sys\nWAS_THERE = 'calendar' in sys.modules\n" + MODULE)

    def run(function, *args, warm=True, method="spawn", nproc=2, redirects=3, flags=(), **env):
        program = tmp_path / "program.py"
        program.write_text(
            PROGRAM.format(
                directory=str(tmp_path),
                nproc=nproc,
                warm=warm,
                method=method,
                function=function,
                args=args,
                logs=str(tmp_path / "logs"),
                redirects=redirects,
            )
        )
        ended = subprocess.run(
            [sys.executable, *flags, program],
            env=environment(TMPDIR=tmp_path, LOGLEVEL="INFO", **env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=100,
            cwd=tmp_path,
            check=True,
        )
        run.stderr = ended.stderr
        assert ("the template has imported" in ended.stderr) is bool(warm), ended.stderr
        assert "cold" not in ended.stderr
        result = json.loads(ended.stdout.splitlines()[-1])
        return [result[str(rank)] for rank in range(nproc)] if isinstance(result, dict) else result

    return run


METHODS = pytest.mark.parametrize("method", ["spawn", "forkserver"])


@METHODS
@pytest.mark.parametrize("redirects", [3, 0])
@pytest.mark.parametrize("flags", [(), ("-O", "-W", "error"), ("-u",)], ids=str)
def test_all_that_a_function_sees(launch, method, redirects, flags):
    cold, warm = (
        launch("state", "a", 1, warm=warm, method=method, redirects=redirects, flags=flags) for warm in (False, True)
    )
    for mine, theirs in zip(warm, cold, strict=True):
        if method == "forkserver":  # what its streams were before the redirect is what they say of themselves
            for streams in (mine["streams"], theirs["streams"]):
                streams[:] = [stream[:-1] for stream in streams]
        assert {name: (theirs[name], mine[name]) for name in theirs if theirs[name] != mine[name]} == {}


@METHODS
def test_what_it_imports_is_there(launch, method):
    assert launch("is_warm", method=method) == [True, True]
    assert launch("is_warm", method=method, warm=False) == [False, False]


def test_modules_that_are_given(launch):
    assert launch("is_warm", warm=["calendar"]) == [True, True]
    assert launch("is_warm", warm=["json"]) == [False, False]


@METHODS
def test_values_and_ranks(launch, method):
    assert launch("rank", nproc=3, method=method) == [0, 1, 2]
    assert launch("children", method=method, nproc=1) == [[1, 2]]


@METHODS
def test_random_numbers_and_identities_are_its_own(launch, method):
    one, other = launch("unlike", method=method)
    assert one[0] != other[0]
    assert one[2] != other[2]


@METHODS
def test_it_ends_as_ever(launch, method, tmp_path):
    texts = []
    for warm in (False, True):
        path = tmp_path / f"end.{warm}"
        launch("at_exit", str(path), method=method, warm=warm, nproc=1)
        texts.append([p.read_text() if p.exists() else None for p in (path, tmp_path / f"{path.name}.open")])
    assert texts[0] == texts[1]
    if method == "spawn":
        assert texts[1][1] == "written"


@METHODS
@pytest.mark.parametrize("function", ["fail", "leave", "crash"])
def test_it_fails_as_ever(launch, method, function):
    cold, warm = (launch(function, method=method, warm=warm, nproc=1) for warm in (False, True))
    assert warm[:2] == cold[:2]
    assert warm[3] == cold[3]


def test_more_workers_than_one_message_has_descriptors_for(launch):
    """Two descriptors for each, and a message takes 250."""
    assert launch("rank", nproc=130, redirects=3) == list(range(130))


def test_forked_functions_are_forked_from_the_program_itself(launch):
    with pytest.raises(AssertionError):
        launch("rank", method="fork")
    assert "imported" not in launch.stderr
