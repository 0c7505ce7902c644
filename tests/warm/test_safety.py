"""What imports may do and what they may not: then one line says which it was, and the start is a cold one."""

from __future__ import annotations

import os
import sys

import pytest
from warm_jobs import environment

from holdfast.warm.template import Template

SHOW = """
import sys
IS_WARM = "library_of_test" in sys.modules
import library_of_test
print("warm" if IS_WARM else "cold", getattr(library_of_test, "VALUE", None))
"""

PYTHON_IS_TEMPLATE = "sys.orig_argv[1:3] == ['-u', '-c']"

UNSAFE = {
    "a thread": (
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()",
        "import library_of_test started threads",
    ),
    "a socket": ("import socket\nsock = socket.socket()", "import library_of_test left socket:["),
    "a pipe": ("import os\nends = os.pipe()", "import library_of_test left pipe:["),
    "a poll": ("import select\npoll = select.epoll()", "import library_of_test left anon_inode:[eventpoll] open"),
    "a device": ("import os\nends = os.open('/dev/ptmx', os.O_RDWR)", "import library_of_test left /dev/"),
    "a process": (
        "import subprocess\nprocess = subprocess.Popen(['sleep', '1000'])",
        "import library_of_test started a process",
    ),
    "a signal handler": (
        "import signal\nsignal.signal(signal.SIGUSR1, lambda *_: None)",
        "import library_of_test set signal handlers",
    ),
    "a handler for stacks": (
        "import faulthandler, signal\nfaulthandler.register(signal.SIGUSR2)",
        "import library_of_test set signal handlers",
    ),
    "a timer": (
        "import signal\nsignal.setitimer(signal.ITIMER_VIRTUAL, 1000)",
        "import library_of_test set a timer",
    ),
    "shared memory": ("import mmap\nmemory = mmap.mmap(-1, 4096)", "import library_of_test made memory or locks"),
    "a lock for processes": (
        "import multiprocessing\nlock = multiprocessing.Lock()",
        "import library_of_test made memory or locks",
    ),
    "a blocked signal": (
        "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])",
        "import library_of_test blocked signals",
    ),
    "a directory": ("import os\nos.chdir('/')", "import library_of_test changed the working directory"),
    "arguments": ("import sys\nsys.argv.append('x')", "import library_of_test changed sys.argv"),
    "the program": ("import __main__\n__main__.VALUE = 1", "import library_of_test changed __main__"),
    "another environment": (
        "import os\nos.environ = dict(os.environ)",
        "import library_of_test replaced os.environ",
    ),
    "a temporary directory": (
        "import tempfile\ndirectory = tempfile.TemporaryDirectory()",
        "import library_of_test made a temporary directory",
    ),
    "its rank": (
        "import os\nVALUE = int(os.environ.get('RANK', '7'))",
        "import library_of_test read RANK, which differs between workers",
    ),
    "a rank of its own": (
        "import os\nos.environ['LOCAL_RANK'] = '5'",
        "import library_of_test read LOCAL_RANK, which differs between workers",
    ),
}

SAFE = {
    "nothing": "",
    "a thread that has ended": "import threading\nt = threading.Thread(target=print)\nt.start(); t.join()",
    "a process that has ended": "import subprocess\nsubprocess.run(['true'])",
    "a socket that is closed": "import socket\nsocket.socket().close()",
    "a fault handler": "import faulthandler\nfaulthandler.enable()",
    "variables": "import os\nos.environ.get('HOME'), dict(os.environ), 'PATH' in os.environ",
    "a lock for threads": "import threading\nlock = threading.RLock()",
    "a temporary directory that is gone": "import tempfile\nwith tempfile.TemporaryDirectory(): pass",
    "a directory for ever": "import os\nos.makedirs('cache_of_test', exist_ok=True)",
    "a look at the program": "import __main__, os, sys\nos.getcwd(), sys.argv[0], vars(__main__)",
    "private memory": "import mmap\nmemory = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE)",
}


@pytest.fixture
def library(jobs):
    """Makes an installed module."""
    jobs.env["PYTHONPATH"] = jobs.directory / "installed" / "site-packages"
    return lambda source, name="library_of_test.py": jobs.file(f"installed/site-packages/{name}", source)


@pytest.fixture
def template(jobs, library, monkeypatch):
    """Makes the template of a program that imports an installed module with this source."""
    made = []
    for name in [name for name in os.environ if name not in environment()]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONPATH", str(jobs.env["PYTHONPATH"]))
    monkeypatch.setenv("TMPDIR", str(jobs.directory))
    monkeypatch.chdir(jobs.directory)

    def make(source):
        library(source)
        made.append(Template([sys.executable, "-u", jobs.file("script.py", SHOW)]))
        made[-1].start()
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.parametrize("name", UNSAFE)
def test_one_line_names_the_module(template, caplog, name):
    source, reason = UNSAFE[name]
    assert not template(source).is_ready()
    (line,) = (record.getMessage() for record in caplog.records if record.levelname == "WARNING")
    assert line.startswith(f"no warm start: {reason}")


@pytest.mark.parametrize("name", SAFE)
def test_other_imports_do_no_harm(template, name):
    assert template(SAFE[name]).is_ready()


def test_a_temporary_directory_of_a_template_that_cannot_be_used_is_removed(jobs, template):
    assert not template(UNSAFE["a temporary directory"][0]).is_ready()
    assert not list(jobs.directory.glob("tmp*"))


@pytest.mark.parametrize("name", ["a thread", "its rank"])
def test_the_start_is_a_cold_one_then(jobs, library, name):
    source, reason = UNSAFE[name]
    library(source)
    ended = jobs.run(jobs.file("script.py", SHOW), options=("--warm", "-r", "3"), nproc=2)
    assert ended.code == 0, ended.stderr
    (remark,) = ended.remarks
    assert remark.startswith(f"no warm start: {reason}")
    values = ["0", "1"] if name == "its rank" else ["None", "None"]
    assert [worker.stdout.splitlines()[-1] for worker in ended.workers] == [f"cold {value}" for value in values]


def test_after_other_imports_it_is_a_warm_one(jobs, library):
    library(SAFE["a fault handler"])
    assert jobs.warm(jobs.file("script.py", SHOW)).workers[0].stdout == "warm None\n"


def test_a_package_that_initialises_cuda(jobs, library):
    library("import torch.cuda\n", "torch/__init__.py")
    library("def is_initialized(): return True\n", "torch/cuda.py")
    ended = jobs.run(jobs.file("script.py", "import torch\nprint(1)\n"), options=("--warm", "-r", "3"))
    assert ended.remarks == ["no warm start: import torch initialised CUDA"]
    assert ended.workers[0].stdout == "1\n"


def test_the_start_of_python_counts_as_well(jobs):
    jobs.file("path/sitecustomize.py", UNSAFE["a thread"][0])
    ended = jobs.run(jobs.file("script.py", ""), options=("--warm",), env={"PYTHONPATH": "path"})
    assert ended.remarks == ["no warm start: the start of Python started threads"]


@pytest.mark.parametrize("name", ["queue.py", "queue/__init__.py"])
@pytest.mark.parametrize("words", [["script.py"], ["-m", "script"]], ids=" ".join)
def test_a_file_of_the_program_that_hides_an_imported_module(jobs, library, name, words):
    library("import queue\nVALUE = hasattr(queue, 'OWN')\n")
    hiding = jobs.file(name, "OWN = 1\nclass SimpleQueue: pass\n")
    jobs.file("script.py", SHOW)
    ended = jobs.run(*words, options=("--warm", "-r", "3"))
    (remark,) = ended.remarks
    hiding = hiding.removesuffix("/__init__.py")
    assert remark == f"no warm start: {hiding} hides a module of the same name that is imported already"
    assert ended.workers[0].stdout == "cold True\n"


def test_a_file_of_the_program_that_hides_nothing(jobs, library):
    """Modules of every interpreter cannot be hidden, and others may well have the name of a file."""
    library("")
    for name in ("codecs.py", "os.py", "queues.py", "queue.txt", "queue/notes.txt"):
        jobs.file(name, "")
    assert jobs.warm(jobs.file("script.py", SHOW)).workers[0].stdout == "warm None\n"


@pytest.mark.parametrize(
    "source",
    [
        "raise ValueError(1)",
        "import no_such_module_of_test",
        "raise SystemExit(3)",
        "class Odd(BaseException): pass\nraise Odd\n",
        "x = = 1",
    ],
)
def test_a_module_that_cannot_be_imported_is_the_workers_affair(jobs, library, source):
    library(source)
    script = "try:\n    import library_of_test\nexcept BaseException as error:\n    print(type(error).__name__)\n"
    path = jobs.file("script.py", script)
    assert jobs.warm(path).workers[0].stdout == jobs.cold(path).workers[0].stdout


def test_imports_that_kill_the_template(jobs, library):
    """Twice that costs a cold start, and then it is clear."""
    library(f"import os, sys\nif {PYTHON_IS_TEMPLATE}: os.kill(os.getpid(), 11)\n")
    script = jobs.file("script.py", f"{SHOW}\nraise SystemExit(3)\n")
    ended = jobs.run(script, options=("--warm", "-r", "3", "--max-restarts", "3", "--restart-policy", "always"))
    assert ended.remarks == [
        "the template died of import library_of_test (SIGSEGV): workers start cold this time",
        "the template died of import library_of_test (SIGSEGV): workers start cold this time",
        "no warm start: the template died of import library_of_test (SIGSEGV), 3 times",
    ]
    assert [attempt[0].stdout for attempt in ended.attempts] == ["cold None\n"] * 4


def test_output_of_imports_is_shown_once(jobs, library):
    library("import ctypes, sys\nprint('imported', end='')\nctypes.CDLL(None).printf(b'from C')\n")
    ended = jobs.warm(jobs.file("script.py", SHOW), nproc=3)
    assert "".join(sorted(ended.stdout)) == "".join(sorted("importedfrom C"))
    assert [worker.stdout for worker in ended.workers] == ["warm None\n"] * 3


def test_what_is_imported(jobs, library):
    """What the script and its own modules import at the top level, of what is installed; its own modules are not."""
    for name in ("direct", "of_module", "of_package", "of_relative", "of_function", "member"):
        library("", f"{name}_of_test/__init__.py")
    library("here = 1\n", "member_of_test/here.py")
    library("here = 2\n", "member_of_test/there.py")
    library("here = 'a name'\n", "member_of_test/__init__.py")
    jobs.file("own_of_test.py", "import of_module_of_test\n")
    jobs.file("package_of_test/__init__.py", "import of_package_of_test\n")
    jobs.file("package_of_test/inside.py", "import of_relative_of_test\n")
    jobs.file("package_of_test/tool.py", "from .inside import *\nfrom . import inside\n")
    script = jobs.file(
        "script.py",
        "import sys\nprint(sorted(name for name in sys.modules if 'of_test' in name))\n"
        "import own_of_test, direct_of_test\nfrom member_of_test import here, there\n"
        "import package_of_test.tool\n"
        "def f(): import of_function_of_test\n"
        "print(here, there.here)\n",
    )
    assert jobs.warm(script).workers[0].stdout.splitlines() == [
        str(
            [
                *("direct_of_test", "member_of_test", "member_of_test.there"),
                *("of_module_of_test", "of_package_of_test", "of_relative_of_test"),
            ]
        ),
        "a name 2",
    ]
    jobs.file("package_of_test/__main__.py", "import sys\nprint('of_package_of_test' in sys.modules)\n")
    assert jobs.warm("-m", "package_of_test").workers[0].stdout == "True\n"


def test_modules_that_are_given(jobs, library):
    """Also the project's own, if PYTHONPATH leads to them."""
    library("VALUE = 5")
    jobs.file("own/own_of_test.py", "print('imported')\n")
    env = {"PYTHONPATH": f"{jobs.directory}/own:{jobs.env['PYTHONPATH']}"}
    script = jobs.file("script.py", f"{SHOW}\nprint('own_of_test' in sys.modules, 'calendar' in sys.modules)\n")
    ended = jobs.run(script, options=("--warm-imports", "own_of_test,calendar", "-r", "3"), env=env)
    assert ended.stdout == "imported\n"
    assert ended.workers[0].stdout == "cold 5\nTrue True\n"


def test_another_interpreter(jobs, library):
    library("")
    python = jobs.file("python", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    os.chmod(python, 0o755)
    script = jobs.file("script.py", f"{SHOW}print(sys.orig_argv[0], sys.executable)\n")
    warm, cold = (how(script, env={"PYTHON_EXEC": python}).workers[0].stdout for how in (jobs.warm, jobs.cold))
    assert warm == cold.replace("cold", "warm")


def test_an_interpreter_that_is_too_old(jobs):
    python = jobs.file("python", '#!/bin/sh\n[ "$2" = -c ] && exit 78\necho "$@"\n')
    os.chmod(python, 0o755)
    ended = jobs.run(jobs.file("script.py", ""), options=("--warm",), env={"PYTHON_EXEC": python})
    assert ended.remarks == [f"no warm start: {python} is older than Python 3.11"]
    assert ended.stdout == f"-u {jobs.directory}/script.py\n"


def test_a_program_that_is_not_python(jobs):
    ended = jobs.run("echo", "hello", options=("--warm", "--no-python"))
    assert (ended.code, ended.stdout) == (0, "hello\n")
    assert ended.stderr.count("no warm start: echo is not a Python program") == 1


def test_options_of_the_interpreter(jobs):
    ended = jobs.run("--", "-X", "importtime", jobs.file("script.py", "print(1)"), options=("--warm",))
    assert (ended.code, ended.stdout) == (0, "1\n")
    assert ended.remarks == ["no warm start: -X is an option of the interpreter"]


def test_a_script_that_is_not_there(jobs):
    ended = jobs.run("missing.py", options=("--warm",))
    assert ended.code == 2
    assert "no such file" in ended.stderr
    assert ended.remarks == []


def test_without_hooks(jobs, library):
    library("")
    script = jobs.file("script.py", f"{SHOW}import faulthandler\nprint(faulthandler.is_enabled())\n1 / 0\n")
    ended = jobs.warm(script, env={"HOLDFAST_HOOKS": "0"})
    assert ended.workers[0].stdout == "warm None\nFalse\n"
    assert ended.workers[0].error is None
