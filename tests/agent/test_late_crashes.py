"""Crashes after a good end are told once."""

from __future__ import annotations

from holdfast.agent.late_crashes import warn_of
from holdfast.errors.failure import Failure, ProcessFailure


class Events:
    """Keeps what is recorded."""

    def __init__(self):
        self.kept = []

    def late_crash(self, rank, crash, text):
        self.kept.append((rank, crash.pid, text))


def test_a_late_crash_is_logged_and_recorded_once(caplog):
    events, told = Events(), set()
    crash = ProcessFailure.of(Failure(pid=77, exit_code=-11))
    warn_of({3: crash}, told, events)
    warn_of({3: crash, 4: ProcessFailure.of(Failure(pid=78, exit_code=-6))}, told, events)
    assert [(rank, pid) for rank, pid, _ in events.kept] == [(3, 77), (4, 78)]
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [text for _, _, text in events.kept]
    assert lines[0].startswith("rank 3 (pid 77) crashed with SIGSEGV while its interpreter shut down")
    assert "--strict-exit" in lines[0]
