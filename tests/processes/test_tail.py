from __future__ import annotations

import contextlib
import errno
import io
import itertools
import os
import re
import resource
import select
import signal
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest

from holdfast.processes import file_changes, tail
from holdfast.processes.display import Display
from holdfast.processes.tail import LINGER_S, TailLog

IMPORTS_TORCH = True

DEADLINE_S = 60


class Screen(io.StringIO):
    """A stream of text only, that tells when something was shown."""

    def __init__(self):
        super().__init__()
        self._changed = threading.Condition()

    def write(self, text):
        with self._changed:
            super().write(text)
            self._changed.notify_all()

    def wait_for(self, text):
        with self._changed:
            assert self._changed.wait_for(lambda: text in self.getvalue(), DEADLINE_S), self.getvalue()[-1000:]


@pytest.fixture
def screen():
    return Screen()


@pytest.fixture
def follow():
    """Starts a tail that is stopped at the end of the test, whatever happens."""
    started = []

    def start(*args, **options):
        started.append(TailLog(*args, **options))
        return started[-1].start()

    yield start
    for one in started:
        one.stop()


@pytest.fixture(autouse=True)
def nothing_said_yet():
    tail._said.clear()


@pytest.fixture(autouse=True)
def nothing_left():
    threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))
    yield
    assert threading.active_count() == threads
    assert len(os.listdir("/proc/self/fd")) == descriptors


@pytest.fixture
def log(tmp_path):
    """A log file that exists, and how a worker would append to it."""
    return LogFile(tmp_path / "0.log")


class LogFile:
    def __init__(self, path):
        self.path = str(path)
        path.touch()

    def append(self, data):
        with open(self.path, "ab") as file:
            file.write(data if isinstance(data, bytes) else data.encode())


def thread_status(one, field):
    with open(f"/proc/self/task/{one._thread.native_id}/status", encoding="utf-8") as status:
        return next(line.split()[1] for line in status if line.startswith(f"{field}:"))


def until(condition):
    """For what has no event to wait for."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        os.sched_yield()


def test_lines_are_shown_as_they_are_written(follow, screen, log):
    follow("role", {0: log.path}, screen)
    for number in range(100):
        log.append(f"line {number}\n")
        screen.wait_for(f"[role0]:line {number}\n")
    assert screen.getvalue() == "".join(f"[role0]:line {number}\n" for number in range(100))


def test_what_was_there_before_is_shown_too(screen, log):
    log.append("early\n")
    TailLog("role", {0: log.path}, screen).start().stop()
    assert screen.getvalue() == "[role0]:early\n"


def test_prefixes_by_rank_and_the_default_for_the_others(screen, tmp_path):
    files = {rank: LogFile(tmp_path / f"{rank}.log") for rank in (0, 3, 12)}
    for rank, file in files.items():
        file.append(f"from {rank}\nagain\n")
    paths = {rank: file.path for rank, file in files.items()}
    TailLog("role", paths, screen, {0: "zero> ", 12: ""}, 0.001).start().stop()
    assert sorted(screen.getvalue().splitlines()) == sorted(
        ["zero> from 0", "zero> again", "[role3]:from 3", "[role3]:again", "from 12", "again"]
    )


def test_an_unfinished_line_waits_for_its_end_and_is_shown_at_the_end(follow, screen, tmp_path):
    slow, fast = LogFile(tmp_path / "slow"), LogFile(tmp_path / "fast")
    one = follow("r", {0: slow.path, 1: fast.path}, screen)
    slow.append("half ")
    fast.append("between\n")
    screen.wait_for("[r1]:between\n")
    slow.append(b"a line\nno end" + "€".encode()[:1])
    screen.wait_for("[r0]:half a line\n")
    slow.append("€".encode()[1:])
    one.stop()
    assert screen.getvalue() == "[r1]:between\n[r0]:half a line\n[r0]:no end€\n"


def test_a_filter_chooses_the_lines(follow, screen, log):
    follow("r", {0: log.path}, screen, log_line_filter=lambda line: "loss" in line)
    log.append("loss=1\nnoise\nloss=2\n")
    screen.wait_for("loss=2\n")
    assert screen.getvalue() == "[r0]:loss=1\n[r0]:loss=2\n"


def test_bytes_stay_as_they_are_on_a_stream_with_a_binary_layer(tmp_path, log):
    log.append(b"\xff\xfe raw \x00\n\xe2\x82 no end")
    with open(tmp_path / "shown", "w", encoding="ascii") as shown:
        shown.write("text before; ")
        TailLog("r", {0: log.path}, shown).start().stop()
        shown.write("text after")
    assert (tmp_path / "shown").read_bytes() == b"text before; [r0]:\xff\xfe raw \x00\n[r0]:\xe2\x82 no end\ntext after"


def test_on_a_stream_of_text_bad_bytes_are_replaced(screen, log):
    log.append(b"\xff and \xe2\x82\xac\n")
    TailLog("r", {0: log.path}, screen).start().stop()
    assert screen.getvalue() == "[r0]:\ufffd and €\n"


def test_a_stream_that_stands_in_for_another_is_written_to_itself(tmp_path, log):
    """As people put into sys.stdout: everything but `write` is the other stream's."""
    log.append("line\n")
    seen = []

    class StandIn:
        def __init__(self, stream):
            self.stream = stream

        def write(self, text):
            seen.append(text)

        def __getattr__(self, name):
            return getattr(self.stream, name)

    with open(tmp_path / "real", "w", encoding="utf-8") as real:
        TailLog("r", {0: log.path}, StandIn(real)).start().stop()
        real.write = seen.append
        TailLog("r", {0: log.path}, real).start().stop()
        del real.write
    assert seen == ["[r0]:line\n"] * 2
    assert (tmp_path / "real").read_bytes() == b""


def test_a_stream_that_cannot_flush(log, capsys):
    log.append("line\nno end")
    seen = []

    class Minimal:
        def write(self, text):
            seen.append(text)

    TailLog("r", {0: log.path}, Minimal()).start().stop()
    assert seen == ["[r0]:line\n", "[r0]:no end\n"]
    assert capsys.readouterr().err == ""


WRITER = """
import os, sys
path, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
data = "".join(f"{name} {number} " + "é€😀" * (number % 50) + "\\n" for number in range(count)).encode()
step = 1 + int(name[-1]) * 1000
for start in range(0, len(data), step):  # cuts lines and characters anywhere
    os.write(fd, data[start:start + step])
"""


def test_several_tails_and_writers_never_cut_into_each_others_lines(tmp_path):
    """Four processes, two tails, two streams to one terminal; nothing missing, cut or out of order."""
    counts = [300, 5000, 5000, 5000]
    paths = [str(tmp_path / f"{rank}.log") for rank in range(4)]
    reader, writer = os.pipe()
    received = []
    with open(reader, "rb") as terminal:
        thread = threading.Thread(target=lambda: received.append(terminal.read()))
        thread.start()
        with open(os.dup(writer), "w", encoding="utf-8") as out, open(writer, "w", encoding="utf-8") as err:
            tails = [
                TailLog("a", dict(enumerate(paths[:2])), out).start(),
                TailLog("b", dict(enumerate(paths[2:])), err).start(),
            ]
            writers = [
                subprocess.Popen([sys.executable, "-c", WRITER, path, f"w{rank}", str(counts[rank])])
                for rank, path in enumerate(paths)
            ]
            codes = [writer.wait() for writer in writers]
            for one in tails:
                one.stop()
        thread.join()
    assert codes == [0] * 4
    seen = {f"w{rank}": [] for rank in range(4)}
    for line in received[0].decode().splitlines():
        match = re.fullmatch(r"\[[ab][01]\]:(w\d) (\d+) ((?:é€😀)*)", line)
        assert match, line
        assert len(match[3]) == 3 * (int(match[2]) % 50)
        seen[match[1]].append(int(match[2]))
    assert seen == {f"w{rank}": list(range(count)) for rank, count in enumerate(counts)}


def test_nothing_is_lost_when_stop_follows_upon_the_last_write(tmp_path):
    for number in range(20):
        path = str(tmp_path / f"{number}.log")
        script = "import sys; sys.stdout.write('x' * 999 + '\\n'); sys.stdout.write(('y' * 99 + '\\n') * 20000 + 'end')"
        with open(tmp_path / "shown", "w", encoding="utf-8") as shown, open(path, "wb") as out:
            one = TailLog("r", {0: path}, shown, {0: ""}).start()
            try:
                subprocess.run([sys.executable, "-c", script], stdout=out, check=True, timeout=DEADLINE_S)
            finally:
                one.stop()
            assert (tmp_path / "shown").stat().st_size == 1000 + 20000 * 100 + len("end\n")


def test_a_file_and_its_directories_may_come_later(follow, screen, tmp_path):
    path = tmp_path / "a" / "b" / "late.log"
    other = LogFile(tmp_path / "other")
    follow("r", {0: str(path), 1: other.path}, screen)
    other.append("waiting\n")
    screen.wait_for("waiting\n")
    path.parent.mkdir(parents=True)
    path.write_text("late\n")
    screen.wait_for("[r0]:late\n")


def test_a_file_that_appears_just_before_the_stop_is_shown(follow, screen, tmp_path):
    one = follow("r", {0: str(tmp_path / "late.log")}, screen)
    (tmp_path / "late.log").write_text("just in time")
    one.stop()
    assert screen.getvalue() == "[r0]:just in time\n"


def test_a_file_that_never_appears(screen, tmp_path):
    TailLog("r", {0: str(tmp_path / "never")}, screen).start().stop()
    assert screen.getvalue() == ""
    assert os.listdir(tmp_path) == []


def test_a_truncated_file_is_read_from_its_start(follow, screen, log):
    follow("r", {0: log.path}, screen)
    log.append("first, and longer than what follows\nunfinished")
    screen.wait_for("[r0]:first, and longer than what follows\n")
    with open(log.path, "wb") as file:
        file.write(b"second\n")
    screen.wait_for("[r0]:second\n")


def test_a_replaced_file_is_read_to_its_end_and_then_the_new_one(follow, screen, log, tmp_path):
    follow("r", {0: log.path}, screen)
    with open(log.path, "ab", buffering=0) as writer:
        writer.write(b"old 1\n")
        screen.wait_for("[r0]:old 1\n")
        os.rename(log.path, tmp_path / "rotated")
        writer.write(b"old 2\n")
        screen.wait_for("[r0]:old 2\n")
        writer.write(b"old, no end")
    (tmp_path / "fresh").write_text("new 1\n")
    os.rename(tmp_path / "fresh", log.path)
    screen.wait_for("[r0]:new 1\n")
    os.unlink(log.path)
    log.append("newer\n")
    screen.wait_for("[r0]:newer\n")
    assert screen.getvalue() == "".join(
        f"[r0]:{line}\n" for line in ("old 1", "old 2", "old, no end", "new 1", "newer")
    )


def test_what_is_written_just_before_the_replacement_is_not_lost(screen, log, tmp_path, monkeypatch):
    log.append("old\n")
    (tmp_path / "fresh").write_text("new\n")
    looks = itertools.count()

    def look(path):
        if next(looks) == 1:  # the file has been opened and read; its name is looked up now
            log.append("last of the old")
            os.replace(tmp_path / "fresh", log.path)
        return os.stat(path)

    monkeypatch.setattr(tail, "_status", look)
    TailLog("r", {0: log.path}, screen).start().stop()
    assert screen.getvalue() == "[r0]:old\n[r0]:last of the old\n[r0]:new\n"


def test_what_cannot_be_read_is_said_once_and_the_others_are_shown(follow, screen, log, tmp_path, capsys):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    bad = {1: tmp_path, 2: tmp_path / "fifo", 3: tmp_path / "loop", 4: log.path + "/below"}
    one = follow("r", {0: log.path, **{rank: str(path) for rank, path in bad.items()}}, screen)
    for text in ("one\n", "two\n"):
        log.append(text)
        screen.wait_for(text)
    one.stop()
    assert screen.getvalue() == "[r0]:one\n[r0]:two\n"
    said = capsys.readouterr().err.splitlines()
    assert len(said) == len(bad)
    for rank, path in bad.items():
        assert sum(f"rank {rank}:" in line and str(path) in line for line in said) == 1


@pytest.mark.root
def test_a_file_that_may_not_be_read(tmp_path):
    """As a user without rights, since root may read anything."""
    script = """
import os, sys
from holdfast.processes.tail import TailLog
os.setgid(65534); os.setuid(65534)
TailLog("r", {0: sys.argv[1]}, sys.stdout).start().stop()
"""
    tmp_path.chmod(0o711)
    secret = tmp_path / "secret"
    secret.write_text("secret\n")
    secret.chmod(0o600)
    command = [sys.executable, "-c", script, str(secret)]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=DEADLINE_S)
    assert result.stdout == ""
    assert "rank 0" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_broken_pipe_ends_the_showing_only(log, capsys):
    reader, writer = os.pipe()
    stream = open(writer, "w", encoding="utf-8")  # noqa: SIM115 - closed below
    one = TailLog("r", {0: log.path}, stream).start()
    log.append("seen\n")
    assert os.read(reader, 100) == b"[r0]:seen\n"
    os.close(reader)
    log.append("unseen\n")
    one._thread.join(DEADLINE_S)
    assert not one._thread.is_alive()
    log.append("still written\n")
    one.stop()
    stream.close()  # nothing that cannot be written is left in its buffer
    with open(log.path, encoding="utf-8") as file:
        assert file.read() == "seen\nunseen\nstill written\n"
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert "r: cannot show any more lines: BrokenPipeError" in said[0]


@pytest.mark.parametrize("cause", ["closed stream", "stream", "filter"])
def test_a_stream_or_a_filter_that_fails_ends_the_showing_only(log, capsys, cause):
    class Failing(io.StringIO):
        def write(self, text):
            raise RuntimeError(f"cannot take {text!r}")

    def fail(line):
        raise RuntimeError(f"cannot judge {line!r}")

    stream = Failing() if cause == "stream" else io.StringIO()
    if cause == "closed stream":
        stream.close()
    log.append("line\n")
    one = TailLog("r", {0: log.path}, stream, log_line_filter=fail if cause == "filter" else None).start()
    one._thread.join(DEADLINE_S)
    one.stop()
    [said] = capsys.readouterr().err.splitlines()
    assert "cannot show any more lines" in said


@pytest.mark.parametrize("buffering", [0, -1])
def test_a_stream_that_does_not_block_gets_everything(log, buffering):
    content = b"".join(b"%d\n" % number for number in range(200_000))
    log.append(content)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    received = []

    def read():
        while piece := os.read(reader, 50_000):
            received.append(piece)

    thread = threading.Thread(target=read)
    with io.TextIOWrapper(open(writer, "wb", buffering=buffering), write_through=True) as stream:
        one = TailLog("r", {0: log.path}, stream, {0: ""}).start()
        until(lambda: not select.select([], [writer], [], 0)[1])
        thread.start()
        one.stop()
    thread.join()
    os.close(reader)
    assert b"".join(received) == content


def test_idle_it_does_not_wake_up(follow, screen, tmp_path):
    files = {rank: LogFile(tmp_path / f"{rank}.log") for rank in range(4)}
    paths = {rank: file.path for rank, file in files.items()}
    one = follow("r", {**paths, 4: str(tmp_path / "missing" / "file")}, screen)
    for rank, file in files.items():
        file.append("line\n")
        screen.wait_for(f"[r{rank}]:line\n")
    counts = [-1]
    while len(set(counts[-3:])) != 1 or len(counts) < 3:  # the last events may still be on their way
        counts.append(int(thread_status(one, "voluntary_ctxt_switches")))
        time.sleep(0.1)
        assert len(counts) < 10 * DEADLINE_S
    time.sleep(1)
    assert int(thread_status(one, "voluntary_ctxt_switches")) - counts[-1] <= 1


def test_writes_in_quick_succession_wake_it_up_seldom(follow, screen, log):
    one = follow("r", {0: log.path}, screen)
    log.append("first\n")
    screen.wait_for("first\n")
    before, start = int(thread_status(one, "voluntary_ctxt_switches")), time.monotonic()
    script = (
        "import os, time\n"
        "for _ in range(3000): os.write(1, b'x\\n'); time.sleep(0.0001)\n"  # time for a reader to fall asleep again
        "os.write(1, b'last\\n')"
    )
    with open(log.path, "ab") as out:
        subprocess.run([sys.executable, "-c", script], stdout=out, check=True, timeout=DEADLINE_S)
    screen.wait_for("last\n")
    took = time.monotonic() - start
    # For each round a pause, an event and its echo; waits for the interpreter's lock come on top.
    assert int(thread_status(one, "voluntary_ctxt_switches")) - before < 50 + 6 * took / LINGER_S
    assert screen.getvalue().count("x\n") == 3000


def test_signals_are_left_to_the_main_thread(follow, screen, log):
    one = follow("r", {0: log.path}, screen)
    log.append("line\n")
    screen.wait_for("line\n")
    blocked = int(thread_status(one, "SigBlk"), 16)
    assert blocked & 1 << (signal.SIGTERM - 1)
    assert blocked & 1 << (signal.SIGCHLD - 1)
    assert not blocked & 1 << (signal.SIGSEGV - 1)


def test_a_writer_that_never_stops_does_not_hold_up_the_stop(tmp_path, log):
    with open(log.path, "ab") as out, open(os.devnull, "w", encoding="utf-8") as shown:
        writer = subprocess.Popen(["yes"], stdout=out)
        try:
            one = TailLog("r", {0: log.path}, shown).start()
            until(lambda: os.path.getsize(log.path) > 10_000_000)
            one.stop()
            assert writer.poll() is None
        finally:
            writer.kill()
            writer.wait()
            os.truncate(log.path, 0)


def test_a_writer_that_never_stops_does_not_hide_the_others(follow, tmp_path, log):
    quiet = LogFile(tmp_path / "quiet")
    shown = threading.Event()

    class Watched(io.TextIOBase):
        def write(self, text):
            if "quiet" in text:
                shown.set()

    with open(log.path, "ab") as out:
        writer = subprocess.Popen(["yes"], stdout=out)
        try:
            follow("r", {0: log.path, 1: quiet.path}, Watched())
            until(lambda: os.path.getsize(log.path) > 1_000_000)
            quiet.append("quiet\n")
            assert shown.wait(DEADLINE_S)
        finally:
            writer.kill()
            writer.wait()
            os.truncate(log.path, 0)


def test_without_inotify_everything_is_shown_and_it_is_said_once(follow, screen, tmp_path, capsys, monkeypatch):
    def refused():
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(file_changes, "Inotify", refused)
    log = LogFile(tmp_path / "log")
    late = tmp_path / "sub" / "late"
    tails = [follow(name, {0: log.path, 1: str(late)}, screen) for name in "ab"]
    log.append("one\n")
    late.parent.mkdir()
    late.write_text("late\nno end")
    for text in ("[a0]:one\n", "[b0]:one\n", "[a1]:late\n", "[b1]:late\n"):
        screen.wait_for(text)
    for one in tails:
        one.stop()
    assert screen.getvalue().count("no end\n") == 2
    [said] = capsys.readouterr().err.splitlines()
    assert "the kernel cannot report file changes (Too many open files)" in said


def test_descriptors_above_the_limit_of_select(follow, screen, log):
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(2048, limits[1]), limits[1]))
    opened = [os.open(log.path, os.O_RDONLY)]
    try:
        while opened[-1] < 1100:
            opened.append(os.dup(opened[0]))
        one = follow("r", {0: log.path}, screen)
        for text in ("one\n", "two\n"):
            log.append(text)
            screen.wait_for(text)
        one.stop()
    finally:
        for fd in opened:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_stop_needs_no_start_and_may_be_repeated(screen, log):
    one = TailLog("r", {0: log.path}, screen)
    assert not one.stopped()
    one.stop()
    assert one.stopped()
    two = TailLog("r", {0: log.path}, screen).start()
    assert not two.stopped()
    two.stop()
    two.stop()
    assert two.stopped()


def test_it_is_started_once(follow, screen, log):
    one = follow("r", {0: log.path}, screen)
    with pytest.raises(RuntimeError, match="'r' was already started"):
        one.start()


@pytest.mark.parametrize("files", [{}, {0: os.devnull, 1: os.devnull}])
def test_nothing_to_show_needs_no_thread(screen, files):
    before = threading.active_count()
    one = TailLog("r", files, screen).start()
    assert threading.active_count() == before
    one.stop()
    assert one.stopped()


def test_nowhere_to_show(log):
    log.append("line\n")
    TailLog("r", {0: log.path}, None).start().stop()


def test_many_starts_and_stops_leave_nothing(screen, log, tmp_path):
    for _ in range(200):
        TailLog("r", {0: log.path, 1: str(tmp_path / "missing")}, screen).start().stop()


def test_a_child_that_is_forked_while_something_is_shown_can_show_things_itself(tmp_path):
    script = """
import os, sys
from holdfast.processes import TailLog
from holdfast.processes.display import Display
open(sys.argv[1], "w").write("line\\n")
Display.consoles.take(lambda: False)
pid = os.fork()
if pid == 0:
    TailLog("r", {0: sys.argv[1]}, sys.stdout).start().stop()
    os._exit(0)
os.waitpid(pid, 0)
"""
    command = [sys.executable, "-c", script, str(tmp_path / "log")]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=DEADLINE_S)
    assert result.stdout == "[r0]:line\n"


@pytest.fixture
def stuck():
    """A console that takes nothing: its stream, and the end to read, with what filled it."""
    unread, end = os.pipe()
    os.set_blocking(end, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(end, b"." * select.PIPE_BUF)
    os.set_blocking(end, True)
    with open(end, "w") as stream, open(unread) as reader:
        yield stream, reader


def test_a_stuck_stream_is_not_waited_for_and_what_comes_later_is_shown_in_whole_lines(tmp_path, stuck, capsys):
    stream, reader = stuck
    tails = []
    for number in range(tail.LAGGARDS_MAX + 3):
        path = tmp_path / str(number)
        path.write_text(f"{number} {'x' * 70}\n" * 1000)
        tails.append(TailLog("r", {number: str(path)}, stream).start())
        until(lambda: Display.consoles.is_taken)
        tails[-1].stop(patience_s=0.01)
    until(lambda: len([one for one in tails if not one.has_ended()]) <= tail.LAGGARDS_MAX + 1)
    ends = threading.Thread(target=tail.await_laggards, args=(DEADLINE_S,))
    ends.start()
    lines = []
    while ends.is_alive() or select.select([reader], [], [], 0)[0]:
        if select.select([reader], [], [], 0.01)[0]:
            lines.append(os.read(reader.fileno(), 65536).decode())
    shown = "".join(lines).lstrip(".").splitlines()
    counts = Counter(shown)
    kept = range(3, tail.LAGGARDS_MAX + 3)
    assert {line: counts[line] for line in (f"[r{n}]:{n} {'x' * 70}" for n in kept)} == {
        f"[r{n}]:{n} {'x' * 70}": 1000 for n in kept
    }
    assert all(re.fullmatch(r"\[r(\d+)]:\1 x{70}", line) for line in counts)
    assert all(one.has_ended() for one in tails)
    assert capsys.readouterr().err.count("the console is too slow") == 1


def test_a_stuck_console_does_not_hold_up_a_file(tmp_path, stuck, log):
    stream, reader = stuck
    log.append("line\n")
    first = TailLog("r", {0: log.path}, stream).start()
    until(lambda: Display.consoles.is_taken)
    with open(tmp_path / "copy", "w") as copy:
        TailLog("r", {0: log.path}, copy).start().stop()
    assert (tmp_path / "copy").read_text() == "[r0]:line\n"
    assert set(os.read(reader.fileno(), 1 << 20)) == set(b".")
    first.stop()


@pytest.mark.torch
def test_the_same_call_shows_what_torch_shows(tmp_path):
    """But for what ends without a line feed, which torch leaves open for the next writer."""
    import inspect

    from torch.distributed.elastic.multiprocessing.tail_log import TailLog as TorchTailLog

    assert list(inspect.signature(TailLog).parameters) == list(inspect.signature(TorchTailLog).parameters)
    for number, content in enumerate([b"a\nb\n", b"a\r\nb\n", b"\r10%\r20%\r\n", b"\n\n", b"\xff\n", b"a\x0bb\x0cc\n"]):
        path = tmp_path / str(number)
        path.write_bytes(content)
        shown = []
        for kind, more in itertools.product(
            (TailLog, TorchTailLog), ({}, {"log_line_filter": lambda line: "a" in line})
        ):
            stream = io.StringIO()
            one = kind(
                name="r", log_files={0: str(path)}, dst=stream, log_line_prefixes={1: "-"}, interval_sec=0.01, **more
            )
            one.start().stop()
            shown.append(stream.getvalue())
        assert shown[:2] == shown[2:]
