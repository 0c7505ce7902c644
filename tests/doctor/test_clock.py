from __future__ import annotations

import os
import subprocess
import sys
import time
from email.utils import formatdate
from pathlib import Path

import pytest

from holdfast.doctor.clock import Difference, Facts, check, judge, kernel_synchronised
from holdfast.doctor.context import Meeting, TlsFiles
from holdfast.doctor.finding import State
from holdfast.doctor.gateway import ask, clock_offset

ETCD = Meeting("etcd", (("etcd0", 2379),))
TLS = ETCD._replace(tls=TlsFiles("/srv/ca.pem", None, None))
NOW = 1_800_000_000.0

SERVE = """
import http.server
server = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
print(server.server_port, flush=True)
server.serve_forever()
"""


@pytest.fixture
def late_server():
    """The port of a server whose clock is an hour ahead."""
    shift = Path(__file__).parent.parent / "support" / "shifted_clock"
    with subprocess.Popen(
        [sys.executable, "-c", SERVE],
        env={**os.environ, "PYTHONPATH": str(shift), "TEST_CLOCK_OFFSET_S": "3600"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


def test_a_clock_that_is_ahead_is_seen(late_server, make_context):
    answer = ask("127.0.0.1", late_server, "/version", None)
    assert abs(answer.ahead_s - 3600) <= answer.doubt_s + 1
    meeting = Meeting("etcd", (("127.0.0.1", late_server),))
    found = {finding.check: finding for finding in check(make_context(meeting=meeting))}["difference"]
    assert found.state is State.NOTE
    assert f"127.0.0.1:{late_server} is 3600 s ahead of this machine's" in found.what or "360" in found.what


def test_a_date_has_whole_seconds_and_comes_late():
    ahead_s, doubt_s = clock_offset(formatdate(NOW + 10, usegmt=True), NOW, 0.2)
    assert ahead_s == pytest.approx(10.4)
    assert doubt_s == pytest.approx(0.6)
    assert clock_offset(None, NOW, 0.2)[0] is None
    assert clock_offset("yesterday", NOW, 0.2)[0] is None


@pytest.mark.parametrize(
    ("facts", "meeting", "expected"),
    [
        (Facts(NOW, True), None, [State.OK]),
        (Facts(NOW, False), None, [State.NOTE]),
        (Facts(NOW, None), None, [State.SKIPPED]),
        (Facts(1000.0, True), None, [State.WARNING]),
        (Facts(NOW, True), Meeting("c10d", (("node0", 29400),)), [State.OK, State.SKIPPED]),
        (Facts(NOW, True, (Difference("etcd0", None),)), ETCD, [State.OK, State.SKIPPED]),
        (Facts(NOW, True, (Difference("etcd0", 0.4, 0.5),)), ETCD, [State.OK, State.OK]),
        (Facts(NOW, True, (Difference("etcd0", -2.4, 0.5),)), ETCD, [State.OK, State.OK]),
        (Facts(NOW, True, (Difference("etcd0", -5.0, 0.5),)), ETCD, [State.OK, State.NOTE]),
        (Facts(NOW, True, (Difference("etcd0", -4000.0, 0.5),)), ETCD, [State.OK, State.NOTE]),
        (Facts(NOW, True, (Difference("etcd0", -4000.0, 0.5),)), TLS, [State.OK, State.WARNING]),
    ],
)
def test_what_is_said_of_clocks(facts, meeting, expected):
    assert [finding.state for finding in judge(facts, meeting)] == expected


def test_the_kernel_says_whether_its_clock_is_kept_right():
    assert kernel_synchronised() in (True, False)
    assert time.time() > NOW - 1e9
