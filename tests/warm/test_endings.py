"""A program ends warm as it ends cold: its exit code, what it prints, what it leaves behind."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest
from warm_sets import Sets

CORPUS = runpy.run_path(str(Path(__file__).parent.parent / "worker" / "test_sitecustomize.py"))

ENDS = {
    **CORPUS["ENDS"],
    "exit with nothing to say": "raise SystemExit(None)",
    "exit with a large number": "import sys; sys.exit(1000)",
    "exit with an object": "import sys; sys.exit({'a': 1})",
    "exit in an exit handler": "import atexit, sys\natexit.register(sys.exit, 9)\nprint(1)\n",
    "exit in a hook": "import sys\nsys.excepthook = lambda *a: sys.exit(7)\n1 / 0\n",
    "an exit that a hook sees": "import sys\nsys.excepthook = lambda *a: print('hook')\nsys.exit(3)\n",
    "order of exit handlers": (
        "import atexit, sys\n"
        "class Late:\n    def __del__(self): print('deleted')\n"
        "late = Late()\n"
        "for n in range(3): atexit.register(print, n)\n"
        "print(sys.excepthook is sys.__excepthook__)\n"
    ),
    "what exit handlers see": (
        "import atexit, sys\n"
        "atexit.register(lambda: print(sys.last_type, sys.last_value, sys.last_traceback.tb_lineno,"
        " sys.excepthook is sys.__excepthook__, sys.exc_info()))\n"
        "1 / 0\n"
    ),
    "a file that nobody closed": "import sys\nfile = open(sys.argv[1], 'w')\nfile.write('written')\n",
    "a file that a library holds": (
        "import sys, threading\nfile = open(sys.argv[1], 'w')\nfile.write('written')\n"
        "threading.excepthook = lambda args: file\n"
    ),
    "a file that nobody closed in a failure": "import sys\nfile = open(sys.argv[1], 'w')\nfile.write('w')\n1 / 0\n",
    "output without a line's end": "import sys\nsys.stdout.write('no end')\nsys.stderr.write('none')\n",
    "a thread that is waited for": (
        "import threading, time\n"
        "threading.Thread(target=lambda: (threading.main_thread().join(), print('thread'))).start()\n"
        "print('main')\n"
    ),
    "a daemon thread": (
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\nprint('main')\n"
    ),
    "deletion at the end": (
        "import sys\nclass A:\n    def __init__(self): self.me = self\n    def __del__(self): print('del')\n"
        "a = A()\nsys.keep_of_test = A()\n"
    ),
    "modules at the end": (
        "import sys, types\nmodule = types.ModuleType('module_of_test')\nsys.modules['module_of_test'] = module\n"
        "class A:\n    def __del__(self): print('del', sys is None)\nmodule.a = A()\n"
    ),
    "text in another encoding": "# -*- coding: latin-1 -*-\nprint(ascii('\xe4'))\n",
    "an indentation error": "if True:\nprint(1)\n",
    "an assertion": "assert 1 == 2, 'not'\n",
    "a warning": "import warnings\ndef f(): warnings.warn('w')\nf()\n",
    "a log": "import logging\nlogging.warning('a %s', 1)\nlogging.getLogger('x').error('b')\n",
    "a traceback that it prints": (
        "import traceback\ntry:\n    1 / 0\nexcept ZeroDivisionError:\n    traceback.print_exc()\n"
    ),
    "an exception of a class that is gone": (
        "class E(Exception): pass\ndef f():\n    raise E('x')\ntry:\n    f()\nfinally:\n    del E\n"
    ),
    "an unpaired surrogate": "raise ValueError('\\udcff')",
    "a signal that it handles": (
        "import os, signal\nsignal.signal(signal.SIGTERM, lambda *a: print('handled'))\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
    ),
    "a signal": "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n",
    "a broken pipe": "import os, sys\nr, w = os.pipe()\nos.close(r)\nos.write(w, b'x')\n",
    "a fault": "import ctypes\nctypes.string_at(0)\n",
    "children of its own": (
        "import subprocess, sys\n"
        "print(subprocess.run([sys.executable, '-c', 'import os, sys; print(len(sys.path), os.environ[\"RANK\"])'],"
        " capture_output=True, text=True, check=True).stdout)\n"
    ),
    "a temporary file": (
        "import os, tempfile\n"
        "with tempfile.NamedTemporaryFile() as file: print(os.path.exists(file.name))\n"
        "directory = tempfile.TemporaryDirectory()\nprint(os.listdir(directory.name))\n"
    ),
    "an event loop": "import asyncio\nasync def f(): await asyncio.sleep(0); return 7\nprint(asyncio.run(f()))\n",
    "an interrupted event loop": "import asyncio\nasync def f(): raise KeyboardInterrupt\nasyncio.run(f())\n",
    "threads in a pool": (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor(2) as pool: print(list(pool.map(str, range(4))))\n"
    ),
    "dataclasses and types": (
        "from dataclasses import dataclass\nfrom typing import get_type_hints\n"
        "@dataclass\nclass A:\n    x: int = 1\nprint(A(), get_type_hints(A), A.__module__)\n"
    ),
    "its own source": "import inspect\ndef f(): pass\nprint(inspect.getsource(f), inspect.getfile(f))\n",
}


def plain(text):
    """Addresses and process identifiers are others each time."""
    text = re.sub(r"0x[0-9a-f]{6,}", "0x...", text)
    text = re.sub(
        r'  File ".*/warm/exec_in_process.py", line \d+ in run\n  File "<string>", line 1 in <module>\n', "", text
    )
    text = re.sub(r"repeated 99\d more times", "repeated N more times", text)  # two frames are ours
    return re.sub(r"(pid|PID) \d+", r"\1 N", text)


def seen(ended):
    """What everybody sees of the workers."""
    return {
        "exit codes": ended.codes,
        "workers": [
            {
                "stdout": plain(worker.stdout),
                "stderr": plain(worker.stderr),
                "message": worker.error and plain(str(worker.error["message"]["message"])),
                "traceback": worker.error and plain(worker.error["message"]["extraInfo"]["py_callstack"]),
                "thread": worker.error and worker.error["message"]["extraInfo"].get("thread"),
            }
            for worker in ended.workers
        ],
    }


def modules_of(sources):
    """What of Python's own they import anywhere, so that it is there when they begin."""
    names = {name for source in sources for name in re.findall(r"(?:import|from|,) (\w+)", source)}
    return sorted(names & sys.stdlib_module_names - {"antigravity", "this"})


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    sets = Sets(tmp_path_factory.mktemp("sets"), modules_of([*ENDS.values(), CORPUS["PICKLING"], CORPUS["POOL"]]))
    yield sets
    sets.close()


@pytest.fixture
def compare(sets):
    """Runs a program both ways and has it end the same; returns what is seen of it."""

    def run(*words, **how):
        cold, warm = seen(sets.run(*words, warm=False, **how)), seen(sets.run(*words, warm=True, **how))
        assert warm == cold
        return warm

    return run


@pytest.mark.parametrize("name", ENDS)
def test_a_script(sets, compare, name):
    sets.file("broken_module_of_test.py", "def f(:\n")
    source = ENDS[name].encode("latin-1" if "latin-1" in ENDS[name] else "utf-8")
    (sets.directory / "script.py").write_bytes(source)
    target = sets.directory / "target"
    compare("script.py", target)
    if name.startswith("a file"):
        assert target.read_text() in ("w", "written")


def test_a_hook_that_cannot_write_does_not_become_the_reason(sets):
    sets.file(
        "script.py",
        "import sys\nsys.stderr = open('/dev/full', 'w', buffering=1)\n"
        "sys.excepthook = lambda *a: sys.stderr.write('hook\\n')\n1 / 0\n",
    )
    for warm in (False, True):
        ended = sets.run("script.py", warm=warm)
        assert ended.workers[0].error["message"]["message"] == "ZeroDivisionError: division by zero"
        assert ended.workers[0].stderr.startswith("Error in sys.excepthook:\n")


MODULES = {
    name: ENDS[name] for name in ("success", "an exception", "an interrupt", "exit with a text", "a syntax error")
}


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("words", [["-m", "package_of_test.tool"], ["-m", "tool"], ["directory"]], ids=" ".join)
def test_a_module(sets, compare, words, name):
    sets.file("package_of_test/__init__.py", "print('package')\n")
    for file in ("package_of_test/tool.py", "tool.py", "directory/__main__.py"):
        sets.file(file, MODULES[name])
    compare(*words)


@pytest.mark.parametrize("words", [["-m", "no_such_module_of_test"], ["-m", "json"], ["-m", "json.tool", "/missing"]])
def test_a_module_that_cannot_be_run(compare, words):
    compare(*words)


def test_a_script_that_is_gone_when_it_is_to_run(compare):
    """As with one name for each worker, which nobody looks for before."""
    assert "can't open file" in compare("missing.py")["workers"][0]["stderr"]


@pytest.mark.parametrize("name", ["success", "an exception", "a fault", "exit with a large number"])
def test_a_job(jobs, name):
    """The same through the command, with all that it says of the end."""
    script = jobs.file("script.py", ENDS[name])
    cold, warm = jobs.both(script)
    assert (warm.code, warm.exit_codes) == (cold.code, cold.exit_codes)
    for theirs, mine in zip(cold.workers, warm.workers, strict=True):
        assert (plain(mine.stdout), mine.error is None) == (plain(theirs.stdout), theirs.error is None)


@pytest.mark.parametrize("source", [b"\x80\x81print(1)\n", b"# -*- coding: no-such-coding -*-\n", b"print(1)\0"])
def test_a_script_that_is_no_text(sets, source):
    """The words are others: the interpreter reads it line by line."""
    (sets.directory / "script.py").write_bytes(source)
    shown = sets.run("script.py", warm=True)
    assert shown.codes == sets.run("script.py", warm=False).codes == [1]
    assert "SyntaxError" in shown.workers[0].stderr


def test_objects_of_the_script_can_be_pickled(sets, compare):
    compare(sets.file("script.py", CORPUS["PICKLING"]))


@pytest.mark.parametrize("words", [["script.py"], ["-m", "script"]], ids=" ".join)
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_of_multiprocessing(sets, compare, method, words):
    sets.file("script.py", CORPUS["POOL"])
    end = compare(*words, method)
    assert end["exit codes"] == [0]
    assert end["workers"][0]["stdout"].startswith("[(0, ")


def test_what_an_import_wants_done_at_the_end_is_done(jobs):
    """Also by libraries that look at who does it. And a log counts from the start of the program."""
    jobs.env["PYTHONPATH"] = jobs.directory / "installed" / "site-packages"
    jobs.file(
        "installed/site-packages/library_of_test.py",
        "import atexit, logging, threading, time, weakref\nfrom multiprocessing import util\nclass A: pass\na = A()\n"
        "util.Finalize(None, print, args=('finalizer',), exitpriority=10)\nweakref.finalize(a, print, 'weak')\n"
        "atexit.register(print, 'exit handler')\nthreading._register_atexit(print, 'thread')\nSTART = time.time()\n",
    )
    script = jobs.file(
        "script.py",
        "import library_of_test, logging, os, time\n"
        "started = float(open('/proc/self/stat').read().rpartition(')')[2].split()[19]) / os.sysconf('SC_CLK_TCK')\n"
        "age = time.clock_gettime(time.CLOCK_BOOTTIME) - started\n"
        "print(logging.makeLogRecord({}).relativeCreated / 1000 <= age + 0.1)\n",
    )
    cold, warm = jobs.both(script)
    assert warm.workers[0].stdout == cold.workers[0].stdout
    assert warm.workers[0].stdout.startswith("True\nthread\n")


@pytest.fixture(scope="module")
def sets_with_torch(tmp_path_factory):
    sets = Sets(tmp_path_factory.mktemp("sets"), ["torch", "torch.utils.data"])
    yield sets
    sets.close()


@pytest.mark.torch
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_a_data_loader(sets_with_torch, method):
    """What they load is the same as ever; `tests/worker` has the cold side."""
    script = sets_with_torch.file("script.py", CORPUS["DATA_LOADER"])
    ended = sets_with_torch.run(script, "-1", method, warm=True, nproc=2 if method == "fork" else 1)
    assert {worker.stdout for worker in ended.workers} == {"[[0, 1], [4, 9], [16, 25], [36, 49]]\n"}
    if method == "fork":
        failed = sets_with_torch.run(script, "3", method, warm=True)
        assert "a bad sample" in failed.workers[0].error["message"]["extraInfo"]["py_callstack"]
