"""The limits that everything is measured against."""

from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import json, os
from benchmarks import limits

descriptors = len(os.listdir("/proc/self/fd"))
print(json.dumps({
    "interpreter_ms": limits.bare_interpreter_ms(),
    "interpreters_s": limits.interpreters_s(2, "import json"),
    "fork_ms": limits.fork_ms(),
    "pidfd_ms": limits.pidfd_wake_up_ms(),
    "round_trip_ms": limits.round_trip_ms(),
    "notice_s": limits.notice_s(),
    "echoes": limits.echo_rate(2, 0.05),
    "meeting_s": limits.connections_meet_s(50),
}))
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print("no child is left")
print(len(os.listdir("/proc/self/fd")) - descriptors)
"""


def test_limits_are_measured_and_leave_nothing_behind(root):
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=root, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr
    found, children, descriptors = ran.stdout.splitlines()
    assert all(value > 0 for value in json.loads(found).values()), found
    assert (children, descriptors) == ("no child is left", "0")
