"""Asking workers quickly, before they are stopped."""

from __future__ import annotations

import os
import select

import pytest

from holdfast.stacks.asking import ask_quickly, kernel_facts, process_state
from holdfast.stacks.collect import collect

PLENTY_S = 60.0

SLEEPS = """
    import time
    def train():
        tell(post, "ready")
        while True:
            time.sleep(600)
    answer()
    train()
"""


def test_an_answer_is_whole_when_the_wait_for_it_ends(start_worker, post):
    workers = {rank: start_worker(SLEEPS) for rank in range(3)}
    post.lines(3)
    answers = ask_quickly(workers, PLENTY_S)
    assert sorted(answers) == [0, 1, 2]
    assert all(answer.is_whole and "in train" in answer.text() for answer in answers.values())


def test_an_answer_that_is_whole_stays_as_it_was(start_worker, post):
    worker = start_worker(SLEEPS)
    post.line()
    answer = ask_quickly({0: worker}, PLENTY_S)[0]
    before = answer.text()
    with open(worker.stacks_path, "ab") as file:
        file.write(b"Fatal Python error: Aborted\n")
    assert answer.text() == before


def test_an_answer_with_many_threads_has_the_main_one(start_worker, post):
    worker = start_worker("""
    import threading, time
    working = threading.Semaphore(0)
    def work():
        working.release()
        while True:
            time.sleep(600)
    def train():
        tell(post, "ready")
        work()
    answer()
    for _ in range(40):
        threading.Thread(target=work, daemon=True).start()
    for _ in range(40):
        working.acquire()
    train()
    """)
    post.line()
    answer = ask_quickly({0: worker}, PLENTY_S)[0]
    assert answer.is_whole
    assert "in train" in answer.text()
    assert answer.text().count("in work") >= 40  # the main thread may not have come there yet


def test_a_process_that_does_not_answer_costs_the_limit_and_no_more(start_worker, post):
    worker = start_worker("""
    answer()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN + 12])
    tell(post, "ready")
    while True:
        signal.pause()
    """)
    post.line()
    answer = ask_quickly({0: worker}, 0.02, spares_pauses=False)[0]
    assert not answer.is_whole
    assert answer.text() == ""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="other machines have no such system call")
def test_a_process_that_waits_for_a_signal_gets_none(start_worker, post):
    worker = start_worker("""
    answer()
    tell(post, "ready")
    signal.pause()
    tell(post, "went on")
    """)
    post.line()
    while "sys_pause" not in kernel_facts(worker.pid):  # nothing else tells that it has come so far
        select.select([], [], [], 0.005)
    assert ask_quickly({0: worker}, PLENTY_S) == {}
    assert "sys_pause" in kernel_facts(worker.pid)


def test_the_children_of_a_worker_that_stands_still_are_not_asked_in_its_place(start_worker, post):
    """They have its handler and its file, as a fork has. That the worker was stopped is what matters."""
    worker = start_worker("""
    import os
    answer()
    def load():
        tell(post, "ready")
        while True:
            signal.pause()
    if os.fork() == 0:
        load()
    os.kill(os.getpid(), signal.SIGSTOP)
    """)
    post.line()
    while process_state(worker.pid) != "T":  # nothing else tells that it has come so far
        select.select([], [], [], 0.005)
    assert ask_quickly({0: worker}, PLENTY_S, spares_pauses=False) == {}
    assert "stopped by a signal" in collect({0: worker})[0]


def test_a_process_that_has_ended_is_not_waited_for(start_worker, post):
    worker = start_worker('answer()\ntell(post, "ready")\n')
    post.line()
    with os.fdopen(os.pidfd_open(worker.pid)) as ended:
        select.select([ended], [], [])
    assert ask_quickly({0: worker}, PLENTY_S) == {}
