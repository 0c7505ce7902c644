"""A control group whose processes can be frozen: a frozen process does not end, not even by SIGKILL."""

from __future__ import annotations

import os
import time

import pytest

ROOT = "/sys/fs/cgroup/freezer"
DEADLINE_S = 30.0


class FreezerGroup:
    """A group for one test. It is thawed and removed in the end."""

    def __init__(self):
        self.path = os.path.join(ROOT, f"holdfast-test-{os.getpid()}")

    def __enter__(self):
        try:
            os.mkdir(self.path)
        except OSError as error:
            if os.environ.get("CI"):
                raise
            pytest.skip(f"no freezer of cgroup v1: {error}")
        return self

    def __exit__(self, *_):
        self.thaw()
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                os.rmdir(self.path)
            except OSError:  # a process of it still ends
                assert time.monotonic() < deadline, f"{self.path} has processes"
                os.sched_yield()
            else:
                return

    def freeze(self, pid):
        """Freeze a process, and return when it is frozen."""
        self._write("cgroup.procs", str(pid))
        self._write("freezer.state", "FROZEN")
        deadline = time.monotonic() + DEADLINE_S
        while self._state() != "FROZEN":
            assert time.monotonic() < deadline, f"{pid} does not freeze"
            os.sched_yield()

    def thaw(self):
        self._write("freezer.state", "THAWED")

    def _state(self):
        with open(os.path.join(self.path, "freezer.state")) as file:
            return file.read().strip()

    def _write(self, name, text):
        with open(os.path.join(self.path, name), "w") as file:
            file.write(text)
