"""A program is under holdfast what it is under ``python``: each is run both ways, and all it can see is compared."""

from __future__ import annotations

import json
import os
import sys
import zipfile

import pytest

DOCUMENTED_MODULES = {"atexit", "faulthandler"}
DOCUMENTED_VARIABLES = {"HOLDFAST_WORKER_PAGE", "TORCHELASTIC_ERROR_FILE"}
FIRST_DESCRIPTOR = 200

STATE = """
import sys
modules = sorted(sys.modules)
depth = 0
frame = sys._getframe()
while frame is not None:
    depth, frame = depth + 1, frame.f_back
import json, os, signal, subprocess, threading, warnings
main = sys.modules["__main__"]
state = {
    "main": {name: str(getattr(main, name, "missing")) for name in (
        "__name__", "__file__", "__doc__", "__package__", "__cached__", "__annotations__", "__path__")},
    "main spec": repr(main.__spec__),
    "main loader": type(main.__loader__).__name__,
    "builtins": main.__builtins__.__name__ if hasattr(main.__builtins__, "__name__") else "dict",
    "names": sorted(name for name in vars(main) if name.startswith("__")),
    "argv": sys.argv,
    "orig_argv": sys.orig_argv[1:],
    "path": sys.path,
    "path_importer_cache": sorted(sys.path_importer_cache),
    "flags": repr(sys.flags),
    "xoptions": sys._xoptions,
    "warnoptions": sys.warnoptions,
    "filters": repr(warnings.filters),
    "modules": modules,
    "sitecustomize": repr(sys.modules.get("sitecustomize")),
    "meta_path": repr(sys.meta_path),
    "path_hooks": len(sys.path_hooks),
    "depth": depth,
    "environ": dict(os.environ),
    "descriptors": sorted(map(int, os.listdir("/proc/self/fd"))),
    "next descriptor": os.dup(0),
    "handlers": {int(number): str(signal.getsignal(number)) for number in signal.valid_signals()},
    "mask": sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ()))),
    "threads": [thread.name for thread in threading.enumerate()],
    "tasks": len(os.listdir("/proc/self/task")),
    "hooks": [
        sys.excepthook is sys.__excepthook__, sys.unraisablehook is sys.__unraisablehook__,
        sys.displayhook is sys.__displayhook__, threading.excepthook is threading.__excepthook__,
        sys.gettrace() is None, sys.getprofile() is None,
    ],
    "recursion": sys.getrecursionlimit(),
    "cwd": os.getcwd(),
    "umask": os.umask(0),
    "streams": [str(stream.encoding) + str(stream.line_buffering) for stream in (sys.stdout, sys.stderr)],
    "child": subprocess.check_output("env", text=True),
}
print(json.dumps(state))
"""


@pytest.fixture
def compare(programs):
    """Runs a program both ways and has it be the same; returns what the worker left."""

    def run(*words):
        plain, worker = programs.plain(*words), programs.worker(*words)
        assert worker.seen == plain.seen
        return worker

    return run


@pytest.fixture
def compare_state(programs):
    """Runs a program that prints `STATE` both ways."""

    def run(*words, **env):
        programs.env = {**programs.env, **env}
        plain, worker = programs.plain(*words), programs.worker(*words)
        assert (worker.code, worker.seen["stderr"]) == (plain.code, plain.seen["stderr"])
        expected, seen = json.loads(plain.seen["stdout"]), json.loads(worker.seen["stdout"])
        assert set(seen.pop("modules")) - set(expected.pop("modules")) <= DOCUMENTED_MODULES
        assert [fd for fd in seen.pop("descriptors") if fd < FIRST_DESCRIPTOR] == expected.pop("descriptors")
        environ = seen.pop("environ")
        child = seen.pop("child").splitlines()
        child = [line for line in child if line.partition("=")[0] not in DOCUMENTED_VARIABLES]
        assert set(child) == set(expected.pop("child").splitlines())
        assert {name: environ[name] for name in environ.keys() - DOCUMENTED_VARIABLES} == expected.pop("environ")
        assert environ.keys() >= DOCUMENTED_VARIABLES
        assert seen == expected
        return seen

    return run


class TestTheStateAProgramBeginsWith:
    def test_a_script(self, programs, compare_state):
        state = compare_state(programs.file("script.py", STATE), "--lr", "0.1", "")
        assert state["argv"][1:] == ["--lr", "0.1", ""]

    def test_a_script_by_a_relative_path(self, programs, compare_state):
        programs.file("inside/script.py", STATE)
        compare_state("inside/script.py")

    def test_a_module(self, programs, compare_state):
        programs.file("package_of_test/__init__.py", "")
        programs.file("package_of_test/tool.py", STATE)
        compare_state("-m", "package_of_test.tool", "x")

    def test_a_package(self, programs, compare_state):
        programs.file("package_of_test/__init__.py", "")
        programs.file("package_of_test/__main__.py", STATE)
        compare_state("-m", "package_of_test")

    def test_a_directory(self, programs, compare_state):
        programs.file("inside/__main__.py", STATE)
        compare_state("inside")

    def test_a_zip_file(self, programs, compare_state):
        with zipfile.ZipFile(programs.directory / "program.zip", "w") as file:
            file.writestr("__main__.py", STATE)
        compare_state("program.zip")

    def test_a_symbolic_link(self, programs, compare_state):
        os.symlink(programs.file("inside/script.py", STATE), programs.directory / "link.py")
        compare_state("link.py")

    def test_a_text(self, compare_state):
        compare_state("-c", STATE, "x")

    @pytest.mark.parametrize(
        "options", [["-O"], ["-P"], ["-X", "dev"], ["-X", "faulthandler"], ["-W", "error"], ["-B"]]
    )
    def test_options_of_the_interpreter(self, programs, compare_state, options):
        compare_state(*options, programs.file("script.py", STATE))

    @pytest.mark.parametrize(
        "path", ["", "/somewhere", "/somewhere:relative", ":/somewhere", "/somewhere:", "::", "/a:/a:/b"]
    )
    def test_a_python_path(self, programs, compare_state, path):
        programs.file("inside/script.py", STATE)
        compare_state("inside/script.py", PYTHONPATH=path)

    @pytest.mark.parametrize(
        "code",
        [
            "import os\nVALUE = 1\n",
            "import no_such_module_of_test\n",
            "raise ValueError('in sitecustomize')\n",
            "raise ImportError('x', name='sitecustomize')\n",
        ],
    )
    def test_a_sitecustomize_of_the_users_own(self, programs, compare_state, code):
        programs.file("path/sitecustomize.py", code)
        compare_state(programs.file("script.py", STATE), PYTHONPATH=str(programs.directory / "path"))

    def test_the_users_sitecustomize_ends_the_program(self, programs):
        programs.file("path/sitecustomize.py", "import sys; sys.exit(7)")
        programs.env = {"PYTHONPATH": "path"}
        plain, worker = programs.plain("-c", ""), programs.worker("-c", "")
        # In this one case frames of ours are seen: the user's module is imported from one, and `sys.exit` is another.
        assert (worker.code, worker.stderr.splitlines()[-1]) == (plain.code, plain.stderr.splitlines()[-1])

    @pytest.mark.parametrize("path", [None, "", "/old"])
    @pytest.mark.parametrize(
        "line",
        [
            "",
            "export PYTHONPATH=/lib:$PYTHONPATH",
            "export PYTHONPATH=$PYTHONPATH:/lib",
            "export PYTHONPATH=/lib",
            "unset PYTHONPATH",
        ],
    )
    def test_a_shell_script_in_between_that_sets_the_path(self, programs, path, line):
        programs.env = {} if path is None else {"PYTHONPATH": path}
        show = "import os, sys; print(sys.path, os.environ.get('PYTHONPATH'))"
        script = f'{line}\nexec {sys.executable} -u -c "{show}"'
        with_shell = programs.worker("-c", script, command="sh")
        plain = programs.plain("-c", "import os, sys; os.execvp('sh', ['sh', '-c', sys.argv[1]])", script)
        assert with_shell.seen == plain.seen


ENDS = {
    "success": "print('done')",
    "exit 3": "import sys; sys.exit(3)",
    "exit with a text": "import sys; sys.exit('a text')",
    "exit with nothing": "import sys; sys.exit()",
    "exit at once": "import os; os._exit(5)",
    "an exception": "def f():\n    raise ValueError('x')\nf()\n",
    "a chain": "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise KeyError('k') from e\n",
    "a group": "raise ExceptionGroup('several', [ValueError(1), ExceptionGroup('more', [TypeError(2)])])",
    "notes": "e = ValueError('x')\ne.add_note('first')\ne.add_note('second')\nraise e",
    "a syntax error": "x = = 1\n",
    "a syntax error elsewhere": "import broken_module_of_test\n",
    "an import error": "import no_such_module_of_test",
    "an interrupt": "raise KeyboardInterrupt",
    "a real interrupt": "import os, signal; os.kill(os.getpid(), signal.SIGINT); signal.pause()",
    "an interrupt that a hook tells of": "import sys\nsys.excepthook = lambda *a: print(1)\nraise KeyboardInterrupt",
    "an interrupt that is told of": (
        "import sys\ntry:\n    raise KeyboardInterrupt\n"
        "except KeyboardInterrupt:\n    sys.excepthook(*sys.exc_info())\n"
    ),
    "an interrupt in a thread": (
        "import threading\ndef f(): raise KeyboardInterrupt\n"
        "t = threading.Thread(target=f, name='T')\nt.start(); t.join()\n"
    ),
    "a hook of its own": "import sys\nsys.excepthook = lambda *a: print('hook', a[1])\n1 / 0\n",
    "a hook that calls on": "import sys\nsys.excepthook = lambda *a: (print('hook'), sys.__excepthook__(*a))\n1 / 0\n",
    "a hook that fails": "import sys\ndef hook(*a): raise TypeError('hook')\nsys.excepthook = hook\n1 / 0\n",
    "no hook": "import sys\ndel sys.excepthook\n1 / 0\n",
    "recursion": "def f(): f()\nf()\n",
    "no text": "class E(Exception):\n    def __str__(self): raise TypeError\nraise E\n",
    "what goes with the module": "class A:\n    def __del__(self): print('gone')\na = A()\nprint('end')\n",
    "an unraisable": "class A:\n    def __del__(self): 1 / 0\nA(); print('on')",
    "a thread": "import threading\nt = threading.Thread(target=lambda: 1 / 0, name='T')\nt.start(); t.join()\n",
    "a thread that exits": "import sys, threading\nt = threading.Thread(target=sys.exit)\nt.start(); t.join()\n",
    "a hook for threads": (
        "import threading\nthreading.excepthook = lambda a: print('hook', a.exc_value)\n"
        "t = threading.Thread(target=lambda: 1 / 0)\nt.start(); t.join()\n"
    ),
    "exit handlers": "import atexit\natexit.register(print, 'first')\natexit.register(print, 'second')\n1 / 0\n",
    "an exit handler that fails": "import atexit\natexit.register(lambda: 1 / 0)\n",
    "no streams": "import sys\nsys.stderr = None\n1 / 0\n",
    "an abort": "import os; os.abort()",
    "a kill": "import os; os.kill(os.getpid(), 9)",
    "a forked child that fails": "import os\nif os.fork() == 0:\n    raise ValueError(1)\nos.wait(); print('on')\n",
}


@pytest.mark.parametrize("name", ENDS)
def test_a_program_ends_as_always(programs, compare, name):
    programs.file("broken_module_of_test.py", "def f(:\n")
    compare(programs.file("script.py", ENDS[name]))


def test_a_module_ends_as_always(programs, compare):
    programs.file("module_of_test.py", ENDS["what goes with the module"])
    assert compare("-m", "module_of_test").seen["stdout"] == "end\ngone\n"


def test_a_module_fails_as_always(programs, compare):
    programs.file("module_of_test.py", "def f():\n    1 / 0\nf()\n")
    assert "runpy" in compare("-m", "module_of_test").traceback
    assert compare("-m", "no_such_module_of_test").error is None


PICKLING = """
import pickle, sys

class Thing:
    def __init__(self, value):
        self.value = value

def double(thing):
    return thing.value * 2

again = pickle.loads(pickle.dumps([Thing(3), double, Thing]))
print(again[0].value, again[1] is double, again[2] is Thing, Thing.__module__)
"""

POOL = """
import multiprocessing, os, sys

class Thing:
    def __init__(self, value):
        self.value = value

def double(thing):
    assert not [name for name in os.environ if name in ("HOLDFAST_STARTUP", "HOLDFAST_WORKER_PID")]
    assert not [entry for entry in sys.path if entry.endswith("startup")]
    return Thing(thing.value * 2), __name__

def fail(thing):
    raise ValueError(thing.value)

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    with context.Pool(2) as pool:
        print([(thing.value, name) for thing, name in pool.map(double, map(Thing, range(5)))])
        try:
            pool.apply(fail, (Thing(7),))
        except ValueError as error:
            print(repr(error))
    process = context.Process(target=fail, args=(Thing(8),), name="failing")
    process.start()
    process.join()
    print(process.exitcode)
"""


def test_objects_of_the_script_can_be_pickled(programs, compare):
    compare(programs.file("script.py", PICKLING))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_of_multiprocessing(programs, compare, method):
    worker = compare(programs.file("script.py", POOL), method)
    assert worker.code == 0
    assert worker.stdout.startswith("[(0, ")
    assert worker.error is None, "that of a child is not the worker's"


DATA_LOADER = """
import os, sys
import torch

class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        if index == int(sys.argv[1]):
            raise ValueError("a bad sample")
        return torch.tensor(index ** 2)

if __name__ == "__main__":
    loader = torch.utils.data.DataLoader(
        Squares(), batch_size=2, num_workers=2, multiprocessing_context=sys.argv[2])
    print([batch.tolist() for batch in loader])
"""


@pytest.mark.torch
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_a_data_loader(programs, compare, method):
    script = programs.file("script.py", DATA_LOADER)
    assert compare(script, "-1", method).stdout == "[[0, 1], [4, 9], [16, 25], [36, 49]]\n"
    failed = programs.worker(script, "3", method)
    assert failed.code == 1
    assert "ValueError: Caught ValueError in DataLoader worker process" in failed.message
    assert "a bad sample" in failed.traceback
