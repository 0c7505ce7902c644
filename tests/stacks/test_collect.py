from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest
from liveness import exists, status, wait_for_end

from holdfast.stacks import collect as collecting
from holdfast.stacks import spy as spying
from holdfast.stacks.collect import COLLECT_MAX_S, WorkerTarget, collect, ranks_here
from holdfast.stacks.parse import parse

ASLEEP = """
    import time
    def train():
        tell(post, "ready")
        while True:
            time.sleep(1000)
    answer()
    train()
"""
IN_C = """
    import ctypes, os
    def reduce():
        reads, _ = os.pipe()
        read = ctypes.PyDLL(None).read  # which keeps the interpreter's lock
        buffer = ctypes.create_string_buffer(1)
        tell(post, "ready")
        read(reads, buffer, 1)
    answer()
    reduce()
"""
DEAF = """
    import time
    def train():
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN + 12])
        tell(post, "ready")
        while True:
            time.sleep(1000)
    answer()
    train()
"""


def functions(text):
    """Those of the main thread. It may still be on its way out of telling that it is there."""
    main = parse(text).main
    return [frame.function for frame in main.frames if not frame.file.endswith("signpost.py")]


def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def stop(worker):
    os.kill(worker.pid, signal.SIGSTOP)
    until(lambda: status(worker.pid, "State").startswith("T"))


def test_a_worker_that_sleeps_in_python_says_where(start_worker, post):
    worker = start_worker(ASLEEP)
    post.line()
    texts = collect({4: worker})
    assert functions(texts[4]) == ["train", "<module>"]
    assert exists(worker.pid)


def test_a_worker_that_hangs_in_c_with_the_interpreters_lock_says_where(start_worker, post):
    worker = start_worker(IN_C)
    post.line()
    assert functions(collect({0: worker})[0]) == ["reduce", "<module>"]


def test_all_threads_of_a_worker_are_there_and_the_main_one_is_known(start_worker, post):
    worker = start_worker("""
        import threading, time
        def load():
            tell(post, "ready")
            time.sleep(1000)
        def wait():
            while True:
                time.sleep(1000)
        answer()
        for _ in range(3):
            threading.Thread(target=load, daemon=True).start()
        tell(post, "ready")
        wait()
    """)
    post.lines(4)
    stacks = parse(collect({0: worker})[0])
    assert len(stacks.threads) == 4
    assert sum("load" in {frame.function for frame in thread.frames} for thread in stacks.threads) == 3
    assert "load" not in {frame.function for frame in stacks.main.frames}


def test_each_request_gives_the_stacks_of_its_own_time(start_worker, post):
    worker = start_worker("""
        def first():
            tell(post, "first")
            signal.sigwait([signal.SIGUSR1])
        def second():
            tell(post, "second")
            signal.sigwait([signal.SIGUSR1])
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        answer()
        first()
        second()
    """)
    assert post.line() == "first"
    assert "first" in functions(collect({0: worker})[0])
    os.kill(worker.pid, signal.SIGUSR1)
    assert post.line() == "second"
    text = collect({0: worker})[0]
    assert "second" in functions(text)
    assert "in first" not in text


def test_a_worker_that_does_not_answer_is_looked_at_from_outside(start_worker, post, monkeypatch):
    monkeypatch.setattr(collecting, "ANSWER_MAX_S", 0.3)
    worker = start_worker(DEAF)
    post.line()
    text = collect({0: worker})[0]
    assert functions(text) == ["train", "<module>"]
    assert parse(text).source == "py-spy, because it did not answer"
    assert parse(text).state == ""


def test_a_worker_that_registered_no_handler_is_not_signalled(start_worker, post):
    worker = start_worker("""
        import time
        def importing():
            open(stacks, "ab")
            tell(post, "ready")
            time.sleep(1000)
        importing()
    """)
    post.line()
    assert functions(collect({0: worker})[0]) == ["importing", "<module>"]
    assert exists(worker.pid)
    assert not status(worker.pid, "State").startswith("Z")


def test_a_handler_that_is_somebody_elses_is_not_called(start_worker, post):
    """The program uses the signal itself, and the file is not open: the answer would go nowhere."""
    worker = start_worker("""
        import time
        def work():
            tell(post, "ready")
            time.sleep(1000)
        open(stacks, "ab").close()
        signal.signal(signal.SIGRTMIN + 12, lambda *_: tell(post, "called"))
        work()
    """)
    post.line()
    assert functions(collect({0: worker})[0]) == ["work", "<module>"]
    os.kill(worker.pid, signal.SIGRTMIN + 12)
    assert post.line() == "called"  # by us, just now
    assert os.stat(worker.stacks_path).st_size == 0


def test_a_stopped_worker_is_shown_as_stopped_and_stays_so(start_worker, post):
    worker = start_worker(ASLEEP)
    post.line()
    stop(worker)
    begin = time.monotonic()
    text = collect({0: worker})[0]
    assert time.monotonic() - begin < COLLECT_MAX_S
    assert parse(text).state == "stopped by a signal"
    assert functions(text) == ["train", "<module>"]
    assert status(worker.pid, "State").startswith("T")


def test_without_py_spy_the_kernel_is_asked(start_worker, post, monkeypatch):
    monkeypatch.setattr(spying, "find_py_spy", lambda: None)
    worker = start_worker(ASLEEP)
    post.line()
    stop(worker)
    stacks = parse(collect({0: worker})[0])
    assert stacks.threads == ()
    assert stacks.state.startswith("no Python stack: stopped by a signal")
    assert "py-spy is not installed" in stacks.source


def test_a_program_that_is_not_python_survives_and_is_described(start_worker):
    worker = start_worker(command=["sh", "-c", "exec sleep 1000", "sh"])
    until(lambda: status(worker.pid, "Name") == "sleep")
    stacks = parse(collect({0: worker})[0])
    assert stacks.threads == ()
    assert stacks.state.startswith("no Python stack: sleeping")
    assert exists(worker.pid)
    assert not status(worker.pid, "State").startswith("Z")


def test_a_program_behind_a_shell_script_is_found(start_worker, post):
    worker = start_worker(ASLEEP, command=["sh", "-c", '{python} {script} "$@"; true', "sh"])
    post.line()
    assert status(worker.pid, "Name") == "sh"
    assert functions(collect({0: worker})[0]) == ["train", "<module>"]


def test_many_workers_answer_at_once(start_worker, post):
    workers = {rank: start_worker(ASLEEP if rank != 3 else IN_C) for rank in range(5)}
    post.lines(5)
    ranks = ranks_here(workers)
    assert {rank: stacks.pid for rank, stacks in ranks.items()} == {rank: it.pid for rank, it in workers.items()}
    texts = {rank: stacks.text for rank, stacks in ranks.items()}
    assert {rank: functions(text)[0] for rank, text in texts.items()} == {
        **dict.fromkeys(range(5), "train"),
        3: "reduce",
    }


def test_a_worker_that_has_ended_is_left_out(tmp_path):
    process = subprocess.Popen(["true"])
    wait_for_end([process.pid])  # and it is still a zombie
    assert collect({0: WorkerTarget(process.pid, str(tmp_path / "none.stacks"))}) == {}
    process.wait()
    assert collect({0: WorkerTarget(process.pid, str(tmp_path / "none.stacks"))}) == {}


@pytest.mark.parametrize("timeout_s", [0.0, 0.5])
def test_the_time_is_bounded(start_worker, post, timeout_s, monkeypatch):
    worker = start_worker(DEAF)
    post.line()
    begin = time.monotonic()
    collect({0: worker}, timeout_s)
    assert time.monotonic() - begin < timeout_s + 5


def test_the_caller_can_do_something_else_meanwhile(start_worker, post, monkeypatch):
    """While a worker may still answer, and before each look from outside, which blocks."""
    calls = []
    workers = {rank: start_worker(DEAF) for rank in range(2)}
    post.lines(2)
    looked = []
    monkeypatch.setattr(collecting, "spy", lambda *_: looked.append(len(calls)) or "")
    monkeypatch.setattr(collecting, "ANSWER_MAX_S", 5 * collecting.STEP_S)
    collect(workers, meanwhile=lambda: calls.append(1))
    assert 1 < looked[0] < looked[1] == len(calls)


def test_stacks_of_any_size_are_cut_to_what_is_kept(start_worker, post):
    worker = start_worker("""
        import threading, time
        def deep(levels):
            if levels:
                return deep(levels - 1)
            tell(post, "ready")
            while True:
                time.sleep(1000)
        answer()
        for _ in range(30):
            threading.Thread(target=deep, args=(60,), daemon=True).start()
        def main():
            deep(0)
        main()
    """)
    post.lines(31)
    text = collect({0: worker})[0]
    assert len(text) < collecting.STACKS_MAX_CHARS + 100
    assert functions(text) == ["deep", "main", "<module>"]
