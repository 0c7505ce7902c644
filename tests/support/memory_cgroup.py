"""A memory cgroup of a test's own, with a limit that its processes run into."""

from __future__ import annotations

import os
import signal
import uuid
from contextlib import suppress

import pytest
from liveness import wait_for_end

from holdfast.processes.oom import memory_hierarchy

MIB = 1 << 20

EAT = """
import os
with open("/proc/self/oom_score_adj", "w") as file:
    file.write("1000")
eaten = [b"x" * (1 << 20) for _ in range(400)]
"""
"""A program that wants 400 MiB, and that the out-of-memory killer takes before all others."""


class MemoryCgroup:
    """Gone at the end, with all that runs in it."""

    def __init__(self, limit_bytes):
        with open("/proc/self/mountinfo") as file:
            hierarchy = memory_hierarchy(file.read())
        if hierarchy is None:
            pytest.skip("there is no memory cgroup here")
        self.directory = os.path.join(hierarchy.point, f"holdfast-test-{uuid.uuid4().hex[:8]}")
        try:
            if hierarchy.is_v2:
                self._write(os.path.join(hierarchy.point, "cgroup.subtree_control"), "+memory")
            os.mkdir(self.directory)
        except OSError as error:
            pytest.skip(f"a memory cgroup cannot be made here: {error}")
        self._write(hierarchy.limit_file(self.directory), limit_bytes)
        for name, limit in (("memory.memsw.limit_in_bytes", limit_bytes), ("memory.swap.max", 0)):
            with suppress(OSError):  # not every kernel counts swap
                self._write(os.path.join(self.directory, name), limit)
        self._members = os.path.join(self.directory, "cgroup.procs")

    def command(self, words):
        """The command that runs these words in the cgroup."""
        return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', self._members, *words]

    def close(self):
        while pids := self._pids():
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            assert wait_for_end(pids) == []
        os.rmdir(self.directory)

    def _pids(self):
        with open(self._members) as file:
            return [int(line) for line in file]

    @staticmethod
    def _write(path, value):
        # Not one that is made here: a directory of the kernel's would refuse it, and any other must not have it.
        with open(os.open(path, os.O_WRONLY), "w") as file:
            file.write(str(value))
