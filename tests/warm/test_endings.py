"""A program ends warm as it ends cold: its exit code, what it prints, what it leaves behind."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

CORPUS = runpy.run_path(str(Path(__file__).parent.parent / "worker" / "test_startup_differences.py"))

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
    text = re.sub(r"repeated 99\d more times", "repeated N more times", text)  # two frames are ours
    return re.sub(r"(pid|PID) \d+", r"\1 N", text)


def seen(ended):
    """What everybody sees of the job's workers."""
    return {
        "code": ended.code,
        "exit codes": ended.exit_codes,
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


@pytest.fixture
def compare(jobs):
    """Runs a program both ways and has it end the same; returns what is seen of it."""

    def run(*words, **how):
        cold, warm = seen(jobs.cold(*words, **how)), seen(jobs.warm(*words, **how))
        assert warm == cold
        return warm

    return run


@pytest.mark.parametrize("name", ENDS)
def test_a_script(jobs, compare, name):
    jobs.file("broken_module_of_test.py", "def f(:\n")
    source = ENDS[name].encode("latin-1" if "latin-1" in ENDS[name] else "utf-8")
    (jobs.directory / "script.py").write_bytes(source)
    target = jobs.directory / "target"
    compare("script.py", target)
    if name.startswith("a file"):
        assert target.read_text() in ("w", "written")


MODULES = {
    name: ENDS[name] for name in ("success", "an exception", "an interrupt", "exit with a text", "a syntax error")
}


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("words", [["-m", "package_of_test.tool"], ["-m", "tool"], ["directory"]], ids=" ".join)
def test_a_module(jobs, compare, words, name):
    jobs.file("package_of_test/__init__.py", "print('package')\n")
    for file in ("package_of_test/tool.py", "tool.py", "directory/__main__.py"):
        jobs.file(file, MODULES[name])
    compare(*words)


@pytest.mark.parametrize("words", [["-m", "no_such_module_of_test"], ["-m", "json"], ["-m", "json.tool", "/missing"]])
def test_a_module_that_cannot_be_run(compare, words):
    compare(*words)


def test_a_script_that_is_gone_when_it_is_to_run(jobs, compare):
    """As with one name for each worker, which nobody looks for before."""
    assert "can't open file" in compare("script_${local_rank}.py")["workers"][0]["stderr"]


@pytest.mark.parametrize("source", [b"\x80\x81print(1)\n", b"# -*- coding: no-such-coding -*-\n", b"print(1)\0"])
def test_a_script_that_is_no_text(jobs, source):
    """The words are others: the interpreter reads it line by line."""
    (jobs.directory / "script.py").write_bytes(source)
    shown = jobs.warm("script.py")
    assert shown.exit_codes == jobs.cold("script.py").exit_codes == ["1"]
    assert "SyntaxError" in shown.workers[0].stderr


def test_objects_of_the_script_can_be_pickled(jobs, compare):
    compare(jobs.file("script.py", CORPUS["PICKLING"]))


@pytest.mark.parametrize("words", [["script.py"], ["-m", "script"]], ids=" ".join)
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_of_multiprocessing(jobs, compare, method, words):
    jobs.file("script.py", CORPUS["POOL"])
    end = compare(*words, method)
    assert end["code"] == 0
    assert end["workers"][0]["stdout"].startswith("[(0, ")


@pytest.mark.torch
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_a_data_loader(jobs, compare, method):
    script = jobs.file("script.py", CORPUS["DATA_LOADER"])
    end = compare(script, "-1", method, nproc=2)
    assert [worker["stdout"] for worker in end["workers"]] == ["[[0, 1], [4, 9], [16, 25], [36, 49]]\n"] * 2
    failed = jobs.warm(script, "3", method)
    assert "a bad sample" in failed.workers[0].error["message"]["extraInfo"]["py_callstack"]
