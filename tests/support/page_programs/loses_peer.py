"""A training program that fails in one worker, by which the other loses its peer."""

import atexit
import os
import signal
import time

ATTEMPT = os.path.dirname(os.path.dirname(os.environ["TORCHELASTIC_ERROR_FILE"]))
PATIENCE_S = 60

signal.signal(signal.SIGTERM, signal.SIG_IGN)  # both end by themselves, however slow the machine is


def step():
    if os.environ["RANK"] == "1":
        atexit.register(wait_for_error_of, 0)  # a slow end: its peer sees it before the launcher does
        raise ValueError("loss is nan")
    wait_for_error_of(1)
    raise ConnectionResetError(104, "Connection reset by peer")


def wait_for_error_of(rank):
    deadline = time.monotonic() + PATIENCE_S
    while not os.path.exists(os.path.join(ATTEMPT, str(rank), "error.json")) and time.monotonic() < deadline:
        time.sleep(0.001)


step()
