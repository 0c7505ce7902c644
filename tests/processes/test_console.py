"""A console that may accept nothing: everything is written, counted, and waited for with patience."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import select
import threading

import pytest

from holdfast.processes.console import Console, Descriptor, GivenUpError, Patience

PIECE = select.PIPE_BUF


class Recorder:
    """A sink that records each write, and accepts as many bytes as `accepts` says; a pipe that always has room."""

    def __init__(self, fd, accepts=None):
        self.writes = []
        self._fd = fd
        self._accepts = accepts or len

    def fileno(self):
        return self._fd

    def write(self, data):
        accepted = self._accepts(data)
        self.writes.append(bytes(data[: accepted or 0]))
        return accepted


@pytest.fixture
def pipe():
    """The end to read and the end to write."""
    ends = list(os.pipe())
    yield ends
    for fd in ends:
        if fd >= 0:
            os.close(fd)


def fill(fd):
    os.set_blocking(fd, False)
    count = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            count += os.write(fd, b"." * PIECE)
    return count


# Writing


def test_pieces_are_whole_lines_that_a_pipe_accepts_atomically(pipe):
    sink = Recorder(pipe[1])
    lines = [b"%d " % n + b"x" * (n % 300) + b"\n" for n in range(1000)]
    Console().write(sink, b"".join(lines) + b"no end")
    assert b"".join(sink.writes) == b"".join(lines) + b"no end"
    assert max(map(len, sink.writes)) <= PIECE
    assert all(piece.endswith(b"\n") for piece in sink.writes[:-1])
    assert len(sink.writes) < len(lines) / 10, "lines go together"


def test_a_line_longer_than_a_piece_is_one_write(pipe):
    sink = Recorder(pipe[1])
    long = b"x" * (3 * PIECE) + b"\n"
    Console().write(sink, b"before\n" + long + b"after\n")
    assert sink.writes == [b"before\n", long, b"after\n"]


def test_without_a_limit_a_block_is_one_write(pipe):
    sink = Recorder(pipe[1])
    Console(write_max_bytes=1 << 30).write(sink, b"line\n" * 100_000)
    assert sink.writes == [b"line\n" * 100_000]


def test_nothing_is_written_for_an_empty_block(pipe):
    sink = Recorder(pipe[1])
    Console().write(sink, b"")
    assert sink.writes == []


def partly(data):
    return min(3, len(data))


def test_what_is_accepted_in_parts_is_counted_and_continued(pipe):
    console, sink = Console(), Recorder(pipe[1], partly)
    console.write(sink, b"a line\nand another\n")
    assert b"".join(sink.writes) == b"a line\nand another\n"
    assert console.accepted_bytes == len(b"a line\nand another\n")


def test_the_parts_of_a_buffered_stream_that_was_full_are_counted_once(pipe):
    calls = []

    def full(data):
        calls.append(len(data))
        if len(calls) == 1:
            raise BlockingIOError(errno.EAGAIN, "full", 4)
        return len(data)

    console = Console()
    console.write(Recorder(pipe[1], full), b"0123456789")
    assert calls == [10, 6]
    assert console.accepted_bytes == 10


def test_several_sinks_count_together(pipe):
    console = Console()
    for _ in range(2):
        console.write(Recorder(pipe[1]), b"line\n")
    assert console.accepted_bytes == 10


def test_a_full_descriptor_that_does_not_block_is_waited_for(pipe):
    """The thread sleeps until there is room, and then all of it comes, in order."""
    reader, writer = pipe
    filled = fill(writer)
    content = b"".join(b"%d\n" % n for n in range(50_000))
    console = Console()
    thread = threading.Thread(target=console.write, args=(Descriptor(writer), content))
    thread.start()
    received = b""
    while len(received) < filled + len(content):
        received += os.read(reader, 10_000)
    thread.join()
    assert received == b"." * filled + content
    assert console.accepted_bytes == len(content)


def test_a_descriptor_that_is_full_accepts_nothing(pipe):
    fill(pipe[1])
    assert Descriptor(pipe[1]).write(memoryview(b"x")) is None
    assert Descriptor(pipe[1]).fileno() == pipe[1]


def test_errors_are_the_callers_and_what_was_accepted_before_is_counted(pipe):
    console = Console(write_max_bytes=5)
    writes = []

    def fails_later(data):
        writes.append(bytes(data))
        if len(writes) == 3:
            raise OSError(errno.ENOSPC, "full disk")
        return len(data)

    with pytest.raises(OSError, match="full disk"):
        console.write(Recorder(pipe[1], fails_later), b"line\n" * 5)
    assert len(writes) == 3
    assert console.accepted_bytes == 10


def test_a_pipe_without_a_reader_is_a_broken_pipe(pipe):
    os.close(pipe[0])
    pipe[0] = -1
    console = Console()
    with pytest.raises(BrokenPipeError):
        console.write(Descriptor(pipe[1]), b"line\n")
    assert console.accepted_bytes == 0


def test_giving_up_completes_the_line(pipe):
    sink = Recorder(pipe[1])
    with pytest.raises(GivenUpError):
        Console(write_max_bytes=8).write(sink, b"one line\ntwo\nthree\nfour\n", lambda: len(sink.writes) == 2)
    assert sink.writes == [b"one line\n", b"two\n"]


def test_a_stream_in_memory_is_a_sink():
    sink, console = io.BytesIO(), Console()
    console.write(sink, b"line\n")
    assert (sink.getvalue(), console.accepted_bytes) == (b"line\n", 5)


# Patience


def test_a_console_that_accepts_nothing_is_waited_for_once():
    patience = Patience(2.0, accepted_bytes=7, now=100.0)
    assert patience.deadline == 102.0
    assert not patience.is_over(7, now=101.9)
    assert patience.deadline == 102.0
    assert patience.is_over(7, now=102.0)


def test_each_progress_is_worth_another_wait():
    patience = Patience(2.0, accepted_bytes=0, now=100.0)
    assert not patience.is_over(1, now=102.5)
    assert patience.deadline == 104.5
    assert not patience.is_over(2, now=104.5)
    assert patience.is_over(2, now=106.5)


def test_a_limit_holds_for_a_console_that_goes_on_accepting():
    patience = Patience(2.0, accepted_bytes=0, now=100.0, limit=103.0)
    assert not patience.is_over(1, now=102.0)
    assert patience.deadline == 103.0
    assert patience.is_over(2, now=103.0)


def test_a_limit_may_come_before_the_first_look():
    patience = Patience(2.0, accepted_bytes=0, now=100.0, limit=100.0)
    assert patience.deadline == 100.0
    assert patience.is_over(1, now=100.0)


def test_a_writer_without_a_cpu_is_not_the_consoles_fault():
    patience = Patience(2.0, accepted_bytes=0, now=100.0, limit=105.0)
    assert not patience.is_over(0, now=102.0, is_held_up=False)
    assert patience.deadline == 104.0
    assert not patience.is_over(0, now=104.0, is_held_up=False)
    assert patience.is_over(0, now=105.0, is_held_up=False)
