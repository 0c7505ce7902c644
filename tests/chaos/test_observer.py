"""The pulse of a worker: what it wrote last is a proof that it was still there."""

from __future__ import annotations

import struct
import subprocess
import sys
import time
from pathlib import Path

from chaos.observer import last_beat_ns

DEADLINE_S = 60
ROOT = Path(__file__).parent.parent.parent

BEATING = """
import sys, time
from chaos.worker import start_pulse
start_pulse(sys.argv[1])
print(time.monotonic_ns(), flush=True)
time.sleep(3600)
"""


def test_a_killed_worker_leaves_the_time_at_which_it_still_lived(tmp_path):
    pulse = tmp_path / "pulse"
    process = subprocess.Popen([sys.executable, "-c", BEATING, pulse], stdout=subprocess.PIPE, cwd=ROOT)
    began_ns = int(process.stdout.readline())
    deadline = time.monotonic() + DEADLINE_S
    while struct.unpack("q", pulse.read_bytes())[0] <= began_ns and time.monotonic() < deadline:
        time.sleep(0.01)  # memory that another process writes to cannot be waited for
    process.kill()
    process.wait()
    process.stdout.close()
    assert began_ns < last_beat_ns(str(pulse)) < time.monotonic_ns()
    assert not pulse.exists()


def test_a_worker_that_never_beat_proves_nothing(tmp_path):
    assert last_beat_ns(str(tmp_path / "pulse")) == 0
    (tmp_path / "pulse").write_bytes(b"half")
    assert last_beat_ns(str(tmp_path / "pulse")) == 0
