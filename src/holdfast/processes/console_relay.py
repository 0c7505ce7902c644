"""Shows the workers' stderr if it is not a file, and keeps the end of it for failure reports.

The keeper stands between a worker and the console. The worker writes into a pipe, or into a terminal of its own if the
console is one, so that it still finds a terminal of the same size. The keeper reads, keeps the end, and passes every
byte on unchanged. If stdout and stderr are the same console, they are the same pipe, and lines keep their order. If
they differ, stdout is left alone.

A write to the console may block for hours (`console`), and the keeper must not block. So a thread writes to the
console, and the keeper fills the pipe that the thread reads. When that pipe is full, the keeper stops reading the
workers' pipes, and the workers wait as they would have for the console itself.

A failing console must not fail a worker: output that a full disk or a closed terminal rejects is lost. The exception is
a console that is a pipe without a reader (``| head``). Then the workers' next write is a broken pipe, as in any
pipeline.
"""

from __future__ import annotations

import _thread
import os
import select
from contextlib import suppress

from holdfast.processes.console import Console, Descriptor
from holdfast.processes.fence import FENCE_BYTES
from holdfast.processes.progress_bars import last_frames

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.processes.launch import Launch

END_MAX_BYTES = 16 * 1024
"""How much of the end of each worker's stderr is kept, with only the last frame of each progress bar."""

READ_BYTES = 64 * 1024
"""How much one read takes from a worker: a pipe's default capacity, so that one write is not split."""

DRAIN_MAX_BYTES = 1024 * 1024
"""How much is read at once from a worker that ended: a pipe's maximum capacity, since its last lines are in the pipe.
Anything beyond that comes from a process that it left behind, and can wait.
"""

SHOW_BYTES = 16 * 1024
"""How much the writer takes at once: so much of a line without an end is one write, and a slow console should show
progress.
"""

RESERVED_FDS = 32
"""How many descriptors the keeper reserves for its own other needs and those of starting workers."""

COUNT_BYTES = 8
"""The size of a rank's byte count in the shared file, little endian."""


def counts_offset(rank: int) -> int:
    """Where a rank's byte count is in the shared file. The fence comes first."""
    return FENCE_BYTES + rank * COUNT_BYTES


_OUT, _ERR = 1, 2


class ConsoleRelay:
    """Reads the workers' stderr for a keeper. The keeper's poll loop calls the handlers that are given to `watch`.

    `counts` is a file that holds, for each rank, how many bytes were read from it.
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
        self._console = Console()
        self._writer: _Writer | None = None
        self._backlog = bytearray()
        self._is_full = False
        self._is_finishing = False

    # Around the fork of a worker

    def open(self, launch: Launch) -> None:
        """Before the fork. If descriptors run short, the worker gets the console itself."""
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
        """In the worker: connect its streams. Returns which of the standard streams are relayed."""
        stream = self._streams.get(rank)
        if stream is None:
            return ()
        fds = (_OUT, _ERR) if stream.is_both else (_ERR,)
        for fd in fds:
            os.dup2(stream.workers_fd, fd)
        return fds

    def forked(self, rank: int) -> None:
        """In the keeper, after the fork or a failed fork."""
        stream = self._streams.get(rank)
        if stream is not None:
            os.close(stream.workers_fd)
            stream.workers_fd = -1
            self._listen_to(stream)

    def fds(self) -> Iterator[int]:
        """The descriptors that no worker may have."""
        yield self._counts
        for stream in self._streams.values():
            for fd in (stream.fd, stream.workers_fd):
                if fd >= 0:
                    yield fd

    # Reading

    def end_of(self, rank: int) -> bytes:
        """The end of the output of a worker that has just exited. Reads the rest of it first."""
        stream = self._streams.get(rank)
        if stream is None:
            return b""
        self._drain(stream)
        return stream.kept()

    def _listen_to(self, stream: _Stream) -> None:
        self._watch(stream.fd, lambda: self._read(stream), select.POLLIN)

    def _read(self, stream: _Stream) -> int:
        """Read what is available; returns the number of bytes."""
        try:
            data = os.read(stream.fd, READ_BYTES)
        except BlockingIOError:
            return 0
        except OSError:  # a terminal whose other end is closed
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
                self._writer = _Writer(self._console)
            except (OSError, RuntimeError):  # out of descriptors or threads: blocking is better than losing output
                with suppress(BrokenPipeError):
                    _write(self._console, data)
                return
            self._watch(self._writer.ended_fd, self._writer_ended, select.POLLIN)
        self._backlog += data
        if not self._is_full:
            self._hand_over()

    def _hand_over(self) -> None:
        """Give the writer as much as fits. While nothing fits, the streams that are shown are not read."""
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
            return  # the writer has ended, and the poll loop will notice
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
        """All is written, or the console has no reader any more: closing the pipes lets the kernel tell the workers."""
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
        """Called when no worker is left: read the rest, close the streams, and let the writer finish."""
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
        """How many bytes the console has accepted so far."""
        return self._console.accepted_bytes

    # Terminals

    def _open_terminal(self) -> tuple[int, int]:
        from holdfast.processes.terminal import open_terminal, window_of

        self._window = window_of(_ERR)
        return open_terminal(self._window)

    def _follow_window(self) -> None:
        """Adopt a new console size. No signal announces it: the console is not the keeper's controlling terminal."""
        from holdfast.processes.terminal import set_window, window_of

        window = window_of(_ERR)
        if window and window != self._window:
            self._window = window
            for stream in self._streams.values():
                if stream.is_terminal and stream.fd >= 0:
                    set_window(stream.fd, window)


class _Stream:
    """The output of one worker."""

    __slots__ = ("_end", "count", "fd", "is_both", "is_shown", "is_terminal", "rank", "workers_fd")

    def __init__(
        self, rank: int, fd: int, workers_fd: int, *, is_shown: bool, is_terminal: bool, is_both: bool
    ) -> None:
        self.rank = rank
        self.fd = fd
        self.workers_fd = workers_fd
        self.is_shown = is_shown
        self.is_terminal = is_terminal
        self.is_both = is_both
        self.count = 0
        self._end = bytearray()

    def keep(self, data: bytes) -> None:
        self.count += len(data)
        self._end += data
        if len(self._end) > 2 * END_MAX_BYTES:  # not after every read: progress bars are many small writes
            self._end = bytearray(self.kept())

    def kept(self) -> bytes:
        """The end of the output."""
        return last_frames(bytes(self._end))[-END_MAX_BYTES:]


class _Writer:
    """A thread that copies a pipe to the console, and may block there.

    It needs no signal handling: the keeper ignores all signals but one, which a pipe reports to its poll loop.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
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
        """Signal the end of the output."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _run(self) -> None:
        try:
            with suppress(BrokenPipeError):
                while data := os.read(self._source, SHOW_BYTES):
                    _write(self._console, data)
        finally:
            os.close(self._source)
            os.close(self._end)


def _write(console: Console, data: bytes) -> None:
    """Write all of it, however long that takes. Output that cannot be written is lost.

    Raises:
        BrokenPipeError: the console has no reader any more.
    """
    try:
        console.write(Descriptor(_ERR), data)
    except BrokenPipeError:
        raise
    except OSError:
        pass


def _are_same(one: int, other: int) -> bool:
    """Whether both descriptors lead to the same file."""
    stats = [os.fstat(fd) for fd in (one, other)]
    return len({(stat.st_dev, stat.st_ino, stat.st_rdev) for stat in stats}) == 1
