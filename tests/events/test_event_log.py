from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading

import pytest

from holdfast.errors import InputError
from holdfast.events import Event, EventLog, EventSource, NodeState, RdzvEvent, set_event_handler
from holdfast.events.event_log import HELD_MAX_EVENTS
from holdfast.processes import SignalException

DEADLINE_S = 120


def event(number=0, **metadata):
    return Event(f"event {number}", EventSource.AGENT, metadata=metadata)


def names(path):
    return [json.loads(line)["name"] for line in path.read_text().splitlines()]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "events.jsonl"


@pytest.fixture
def log(path):
    log = EventLog(str(path))
    yield log
    log.close()


class TestFile:
    def test_has_a_line_of_json_for_each_event_as_it_comes(self, log, path):
        first, second = event(0, rank=1), event(1)
        log.write(first)
        assert Event.deserialize(path.read_text()) == first
        log.write(second)
        assert [Event.deserialize(line) for line in path.read_text().splitlines()] == [first, second]
        assert path.read_text().endswith("\n")

    def test_is_made_with_the_first_event(self, log, path):
        assert not path.exists()
        log.write(event())
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

    def test_may_be_another_one_that_begins_with_what_is_given(self, log, path, tmp_path):
        log.write(event(0))
        log.hold()
        log.write(event(1))
        other = tmp_path / "other.jsonl"
        log.move(str(other), [event(7), event(8)])
        assert not other.exists(), "held events still wait"
        log.write(event(2))
        log.release()
        log.move(str(tmp_path / "third.jsonl"), [event(9)])
        assert names(path) == ["event 0"]
        assert names(other) == ["event 7", "event 8", "event 1", "event 2"]
        assert names(tmp_path / "third.jsonl") == ["event 9"]

    def test_is_not_made_without_one(self, log, path):
        log.hold()
        log.release()
        log.close()
        assert not path.exists()

    def test_has_the_time_of_rendezvous_events_too(self, log, path):
        joined = RdzvEvent("n", "run", "joined", "host", 12, NodeState.RUNNING)
        log.write(joined)
        assert json.loads(path.read_text()) == joined.fields() | {"timestamp": joined.timestamp}
        read = RdzvEvent.deserialize(path.read_text())
        assert (read, read.timestamp) == (joined, joined.timestamp)

    @pytest.mark.parametrize("planted", ["pipe", "link", "directory"])
    def test_is_never_something_else_that_a_worker_put_there(self, planted, log, path, tmp_path, capsys):
        """A pipe that nobody reads would hold the agent up, and a link would lead it to another file."""
        (tmp_path / "precious").write_text("precious")
        match planted:
            case "pipe":
                os.mkfifo(path)
            case "link":
                path.symlink_to(tmp_path / "precious")
            case "directory":
                path.mkdir()
        writer = threading.Thread(target=log.write, args=[event()], daemon=True)
        writer.start()
        writer.join(DEADLINE_S)
        assert not writer.is_alive()
        assert (tmp_path / "precious").read_text() == "precious"
        assert "events are missing there" in capsys.readouterr().err

    def test_is_appended_to(self, path):
        for number in range(2):
            log = EventLog(str(path))
            log.write(event(number))
            log.close()
        assert names(path) == ["event 0", "event 1"]

    def test_gets_each_line_in_one_write(self, log, path, monkeypatch):
        written = []
        write = os.write
        monkeypatch.setattr(os, "write", lambda fd, data: written.append(data) or write(fd, data))
        log.write(event(0, text="x" * 100_000))
        log.write(event(1))
        assert b"".join(written) == path.read_bytes()
        assert [data.count(b"\n") for data in written] == [1, 1]

    def test_lines_of_several_processes_do_not_mix(self, path):
        code = """
import sys
from holdfast.events import Event, EventLog, EventSource
log = EventLog(sys.argv[1])
log.write(Event("ready", EventSource.WORKER))
print("ready", flush=True)
sys.stdin.read()
for number in range(300):
    log.write(Event(sys.argv[2], EventSource.WORKER, metadata={"number": number, "text": sys.argv[2] * 3000}))
log.close()
"""
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", code, path, str(number)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            for number in range(3)
        ]
        try:
            for writer in writers:
                assert writer.stdout.readline() == b"ready\n"
            for writer in writers:
                writer.stdin.close()  # all at once from here
            assert [writer.wait(DEADLINE_S) for writer in writers] == [0, 0, 0]
        finally:
            for writer in writers:
                writer.kill()
                writer.wait()
                writer.stdin.close()
                writer.stdout.close()
        found = [json.loads(line) for line in path.read_text().splitlines()]
        for name in "012":
            numbers = [record["metadata"]["number"] for record in found if record["name"] == name]
            assert numbers == list(range(300))

    def test_takes_events_of_many_threads(self, log, path):
        def write():
            for number in range(100):
                log.write(event(number))

        threads = [threading.Thread(target=write) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S)
        assert sorted(names(path)) == sorted(f"event {number}" for number in range(100) for _ in range(4))

    def test_is_closed_and_opened_again_by_a_later_event(self, log, path):
        def descriptors():
            return [fd for fd in os.listdir("/proc/self/fd") if links(fd) == str(path)]

        def links(fd):
            try:
                return os.readlink(f"/proc/self/fd/{fd}")
            except FileNotFoundError:
                return None

        log.write(event(0))
        assert len(descriptors()) == 1
        assert not os.get_inheritable(int(descriptors()[0]))
        log.close()
        log.close()
        assert descriptors() == []
        log.write(event(1))
        assert names(path) == ["event 0", "event 1"]

    @pytest.mark.parametrize("path", [None, ""])
    def test_is_optional(self, path):
        log = EventLog(path)
        log.write(event())
        log.close()


class TestHandler:
    def test_takes_the_same_events(self, path):
        taken = []
        set_event_handler("mine", taken.append)
        log = EventLog(str(path), "mine")
        happened = event()
        log.write(happened)
        log.close()
        assert taken == [happened]
        assert names(path) == ["event 0"]

    def test_of_an_unknown_name_is_an_error_at_once(self, path):
        with pytest.raises(InputError, match="'nonsense': unknown name"):
            EventLog(str(path), "nonsense")

    def test_that_fails_leaves_the_file_alone(self, path, capsys):
        def fail(event):
            raise RuntimeError("handler")

        set_event_handler("mine", fail)
        log = EventLog(str(path), "mine")
        log.write(event(0))
        log.write(event(1))
        log.close()
        assert names(path) == ["event 0", "event 1"]
        assert capsys.readouterr().err.count("RuntimeError: handler") == 1

    def test_may_itself_write_an_event(self, path):
        def follow(happened):
            if happened.name == "event 0":
                log.write(event(1))

        set_event_handler("mine", follow)
        log = EventLog(str(path), "mine")
        log.write(event(0))
        log.close()
        assert names(path) == ["event 0", "event 1"]


class TestHold:
    def test_keeps_events_until_release(self, log, path):
        log.hold()
        log.write(event(0))
        log.write(event(1))
        assert not path.exists()
        log.release()
        assert names(path) == ["event 0", "event 1"]
        log.write(event(2))
        assert names(path) == ["event 0", "event 1", "event 2"]

    def test_keeps_their_times(self, log, path):
        log.hold()
        happened = event()
        log.write(happened)
        later = event()
        log.release()
        assert json.loads(path.read_text())["timestamp"] == happened.timestamp < later.timestamp

    def test_ends_with_close(self, log, path):
        log.hold()
        log.write(event())
        log.close()
        assert names(path) == ["event 0"]

    def test_holds_for_the_handler_too(self, path):
        taken = []
        set_event_handler("mine", taken.append)
        log = EventLog(str(path), "mine")
        log.hold()
        log.write(event())
        assert taken == []
        log.close()
        assert len(taken) == 1

    def test_keeps_no_more_than_so_many(self, log, path):
        log.hold()
        for number in range(HELD_MAX_EVENTS - 1):
            log.write(event(number))
        assert not path.exists()
        log.write(event(HELD_MAX_EVENTS - 1))
        assert names(path) == [f"event {number}" for number in range(HELD_MAX_EVENTS)]

    @pytest.mark.parametrize("destination", ["null", "console"])
    def test_imports_nothing_heavy(self, run_python, path, destination):
        code = f"""
            import sys
            from holdfast.events import Event, EventLog, EventSource
            log = EventLog({str(path)!r}, {destination!r})
            log.hold()
            log.write(Event("name", EventSource.AGENT))
            print("json" in sys.modules, "logging" in sys.modules)
            log.release()
            print("json" in sys.modules, "logging" in sys.modules)
        """
        assert run_python(code).stdout.split() == ["False", "False", "True", "False"]

    def test_a_forked_process_does_not_write_what_its_parent_held(self, run_python, path):
        code = f"""
            import os
            from holdfast.events import Event, EventLog, EventSource
            log = EventLog({str(path)!r}, "console")
            log.hold()
            log.write(Event("before", EventSource.AGENT))
            pid = os.fork()
            if pid == 0:
                log.write(Event("in the child", EventSource.AGENT))
                log.release()
                log.close()
                os._exit(0)
            _, status = os.waitpid(pid, 0)
            log.close()
            print(status, log._waiting)
        """
        ended = run_python(code)
        assert ended.stdout == "0 deque([])\n", ended.stderr
        assert names(path) == ["before"]
        assert len(ended.stderr.splitlines()) == 1

    def test_a_signal_to_stop_loses_and_repeats_nothing_that_waits(self, path):
        def interrupt(happened):
            if happened.name == "event 0":
                raise SignalException("stop", signal.SIGTERM)

        set_event_handler("mine", interrupt)
        log = EventLog(str(path), "mine")
        log.hold()
        for number in range(3):
            log.write(event(number))
        with pytest.raises(SignalException):
            log.release()
        log.close()
        assert names(path) == ["event 0", "event 1", "event 2"]


class TestTrouble:
    @pytest.mark.parametrize(
        ("path", "reason"),
        [
            ("/dev/full", "is not a file"),
            ("/nonexistent/events.jsonl", "No such file or directory"),
            ("/", "is not a file"),
        ],
    )
    def test_of_the_file_is_said_once_and_harms_nobody(self, capsys, path, reason):
        log = EventLog(path)
        for number in range(3):
            log.write(event(number))
        log.close()
        [told] = capsys.readouterr().err.splitlines()
        assert told.startswith(f"holdfast: the event log {path!r} failed")
        assert reason in told

    def test_of_the_file_leaves_the_handler_alone(self):
        taken = []
        set_event_handler("mine", taken.append)
        log = EventLog("/dev/full", "mine")
        log.write(event())
        log.close()
        assert len(taken) == 1

    def test_a_line_that_was_cut_short_does_not_spoil_the_next(self, run_python, path):
        """A limit on the file's size does what a full disk does: part of a line is written, the rest is refused."""
        code = f"""
            import resource
            from holdfast.events import Event, EventLog, EventSource
            log = EventLog({str(path)!r})
            log.write(Event("before", EventSource.AGENT))
            resource.setrlimit(resource.RLIMIT_FSIZE, (200, resource.RLIM_INFINITY))
            log.write(Event("cut", EventSource.AGENT, metadata={{"text": "x" * 500}}))
            log.write(Event("refused", EventSource.AGENT))
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            log.write(Event("after", EventSource.AGENT))
            log.write(Event("at last", EventSource.AGENT))
        """
        ended = run_python(code)
        assert ended.returncode == 0
        assert ended.stderr.count("File too large") == 1
        before, cut, *after = path.read_text().splitlines()
        assert json.loads(before)["name"] == "before"
        assert cut.startswith('{"name": "cut"')
        assert [json.loads(line)["name"] for line in after] == ["after", "at last"]

    def test_an_event_that_cannot_be_written_does_not_spoil_the_others(self, log, path, capsys):
        class Nasty:
            def __str__(self):
                raise RuntimeError("no text")

        endless = {}
        endless["itself"] = endless
        log.write(Event("nasty", EventSource.AGENT, metadata={"x": Nasty()}))
        log.write(Event("endless", EventSource.AGENT, metadata=endless))
        log.write(event())
        assert names(path) == ["event 0"]
        assert len(capsys.readouterr().err.splitlines()) == 1
