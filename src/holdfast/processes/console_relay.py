"""What workers say on a stderr that is not a file: shown as before, and the end of it kept for their failure.

The keeper stands between a worker and the console. The worker writes into a pipe, or into a terminal of its own where
the console is one, so that it finds there what it would have found: a terminal of the same size. The keeper reads,
keeps the end, and passes every byte on unchanged. Where stdout and stderr are the same console they are the same pipe,
and lines come out in the order in which they were written. Where they differ, stdout is none of our business.

A console may take nothing for hours: Ctrl-S, a pager, a full pipe. The descriptor is shared with others, so it cannot
be made non-blocking, and the keeper must not block. So a thread writes to the console, and the keeper fills the pipe
that it reads from. When that is full, the workers' pipes are left alone until there is room, and the workers wait as
they would have for the console itself.

A console that fails is no reason for a worker to fail: what a full disk or a terminal that hung up does not take is
lost. Only when the console is a pipe that nobody reads any more (``| head``) the workers hear of it, as programs in a
pipeline must: their next write is a broken pipe.
"""

from __future__ import annotations

import _thread
import os
import select
from contextlib import suppress

from holdfast.processes.fence import FENCE_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.processes.launch import Launch

END_MAX_BYTES = 16 * 1024
"""How much of the end is kept for each worker."""

READ_BYTES = 64 * 1024
"""What one look at a worker takes: all that a pipe holds by default, so that what was written at once is not torn."""

DRAIN_MAX_BYTES = 1024 * 1024
"""What is read at once of a worker that ended: as much as a pipe can hold, since its last words are in the pipe. More
is from a process that it left behind, and can wait.
"""

WRITE_MAX_BYTES = 16 * 1024
"""What the console is given at once: small enough for a slow one to show that it goes on."""

RESERVED_FDS = 32
"""How many descriptors the keeper leaves for all else that it and its workers-to-be open, however many there are."""

COUNT_BYTES = 8
"""The size of a rank's number in the file of counts, little endian."""


def counts_offset(rank: int) -> int:
    """Where a rank's number is. The fence is before them."""
    return FENCE_BYTES + rank * COUNT_BYTES


_OUT, _ERR = 1, 2


class ConsoleRelay:
    """The ears of a keeper. Its poll loop calls the handlers that are given to `watch`.

    `counts` is a file that holds, for each rank, how many bytes were heard of it.
    """

    def __init__(
        self, counts: int, watch: Callable[[int, Callable[[], object], int], None], forget: Callable[[int], None]
    ) -> None:
        self._counts = counts
        self._watch = watch
        self._forget = forget
        self._streams: dict[int, _Stream] = {}
        self._is_one_console = _are_same(_OUT, _ERR)
        self._is_terminal = os.isatty(_ERR)
        self._window = b""
        self._writer: _Writer | None = None
        self._backlog = bytearray()
        self._is_full = False
        self._is_finishing = False

    # Around the fork of a worker

    def open(self, launch: Launch) -> None:
        """Before the fork. A worker that cannot be heard, for want of descriptors, has the console itself."""
        if launch.stderr not in ("", os.devnull):
            return
        is_shown = not launch.stderr
        is_terminal = is_shown and self._is_terminal
        try:
            ours, workers = self._open_terminal() if is_terminal else os.pipe2(os.O_CLOEXEC)
        except OSError:
            return
        if max(ours, workers) >= os.sysconf("SC_OPEN_MAX") - RESERVED_FDS:
            os.close(ours)
            os.close(workers)
            return
        os.set_blocking(ours, False)
        is_both = is_shown and not launch.stdout and self._is_one_console
        self._streams[launch.rank] = _Stream(
            launch.rank, ours, workers, is_shown=is_shown, is_terminal=is_terminal, is_both=is_both
        )

    def connect(self, rank: int) -> tuple[int, ...]:
        """In the worker: returns which of the standard streams are heard."""
        stream = self._streams.get(rank)
        if stream is None:
            return ()
        fds = (_OUT, _ERR) if stream.is_both else (_ERR,)
        for fd in fds:
            os.dup2(stream.workers_fd, fd)
        return fds

    def forked(self, rank: int) -> None:
        """In the keeper, after the fork, also if there was none."""
        stream = self._streams.get(rank)
        if stream is not None:
            os.close(stream.workers_fd)
            stream.workers_fd = -1
            self._listen_to(stream)

    def fds(self) -> Iterator[int]:
        """All that no worker may have."""
        yield self._counts
        for stream in self._streams.values():
            for fd in (stream.fd, stream.workers_fd):
                if fd >= 0:
                    yield fd

    # Listening

    def end_of(self, rank: int) -> bytes:
        """The end of what a worker wrote that has just exited: all of it was read by now."""
        stream = self._streams.get(rank)
        if stream is None:
            return b""
        self._drain(stream)
        return bytes(stream.end)

    def _listen_to(self, stream: _Stream) -> None:
        self._watch(stream.fd, lambda: self._read(stream), select.POLLIN)

    def _read(self, stream: _Stream) -> int:
        """Take what is there; returns how much that was."""
        try:
            data = os.read(stream.fd, READ_BYTES)
        except BlockingIOError:
            return 0
        except OSError:  # a terminal that nobody has open any more
            data = b""
        if not data:
            self._close(stream)
            return 0
        stream.keep(data)
        os.pwrite(self._counts, stream.count.to_bytes(COUNT_BYTES, "little"), counts_offset(stream.rank))
        if stream.is_terminal:
            self._follow_window()
        if stream.is_shown:
            self._show(data)
        return len(data)

    def _drain(self, stream: _Stream) -> None:
        left = DRAIN_MAX_BYTES
        while stream.fd >= 0 and left > 0:
            count = self._read(stream)
            if not count:
                return
            left -= count

    def _close(self, stream: _Stream) -> None:
        if stream.fd >= 0:
            if not (self._is_full and stream.is_shown):
                self._forget(stream.fd)
            os.close(stream.fd)
            stream.fd = -1

    # Showing

    def _show(self, data: bytes) -> None:
        if self._writer is None:
            try:
                self._writer = _Writer()
            except (OSError, RuntimeError):  # no descriptor or no thread is left: better held up than silent
                with suppress(BrokenPipeError):
                    _write(_ERR, data)
                return
            self._watch(self._writer.ended_fd, self._writer_ended, select.POLLIN)
        self._backlog += data
        if not self._is_full:
            self._hand_over()

    def _hand_over(self) -> None:
        """Give the writer what it has room for. While it has none, nobody who would be shown is listened to."""
        writer = self._writer
        if writer is None or writer.fd < 0:
            self._backlog.clear()
            return
        try:
            while self._backlog:
                del self._backlog[: os.write(writer.fd, self._backlog)]
        except BlockingIOError:
            if not self._is_full:
                self._pause(writer)
            return
        except BrokenPipeError:
            return  # it has ended, and the poll loop is about to hear of it
        if self._is_full:
            self._go_on(writer)
        if self._is_finishing:
            writer.close()

    def _pause(self, writer: _Writer) -> None:
        for stream in self._shown():
            self._forget(stream.fd)
        self._is_full = True
        self._watch(writer.fd, self._hand_over, select.POLLOUT)

    def _go_on(self, writer: _Writer) -> None:
        self._forget(writer.fd)
        self._is_full = False
        for stream in self._shown():
            self._listen_to(stream)

    def _shown(self) -> list[_Stream]:
        return [stream for stream in self._streams.values() if stream.is_shown and stream.fd >= 0]

    def _writer_ended(self) -> None:
        """All is written; or nobody reads the console any more, and those who write to it are told so by the kernel."""
        writer = self._writer
        assert writer is not None
        self._forget(writer.ended_fd)
        if self._is_full:
            self._go_on(writer)
        for stream in self._shown():
            self._close(stream)
        self._backlog.clear()
        writer.close()
        writer.has_ended = True

    # The end of the set

    def finish(self) -> None:
        """There is no worker any more: nothing is heard from here on, and what was is still to be shown."""
        for stream in self._streams.values():
            self._drain(stream)
            self._close(stream)
        self._is_finishing = True
        if not self._is_full:
            self._hand_over()

    @property
    def is_all_shown(self) -> bool:
        return self._writer is None or self._writer.has_ended

    @property
    def shown_bytes(self) -> int:
        """What the console has taken so far."""
        return 0 if self._writer is None else self._writer.count

    # Terminals

    def _open_terminal(self) -> tuple[int, int]:
        from holdfast.processes.terminal import open_terminal, window_of

        self._window = window_of(_ERR)
        return open_terminal(self._window)

    def _follow_window(self) -> None:
        """The console's size may have changed. Nobody tells us: it is not the terminal that controls the keeper."""
        from holdfast.processes.terminal import set_window, window_of

        window = window_of(_ERR)
        if window and window != self._window:
            self._window = window
            for stream in self._streams.values():
                if stream.is_terminal and stream.fd >= 0:
                    set_window(stream.fd, window)


class _Stream:
    """What one worker says."""

    __slots__ = ("count", "end", "fd", "is_both", "is_shown", "is_terminal", "rank", "workers_fd")

    def __init__(
        self, rank: int, fd: int, workers_fd: int, *, is_shown: bool, is_terminal: bool, is_both: bool
    ) -> None:
        self.rank = rank
        self.fd = fd
        self.workers_fd = workers_fd
        self.is_shown = is_shown
        self.is_terminal = is_terminal
        self.is_both = is_both
        self.end = bytearray()
        self.count = 0

    def keep(self, data: bytes) -> None:
        self.count += len(data)
        self.end += data[-END_MAX_BYTES:]
        del self.end[:-END_MAX_BYTES]


class _Writer:
    """A thread that writes to the console what it finds in a pipe, and may be held up there.

    Signals are no concern of it: the keeper ignores them, but for one that is told to its poll loop by a pipe.
    """

    def __init__(self) -> None:
        self.count = 0
        self.has_ended = False
        fds: list[int] = []
        try:
            fds += os.pipe2(os.O_CLOEXEC)
            fds += os.pipe2(os.O_CLOEXEC)
            self._source, self.fd, self.ended_fd, self._end = fds
            os.set_blocking(self.fd, False)
            _thread.start_new_thread(self._run, ())
        except BaseException:
            for fd in fds:
                os.close(fd)
            raise

    def close(self) -> None:
        """Nothing more comes."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _run(self) -> None:
        try:
            with suppress(BrokenPipeError):
                while data := os.read(self._source, WRITE_MAX_BYTES):
                    _write(_ERR, data)
                    self.count += len(data)
        finally:
            os.close(self._source)
            os.close(self._end)


def _write(fd: int, data: bytes) -> None:
    """Write all of it, however long that takes. What cannot be written is lost.

    Raises:
        BrokenPipeError: nobody reads it any more.
    """
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:  # another user of this descriptor wanted it so
            poll = select.poll()
            poll.register(fd, select.POLLOUT)
            poll.poll()
        except BrokenPipeError:
            raise
        except OSError:
            return


def _are_same(one: int, other: int) -> bool:
    """Whether what is written to both ends up in the same place."""
    stats = [os.fstat(fd) for fd in (one, other)]
    return len({(stat.st_dev, stat.st_ino, stat.st_rdev) for stat in stats}) == 1
