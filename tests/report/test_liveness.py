"""Whether an agent still runs, with real processes. What a report makes of it is in test_finding.py."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from holdfast.report.liveness import SLACK_S, presence_of
from holdfast.report.timeline import Presence

HERE = os.uname().nodename


def test_a_process_that_is_here_is_alive_at_this_moment():
    before = time.monotonic()
    found = presence_of(HERE, os.getpid(), time.time())
    assert found.is_alive
    assert before <= found.monotonic <= time.monotonic()


@pytest.mark.parametrize(("host", "pid"), [("another-machine", os.getpid()), (HERE, 0), (HERE, -1)])
def test_nothing_is_known_of_another_machine_or_without_a_process_id(host, pid):
    assert presence_of(host, pid, time.time()) == Presence()


def test_a_process_that_ended_is_gone_also_before_it_is_waited_for():
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # now it is a zombie
        assert presence_of(HERE, process.pid, time.time()) == Presence(is_alive=False)
        process.wait()
        assert presence_of(HERE, process.pid, time.time()) == Presence(is_alive=False)


def test_a_process_that_began_after_the_first_event_is_another_one():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        began_at = time.time()
        assert presence_of(HERE, process.pid, began_at).is_alive
        assert presence_of(HERE, process.pid, began_at - SLACK_S - 60) == Presence(is_alive=False)
