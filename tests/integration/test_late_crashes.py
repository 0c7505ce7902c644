"""Workers that crash while their interpreter ends, after their program has ended well or badly."""

from __future__ import annotations

import os
import socket
import textwrap

import pytest
from failing_jobs import SCRIPT, FailingJobs, Way

ARMED = """
import atexit, ctypes, os, signal, sys, threading
libc = ctypes.CDLL(None)

class Mine:
    '''Native code that is still at work when the interpreter takes its modules down.'''

    def __init__(self, crash):
        self.crash = crash

    def __del__(self):
        self.crash()

def abort_in_a_thread(create=libc.pthread_create, join=libc.pthread_join, abort=libc.abort, word=ctypes.c_size_t):
    thread = word()
    create(ctypes_ref(thread), None, abort, None)
    join(thread, None)

ctypes_ref = ctypes.byref
segfault = lambda kill=os.kill, pid=os.getpid(), signum=signal.SIGSEGV: kill(pid, signum)
RANK = int(os.environ["RANK"])
"""
"""How a program begins that crashes at its end. The mine is a module's value: they go after the exit handlers."""

IN_A_THREAD = f"{ARMED}sys.modules['mine_of_test'] = Mine(abort_in_a_thread)\nabort_in_a_thread.kept = ctypes_ref\n"
AT_EXIT = f"{ARMED}libc.on_exit(libc.abort, None)\n"
IN_DESTRUCTOR = f"{ARMED}mine = Mine(os.abort)\n"
SEGFAULT = f"{ARMED}mine = Mine(segfault)\n"

LEAVE_IN_A_FUNCTION = """
def main():
    try:
        sys.exit(0)
    finally:
        x = 1
main()
"""


@pytest.fixture
def jobs(tmp_path):
    made = FailingJobs(tmp_path)
    yield made
    made.close()


def program(script, *options, workers=2, words=(SCRIPT,), files=()):
    return Way("", script, "", workers=workers, options=options, words=words, files=files)


def check_success(outcome, ranks, signal_name="SIGABRT"):
    """The job has succeeded, at the first attempt, and says once for each rank what was odd about it."""
    assert outcome.exit_code == 0, outcome
    assert outcome.details("holdfast.run.ended")[0]["outcome"] == "succeeded", outcome
    assert len(outcome.details("holdfast.attempt.started")) == 1, outcome
    assert outcome.details("holdfast.failure") == [], outcome
    warnings = outcome.details("holdfast.warning")
    assert sorted(warning["rank"] for warning in warnings) == ranks, outcome
    for warning in warnings:
        assert f"crashed with {signal_name} while its interpreter shut down" in warning["text"], outcome
        assert "destroy_process_group()" in warning["text"], outcome
        assert outcome.stderr.count(warning["text"]) == 1, outcome
    assert outcome.stderr.count("after its program had succeeded") == len(ranks), outcome


class TestAGoodEnd:
    @pytest.mark.parametrize("armed", [AT_EXIT, IN_DESTRUCTOR, IN_A_THREAD], ids=["C", "destructor", "thread"])
    def test_a_crash_after_the_last_line(self, jobs, armed):
        outcome = jobs.run(program(armed, "--max-restarts", "1"))
        check_success(outcome, [0, 1])

    def test_another_signal(self, jobs):
        check_success(jobs.run(program(SEGFAULT)), [0, 1], "SIGSEGV")

    @pytest.mark.parametrize("leave", ["sys.exit(0)", "sys.exit()", "sys.exit(None)", LEAVE_IN_A_FUNCTION])
    def test_a_program_that_leaves(self, jobs, leave):
        check_success(jobs.run(program(f"{IN_DESTRUCTOR}{leave}\n")), [0, 1])

    @pytest.mark.parametrize("leave", ["", "sys.exit(0)"])
    def test_a_module(self, jobs, leave):
        files = {"package_of_test/tool.py": f"{IN_DESTRUCTOR}{leave}\n", "package_of_test/__init__.py": ""}
        words = ("-m", "package_of_test.tool")
        check_success(jobs.run(program("", workers=1, words=words, files=files)), [0])

    @pytest.mark.parametrize("leave", ["", "sys.exit(0)"])
    @pytest.mark.parametrize("is_module", [False, True])
    def test_a_warm_start(self, jobs, leave, is_module):
        files = {"module_of_test.py": f"{IN_DESTRUCTOR}{leave}\n"}
        words = ("-m", "module_of_test") if is_module else ("module_of_test.py",)
        outcome = jobs.run(program("", "--warm", workers=1, words=words, files=files))
        assert "cold" not in outcome.stderr
        check_success(outcome, [0])

    @pytest.mark.parametrize("leave", ["", "sys.exit(0)"])
    def test_a_function(self, jobs, leave):
        check_success(jobs.run(program(f"{AT_EXIT}{leave}\n", "--run-path")), [0, 1])

    def test_what_was_caught_does_not_count(self, jobs):
        script = "try:\n    sys.exit(1)\nexcept SystemExit:\n    pass\n"
        check_success(jobs.run(program(f"{IN_DESTRUCTOR}{script}", workers=1)), [0])


SIBLINGS = f"""
sys.path.insert(0, {os.path.join(os.path.dirname(__file__), "../support")!r})
from liveness import wait_for_end
if RANK == 0:
    with open("pid.new", "w") as file:
        file.write(str(os.getpid()))
    os.rename("pid.new", "pid")
    with open("between", "w") as file:
        file.write("go")
    mine = Mine(os.abort)
else:
    with open("between") as file:
        file.read()
    with open("pid") as file:
        wait_for_end([int(file.read())])
    with open("late", "w") as file:
        file.write("done")
    sys.exit(int(os.environ.get("LEAVE", "0")))
"""


class TestSiblings:
    def test_they_run_to_their_own_end(self, jobs, tmp_path):
        check_success(jobs.run(program(f"{ARMED}{SIBLINGS}")), [0])
        assert (tmp_path / "late").read_text() == "done"

    def test_one_that_fails_is_the_failure(self, jobs):
        way = program(f"{ARMED}{SIBLINGS}")
        way.environment["LEAVE"] = "7"
        outcome = jobs.run(way)
        assert outcome.exit_code == 1
        (failure,) = outcome.details("holdfast.failure")
        assert (failure["rank"], failure["exit_code"]) == (1, 7)
        assert [warning["rank"] for warning in outcome.details("holdfast.warning")] == [0]


class TestABadEnd:
    def check(self, outcome, exit_code):
        assert outcome.exit_code == 1, outcome
        assert outcome.verdict["cause"]["exit_code"] == exit_code, outcome
        assert outcome.details("holdfast.warning") == [], outcome

    def test_whoever_wants_it_strict_has_it_so(self, jobs):
        self.check(jobs.run(program(IN_DESTRUCTOR, "--strict-exit", workers=1)), -6)

    @pytest.mark.parametrize(
        "end",
        [
            "sys.exit(1)",
            "sys.exit('text')",
            "raise SystemExit(1)",
            "raise ValueError",
            "raise KeyError from ValueError()",
            "atexit.register(lambda: 1 / 0)",
            "def fail(): raise SystemExit(0)\natexit.register(fail)",
            "threading.Thread(target=lambda: 1 / 0).start()",
            "try:\n    sys.exit(0)\nexcept SystemExit:\n    pass\nraise SystemExit(1)",
            "try:\n    sys.exit(0)\nexcept SystemExit:\n    sys.exit(1)",
            "t = threading.Thread(target=sys.exit, args=(0,))\nt.start()\nt.join()\nraise SystemExit(1)",
            "sys.stdout = open('/dev/full', 'w')\nprint('lost')",
            "if os.fork() == 0:\n    sys.exit(0)\nos.wait()\nos.abort()",
        ],
    )
    @pytest.mark.parametrize("mode", ["script", "module", "warm"])
    def test_a_crash_after_it_is_a_failure(self, jobs, end, mode):
        words = ("-m", "train") if mode == "module" else (SCRIPT,)
        # The child of the fork must not crash: it is the parent whose end counts.
        armed = AT_EXIT if "fork" not in end else ARMED
        options = ("--warm",) if mode == "warm" else ()
        self.check(jobs.run(program(f"{armed}{end}\n", *options, workers=1, words=words)), -6)

    def test_an_exit_handler_with_a_code_of_its_own(self, jobs):
        self.check(jobs.run(program(f"{ARMED}atexit.register(os._exit, 3)\n", workers=1)), 3)

    def test_a_thread_that_still_works(self, jobs):
        wait = "main = threading.main_thread()\nthreading.Thread(target=lambda: (main.join(), os.abort())).start()\n"
        self.check(jobs.run(program(f"{ARMED}{wait}", workers=1)), -6)

    def test_an_exit_handler_that_crashes(self, jobs):
        self.check(jobs.run(program(f"{ARMED}atexit.register(os.abort)\n", workers=1)), -6)

    @pytest.mark.parametrize("end", ["sys.exit(1)", "1 / 0", "threading.Thread(target=os.abort).start()"])
    def test_a_function(self, jobs, end):
        outcome = jobs.run(program(f"{ARMED}{end}\n", "--run-path", workers=1))
        assert outcome.exit_code == 1
        assert outcome.details("holdfast.warning") == []

    def test_a_program_that_is_not_python(self, jobs):
        script = "#!/bin/sh\nkill -ABRT $$\n"
        self.check(jobs.run(program(script, "--no-python", workers=1, words=(f"./{SCRIPT}",))), -6)

    def test_a_program_without_hooks(self, jobs):
        way = program(IN_DESTRUCTOR, workers=1)
        way.environment["HOLDFAST_HOOKS"] = "0"
        self.check(jobs.run(way), -6)

    def test_a_kill_from_outside(self, jobs):
        """Nobody knows who wanted that, and why."""
        script = f"{ARMED}mine = Mine(lambda kill=os.kill, pid=os.getpid(): kill(pid, 9))\n"
        self.check(jobs.run(program(script, workers=1)), -9)


def test_two_nodes_end_together(tmp_path):
    """Each of them waits for the other at the exit barrier, though its own worker has crashed at its end."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        port = holder.getsockname()[1]
    nodes = []
    try:
        for number in range(2):
            (tmp_path / str(number)).mkdir()
            node = FailingJobs(tmp_path / str(number))
            nodes.append(node)
            way = program(
                IN_DESTRUCTOR,
                *("--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}"),
                *("--rdzv-id", "late", "--max-restarts", "1"),
                workers=1,
            )
            node.prepare(way)
            node.process = node._start(node.words(way), {"HOLDFAST_TOKEN": "of-the-test-and-long-enough"})
        warned = []
        for node in nodes:
            stdout, stderr = node.process.communicate(timeout=120)
            assert node.process.returncode == 0, (stdout, stderr)
            assert stderr.count("after its program had succeeded") == 1, stderr
            warned += [line for line in stderr.splitlines() if "after its program" in line]
        assert sorted("rank 0" in line for line in warned) == [False, True]
    finally:
        for node in nodes:
            node.close()


TORCH = textwrap.dedent("""
    import os, sys
    import torch, torch.distributed as dist
    dist.init_process_group("gloo")
    x = torch.ones(4)
    dist.all_reduce(x)
    assert x[0] == dist.get_world_size()
    import ctypes
    libc = ctypes.CDLL(None)
    libc.on_exit(libc.abort, None)  # what torch does now and then, always
    """)


@pytest.mark.torch
def test_a_process_group_that_is_never_destroyed(jobs):
    check_success(jobs.run(program(TORCH)), [0, 1])
