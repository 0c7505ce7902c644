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

def launched(function, args, warm, method, nproc, redirects):
    config = LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node=nproc, max_restarts=0, warm=warm,
        start_method=method, logs_specs=DefaultLogsSpecs(log_dir={logs!r}, redirects=Std(redirects)))
    try:
        result = elastic_launch(config, getattr(functions_of_test, function))(*args)
        return [result[rank] for rank in range(nproc)]
    except ChildFailedError as error:
        failure = error.get_first_failure()[1]
        return [failure.exitcode, str(failure.kind), failure.message, failure.where]

if __name__ == "__main__":
    with open({calls!r}) as file:
        calls = json.load(file)
    results = [launched(*call) for call in calls]
    with open({results!r}, "w") as file:
        json.dump(results, file, default=repr)
"""


def call(function, *args, warm=True, method="spawn", nproc=2, redirects=3):
    return [function, args, warm, method, nproc, redirects]


def launch(directory, calls, flags=()):
    """Runs functions of `MODULE` in workers of a program, one after the other; returns what each call returned."""
    (directory / "functions_of_test.py").write_text("import sys\nWAS_THERE = 'calendar' in sys.modules\n" + MODULE)
    (directory / "calls").write_text(json.dumps(calls))
    names = {name: str(directory / name) for name in ("logs", "calls", "results")}
    program = directory / "program.py"
    program.write_text(PROGRAM.format(directory=str(directory), **names))
    ended = subprocess.run(
        [sys.executable, *flags, program],
        env=environment(TMPDIR=directory, LOGLEVEL="INFO"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        cwd=directory,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    is_warm = [bool(warm) and method != "fork" for _, _, warm, method, *_ in calls]
    assert ended.stderr.count("the template has imported") == sum(is_warm), ended.stderr
    assert "cold" not in ended.stderr
    return json.loads((directory / "results").read_text())


METHODS = ("spawn", "forkserver")
WAYS = [(method, warm) for method in METHODS for warm in (False, True)]
by_method = pytest.mark.parametrize("method", METHODS)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What many calls returned, by their names: one program does for all."""
    directory = tmp_path_factory.mktemp("functions")
    calls = {
        **{f"is_warm {way}": call("is_warm", method=way[0], warm=way[1]) for way in WAYS},
        "is_warm calendar": call("is_warm", warm=["calendar"]),
        "is_warm json": call("is_warm", warm=["json"]),
        "forked": call("rank", method="fork"),
        "many": call("rank", nproc=130),
    }
    for method in METHODS:
        calls[f"rank {method}"] = call("rank", nproc=3, method=method)
        calls[f"children {method}"] = call("children", nproc=1, method=method)
        calls[f"unlike {method}"] = call("unlike", method=method)
    for method, warm in WAYS:
        calls[f"at_exit {method, warm}"] = call(
            "at_exit", str(directory / f"end.{method}.{warm}"), method=method, warm=warm, nproc=1
        )
        for function in ("fail", "leave", "crash"):
            calls[f"{function} {method, warm}"] = call(function, method=method, warm=warm, nproc=1)
    found = dict(zip(calls, launch(directory, list(calls.values())), strict=True))
    found["directory"] = directory
    return found


@pytest.mark.parametrize("flags", [(), ("-O", "-W", "error"), ("-u",)], ids=str)
def test_all_that_a_function_sees(tmp_path, flags):
    kinds = [(method, redirects) for method in METHODS for redirects in (3, 0)]
    calls = [
        call("state", "a", 1, warm=warm, method=method, redirects=redirects)
        for method, redirects in kinds
        for warm in (False, True)
    ]
    found = launch(tmp_path, calls, flags)
    for (method, redirects), cold, warm in zip(kinds, found[::2], found[1::2], strict=True):
        for mine, theirs in zip(warm, cold, strict=True):
            if method == "forkserver":  # what its streams were before the redirect is what they say of themselves
                for streams in (mine["streams"], theirs["streams"]):
                    streams[:] = [stream[:-1] for stream in streams]
            unlike = {name: (theirs[name], mine[name]) for name in theirs if theirs[name] != mine[name]}
            assert unlike == {}, (method, redirects)


@by_method
def test_what_it_imports_is_there(results, method):
    assert results[f"is_warm {method, True}"] == [True, True]
    assert results[f"is_warm {method, False}"] == [False, False]


def test_modules_that_are_given(results):
    assert results["is_warm calendar"] == [True, True]
    assert results["is_warm json"] == [False, False]


@by_method
def test_values_and_ranks(results, method):
    assert results[f"rank {method}"] == [0, 1, 2]
    assert results[f"children {method}"] == [[1, 2]]


@by_method
def test_random_numbers_and_identities_are_its_own(results, method):
    one, other = results[f"unlike {method}"]
    assert one[0] != other[0]
    assert one[2] != other[2]


@by_method
def test_it_ends_as_ever(results, method):
    texts = []
    for warm in (False, True):
        path = results["directory"] / f"end.{method}.{warm}"
        texts.append([p.read_text() if p.exists() else None for p in (path, path.with_name(f"{path.name}.open"))])
    assert texts[0] == texts[1]
    if method == "spawn":
        assert texts[1][1] == "written"


@by_method
@pytest.mark.parametrize("function", ["fail", "leave", "crash"])
def test_it_fails_as_ever(results, method, function):
    cold, warm = (results[f"{function} {method, warm}"] for warm in (False, True))
    assert warm[:2] == cold[:2]
    assert warm[3] == cold[3]


def test_more_workers_than_one_message_has_descriptors_for(results):
    """Two descriptors for each, and a message takes 250."""
    assert results["many"] == list(range(130))


def test_forked_functions_are_forked_from_the_program_itself(results):
    """No template is made for them."""
    assert results["forked"] == [0, 1]
