"""What a Python worker leaves when it fails, without being asked."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest
from installed_plugin import install_plugin
from signpost import Signpost

from holdfast.processes import DefaultLogsSpecs, postmortem, start_processes
from holdfast.worker import hooks

PATIENCE_S = 60.0

RAISED = {
    "in the main thread": ("def step():\n    raise ValueError('x')\nstep()", "ValueError: x", ["line 2, in step"]),
    "while importing": ("import failing_module_of_test", "ZeroDivisionError: division by zero", ["failing_module_of"]),
    "missing module": (
        "import no_such_module_of_test",
        "ModuleNotFoundError: No module named 'no_such_module_of_test'",
        ["line 1, in <module>"],
    ),
    "syntax": ("x = = 1", "SyntaxError: invalid syntax (script.py, line 1)", ["x = = 1", "^"]),
    "indentation": ("if 1:\nx", "IndentationError: expected an indented block", ['script.py", line 2']),
    "null bytes": ("x = '\0'", "SyntaxError: source code", []),
    "chained": (
        "try:\n    {}['a']\nexcept KeyError as error:\n    raise RuntimeError('b') from error",
        "RuntimeError: b",
        ["KeyError: 'a'", "direct cause of the following"],
    ),
    "in a handler": (
        "try:\n    {}['a']\nexcept KeyError:\n    1 / 0",
        "ZeroDivisionError: division by zero",
        ["KeyError: 'a'", "another exception occurred"],
    ),
    "group": (
        "raise ExceptionGroup('several', [ValueError('one'), ExceptionGroup('g', [TypeError('two')])])",
        "ExceptionGroup: several (2 sub-exceptions)",
        ["ValueError: one", "TypeError: two", "+-+-"],
    ),
    "notes": ("e = ValueError('x')\ne.add_note('the note')\nraise e", "ValueError: x", ["the note"]),
    "interrupt": ("raise KeyboardInterrupt", "KeyboardInterrupt: ", ["line 1"]),
    "recursion": ("def f(): f()\nf()", "RecursionError: maximum recursion depth exceeded", ["repeated"]),
    "cannot be printed": (
        "class E(Exception):\n    def __str__(self): raise TypeError\nraise E",
        "E: <its text is not available",
        [],
    ),
    "own hook": ("import sys\nsys.excepthook = lambda *_: None\n1 / 0", "ZeroDivisionError", ["line 3, in <module>"]),
    "hook that fails": ("import sys\ndef hook(*_): {}[1]\nsys.excepthook = hook\n1 / 0", "ZeroDivisionError", []),
    "hook that calls on": (
        "import sys\nsys.excepthook = lambda *a: sys.__excepthook__(*a)\n1 / 0",
        "ZeroDivisionError",
        ["line 3, in <module>"],
    ),
    "no environment": ("import os, sys\nsys.path.clear()\n1 / 0", "ZeroDivisionError", ["line 3"]),
    "moved": ("import os\nos.chdir('/')\n1 / 0", "ZeroDivisionError", ["line 3"]),
}


@pytest.mark.parametrize("name", RAISED)
def test_an_exception_that_nobody_catches_is_in_the_error_file(programs, name):
    source, message, parts = RAISED[name]
    programs.file("failing_module_of_test.py", "1 / 0")
    ended = programs.worker(programs.file("script.py", source))
    assert ended.code != 0
    assert ended.message.startswith(message)
    for part in parts:
        assert part in ended.traceback
    assert os.path.dirname(hooks.__file__) not in ended.traceback, "no frames of ours"
    assert ended.thread is None


@pytest.mark.parametrize("name", ["in the main thread", "syntax", "chained", "group", "notes", "while importing"])
def test_the_traceback_is_the_one_on_stderr(programs, name):
    programs.file("failing_module_of_test.py", "1 / 0")
    ended = programs.worker(programs.file("script.py", RAISED[name][0]))
    assert ended.traceback == ended.stderr


@pytest.mark.parametrize("exit_", ["", "import sys; sys.exit(0)", "import sys; sys.exit(3)", "import os; os._exit(4)"])
def test_an_exit_leaves_no_error_file(programs, exit_):
    assert programs.worker("-c", exit_).error is None


def test_an_exception_that_a_program_only_shows_is_not_its_end(programs):
    source = "import sys\ntry: 1 / 0\nexcept Exception: sys.excepthook(*sys.exc_info())\nsys.exit(3)"
    ended = programs.worker(programs.file("script.py", source))
    assert ended.code == 3
    assert "ZeroDivisionError" in ended.stderr
    assert ended.error is None
    programs.file("shown/__init__.py", "")
    programs.file("shown/__main__.py", f"def main():\n    {source.replace(chr(10), chr(10) + '    ')}\nmain()")
    assert programs.worker("-m", "shown").error is None


def test_a_thread_that_calls_the_hook_of_the_main_one_is_a_thread(programs):
    source = (
        "import sys, threading\ndef run():\n    try: 1 / 0\n    except Exception: sys.excepthook(*sys.exc_info())\n"
        "thread = threading.Thread(target=run, name='loader')\nthread.start()\nthread.join()\nsys.exit(3)"
    )
    assert programs.worker(programs.file("script.py", source)).thread == "loader"


def test_a_module_that_fails(programs):
    programs.file("package_of_test/__init__.py", "")
    programs.file("package_of_test/train.py", "def main():\n    raise OSError(5, 'io')\nmain()")
    ended = programs.worker("-m", "package_of_test.train")
    assert ended.message == "OSError: [Errno 5] io"
    assert 'train.py", line 2, in main' in ended.traceback


class TestThreads:
    def test_that_of_a_thread_is_recorded_when_it_happens(self, programs):
        source = """
import os, threading
def load():
    raise LookupError("no data")
thread = threading.Thread(target=load, name="loader-3")
thread.start()
thread.join()
os._exit(9)
"""
        ended = programs.worker(programs.file("script.py", source))
        assert (ended.code, ended.message, ended.thread) == (9, "LookupError: no data", "loader-3")
        assert ended.traceback.startswith("Exception in thread loader-3:\nTraceback ")
        assert "line 4, in load" in ended.traceback

    def test_that_of_the_main_thread_takes_its_place_and_tells_of_it(self, programs):
        source = """
import threading
def load(): raise LookupError("no data")
for name in ("one", "two"):
    thread = threading.Thread(target=load, name=name)
    thread.start()
    thread.join()
raise ValueError("main")
"""
        ended = programs.worker(programs.file("script.py", source))
        assert (ended.message, ended.thread) == ("ValueError: main", None)
        main, _, earlier = ended.traceback.partition("\nBefore that, a thread had ended:\n")
        assert main.endswith("ValueError: main\n")
        assert earlier.startswith("> Exception in thread one:\n> Traceback ")
        assert earlier.endswith("> LookupError: no data\n")
        assert "two" not in earlier

    def test_a_thread_that_exits_is_none_that_fails(self, programs):
        source = (
            "import sys, threading; t = threading.Thread(target=sys.exit, args=(3,)); t.start(); t.join(); sys.exit(5)"
        )
        ended = programs.worker("-c", source)
        assert (ended.code, ended.error) == (5, None)

    def test_a_long_story_of_a_thread_is_cut(self, programs):
        source = """
import threading
def load(): raise LookupError("x" * 100_000)
thread = threading.Thread(target=load)
thread.start()
thread.join()
raise ValueError("main")
"""
        ended = programs.worker(programs.file("script.py", source))
        assert 10_000 < len(ended.traceback) < 20_000


class TestWhatIsThereAlready:
    def test_what_record_wrote_stays(self, programs):
        source = """
from holdfast.errors import record
@record
def main():
    raise ValueError("main")
try:
    main()
except ValueError as error:
    raise TypeError("outside") from error
"""
        ended = programs.worker(programs.file("script.py", source))
        assert ended.message == "ValueError: main"

    def test_a_file_of_the_programs_own_stays(self, programs):
        source = """
import os
with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as file:
    file.write('{"message": {"message": "my own"}}')
1 / 0
"""
        assert programs.worker(programs.file("script.py", source)).message == "my own"

    def test_the_failure_of_a_child_is_handed_on(self, programs):
        source = """
import sys
from holdfast.processes import DefaultLogsSpecs, start_processes
from holdfast.errors import ChildFailedError
child = start_processes("child", sys.executable, {0: ("-c", "raise KeyError('deep')")}, {0: {}}, DefaultLogsSpecs())
raise ChildFailedError("child", child.wait().failures)
"""
        assert programs.worker(programs.file("script.py", source)).message == "KeyError: 'deep'"


def test_without_an_error_file_nothing_is_recorded(programs):
    ended = programs.worker("-c", "import os; os.environ['TORCHELASTIC_ERROR_FILE'] = ''; 1 / 0")
    assert (ended.code, ended.error) == (1, None)
    assert ended.stderr.endswith("ZeroDivisionError: division by zero\n")


def test_without_modules_to_record_with_the_program_fails_as_always(programs):
    source = "import builtins\nreal = __import__\ndef no(*a, **k): raise ImportError\nbuiltins.__import__ = no\n1 / 0"
    ended = programs.worker(programs.file("script.py", source))
    assert ended.code == 1
    assert ended.stderr.endswith("ZeroDivisionError: division by zero\n")


CRASHES = {
    "SIGSEGV": "import faulthandler; faulthandler._sigsegv()",
    "SIGABRT": "import os; os.abort()",
    "SIGFPE": "import os, signal; os.kill(os.getpid(), signal.SIGFPE)",
    "SIGBUS": "import os, signal; os.kill(os.getpid(), signal.SIGBUS)",
    "SIGILL": "import os, signal; os.kill(os.getpid(), signal.SIGILL)",
}


@pytest.mark.parametrize("name", CRASHES)
def test_a_native_crash_leaves_the_stacks_of_all_threads(programs, name):
    source = f"""
import threading
waiting = threading.Event()
def wait_for_ever():
    waiting.set()
    threading.Event().wait()
threading.Thread(target=wait_for_ever, daemon=True).start()
waiting.wait()
def crash():
    {CRASHES[name]}
crash()
"""
    ended = programs.worker(programs.file("script.py", source))
    assert ended.code == -getattr(signal, name)
    assert ended.error is None
    assert ended.stderr == "", "as under Python"
    stacks = postmortem.crash_stacks({"HOLDFAST_WORKER_PAGE": ended.page})
    assert stacks.startswith("Fatal Python error")
    assert "in crash" in stacks
    assert "in wait_for_ever" in stacks


def test_without_a_page_the_stacks_are_on_stderr(programs):
    ended = programs.worker("-c", CRASHES["SIGSEGV"], HOLDFAST_WORKER_PAGE="/no/such/directory/page")
    assert "Fatal Python error: Segmentation fault" in ended.stderr


def test_where_there_is_no_memory_for_a_page_the_stacks_are_on_stderr(programs, tmp_path):
    (tmp_path / "full.stacks").symlink_to("/dev/full")
    ended = programs.worker("-c", CRASHES["SIGSEGV"], HOLDFAST_WORKER_PAGE=str(tmp_path / "full"))
    assert "Fatal Python error: Segmentation fault" in ended.stderr


def test_there_is_memory_for_the_first_stacks_from_the_beginning(programs):
    ended = programs.worker("-c", "import os; print(os.stat(os.environ['HOLDFAST_WORKER_PAGE'] + '.stacks').st_blocks)")
    assert int(ended.stdout) > 0


def test_a_fault_handler_that_is_on_stays(programs):
    ended = programs.worker("-X", "faulthandler", "-c", CRASHES["SIGSEGV"])
    assert "Fatal Python error: Segmentation fault" in ended.stderr


WAITS = {
    "in Python": "import time\n    while True: time.sleep(1000)",
    "in C": "import ctypes\n    ctypes.CDLL(None).pause()\n    ctypes.CDLL(None).pause()",
    "busy": "while True: pass",
}


def signalled_stacks(page, pid, *names):
    """Ask for stacks until they have these names: the program says that it is ready a moment before it waits."""
    deadline = time.monotonic() + PATIENCE_S
    stacks = ""
    while time.monotonic() < deadline:
        os.kill(pid, signal.SIGRTMIN + hooks.STACKS_SIGNAL_OFFSET)
        with open(page + hooks.STACKS_SUFFIX) as file:
            stacks = file.read()
        if all(name in stacks for name in names):
            return stacks
        time.sleep(0.01)
    raise TimeoutError(f"no {names} in {stacks!r}")


@pytest.mark.parametrize("name", WAITS)
def test_a_worker_that_lives_shows_its_stacks_on_a_signal(programs, tmp_path, name):
    post = Signpost(tmp_path / "signpost")
    source = f"""
import threading
def other():
    threading.Event().wait()
threading.Thread(target=other, daemon=True).start()
def stuck():
    {WAITS[name]}
with open({post.path!r}, "w") as file:
    file.write("ready\\n")
stuck()
"""
    context, page = programs.start(programs.file("script.py", source))
    try:
        assert post.line() == "ready"
        stacks = signalled_stacks(page, context.pids()[0], "in stuck", "in other")
        assert "most recent call first" in stacks
        assert context.wait(0) is None, "it lives"
        assert postmortem.crash_stacks({"HOLDFAST_WORKER_PAGE": page}) == ""
    finally:
        context.close(timeout=0)
        post.close()


class TestFunctions:
    @pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
    def test_a_thread_of_a_function(self, tmp_path, method):
        import functions

        logs = DefaultLogsSpecs(str(tmp_path / "logs"))
        context = start_processes("set", functions.fail_in_thread, {0: ()}, {0: {}}, logs, start_method=method)
        with context:
            failure = context.wait(PATIENCE_S).failures[0]
        assert failure.exitcode == 3
        assert failure.error_file_data["message"]["message"] == "LookupError: in a thread"

    @pytest.mark.parametrize("method", ["spawn", "forkserver"])
    def test_a_native_crash_of_a_function(self, tmp_path, method):
        import functions

        page = str(tmp_path / "page")
        logs = DefaultLogsSpecs(str(tmp_path / "logs"))
        env = {"HOLDFAST_WORKER_PAGE": page}
        context = start_processes("set", functions.crash, {0: ()}, {0: env}, logs, start_method=method)
        with context:
            failure = context.wait(PATIENCE_S).failures[0]
        assert failure.exitcode == -signal.SIGSEGV
        assert "in crash" in postmortem.crash_stacks(env)


def test_a_plug_in_gets_the_exception_too(programs):
    """As `record` would give it: through the handler that the environment names."""
    code = """
from holdfast.errors import ErrorHandler
class Handler(ErrorHandler):
    def record_exception(self, e):
        print("handled", repr(e), flush=True)
"""
    install_plugin(
        programs.directory, "plugin_of_test", code, "[holdfast.error_handlers]\nmine = plugin_of_test:Handler\n"
    )
    ended = programs.worker(programs.file("script.py", "1 / 0"), HOLDFAST_ERROR_HANDLER="mine")
    assert ended.stdout == "handled ZeroDivisionError('division by zero')\n"


class TestTheFileOfTheStacks:
    SHOW = """
import os
path = os.environ["HOLDFAST_WORKER_PAGE"] + ".stacks"
(fd,) = [fd for fd in range(3, 256) if os.path.exists(f"/proc/self/fd/{fd}") and os.path.samefile(path, fd)]
print(fd, os.get_inheritable(fd))
"""

    def test_it_is_far_from_the_programs_own_descriptors_and_no_childs(self, programs):
        fd, is_inherited = programs.worker(programs.file("script.py", self.SHOW)).stdout.split()
        assert hooks.FIRST_DESCRIPTOR <= int(fd) < hooks.LAST_DESCRIPTOR
        assert is_inherited == "False"

    def test_a_descriptor_that_is_taken_stays(self, programs):
        script = programs.file("script.py", self.SHOW)
        words = f"exec {hooks.FIRST_DESCRIPTOR}</dev/null; exec {sys.executable} {script}"
        fd, *_ = programs.worker("-c", words, command="bash").stdout.split()
        assert int(fd) == hooks.FIRST_DESCRIPTOR + 1

    def test_under_a_low_limit_any_descriptor_does(self, programs):
        script = programs.file("script.py", f"{self.SHOW}\n{CRASHES['SIGSEGV']}\n")
        ended = programs.worker("-c", f"ulimit -n 64; exec {sys.executable} -u {script}", command="bash")
        assert int(ended.stdout.split()[0]) < 64
        assert "Fatal Python error: Segmentation fault" in ended.stacks


def test_a_forked_child_that_fails_is_not_the_worker(programs):
    source = "import os\nif os.fork() == 0:\n    raise ValueError('of the child')\nprint(os.wait()[1] >> 8)\n"
    ended = programs.worker(programs.file("script.py", source))
    assert (ended.code, ended.stdout, ended.error) == (0, "1\n", None)
    assert "ValueError: of the child" in ended.stderr


def test_an_interrupt_ends_the_program_by_its_signal_and_is_recorded(programs):
    ended = programs.worker(programs.file("script.py", "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"))
    assert ended.code == -signal.SIGINT
    assert ended.message.startswith("KeyboardInterrupt")


def test_hooks_for_threads_that_came_before_ours_are_called(programs):
    """A `sitecustomize` of the user's, or a warm start, may have imported threading and set its hook."""
    source = f"""
import os, runpy, sys, threading
threading.excepthook = lambda args: print("theirs", args.exc_value, flush=True)
runpy.run_path({hooks.__file__!r})["install"](is_program=False)
thread = threading.Thread(target=lambda: 1 / 0, name="loader")
thread.start()
thread.join()
"""
    ended = programs.worker(programs.file("script.py", source), HOLDFAST_HOOKS="0")
    assert ended.stdout == "theirs division by zero\n"
    assert (ended.message, ended.thread) == ("ZeroDivisionError: division by zero", "loader")
