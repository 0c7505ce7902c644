"""Show what processes write to their log files, as they write it."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import select
import signal
import stat
import threading

from holdfast.errors.notice import notice
from holdfast.processes.file_changes import FileChanges
from holdfast.processes.lines import Lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import BinaryIO, TextIO

CHUNK_BYTES = 64 * 1024
"""How much is read of one file before the next has its turn.

More is slower: malloc maps fresh pages for each larger block, and filling those takes longer than all else.
"""

LINGER_S = 0.02
"""How long lines that follow upon others may wait, to be shown together; the first after a pause never waits.

Four writers that never pause cost 8 % of a processor to show with it, and 40 % without.
"""

_CRASHES = {signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV, signal.SIGTRAP}


class TailLog:
    """Shows the lines of several files, each behind its prefix, on one stream until it is stopped.

    A line is shown when it is complete, and in one piece, even if several of these share a stream or a terminal.
    Bytes are shown as they are on a stream that has a binary layer, and as UTF-8 on any other. A file that does
    not exist yet is waited for; one that is truncated or replaced is read from its new start. If the stream
    breaks, nothing more is shown; the files belong to their writers and are never touched.

    One thread does it, and sleeps while nothing is written.

    Args:
        name: names the lines of a rank that has no prefix: `[<name><rank>]:`.
        log_files: the files, by rank.
        dst: where to show them.
        log_line_prefixes: what to put in front of each line, by rank.
        interval_sec: accepted for those who used to set how often files are looked at; not needed.
        log_line_filter: is given each line, with its line feed; those for which it is false are not shown.
    """

    def __init__(
        self,
        name: str,
        log_files: Mapping[int, str],
        dst: TextIO,
        log_line_prefixes: Mapping[int, str] | None = None,
        interval_sec: float = 0.1,  # noqa: ARG002 - see above
        log_line_filter: Callable[[str], bool] | None = None,
    ) -> None:
        prefixes = log_line_prefixes or {}
        self._name = name
        self._dst = dst
        self._files: dict[int, _LogFile] = {}
        for rank, path in log_files.items():
            if path != os.devnull:
                prefix = prefixes.get(rank, f"[{name}{rank}]:").encode("utf-8", "replace")
                self._files[rank] = _LogFile(rank, path, Lines(prefix, log_line_filter))
        self._stopping = False
        self._changes: FileChanges | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> TailLog:
        """Begin to show what is in the files and what comes."""
        if self._thread is not None:
            raise RuntimeError(f"TailLog {self._name!r} was started before; make a new one")
        if self._files and self._dst is not None:  # a process without a stdout has None
            self._changes = FileChanges(_say_once)
            self._thread = threading.Thread(
                target=self._run, args=(self._changes,), name=f"tail {self._name}", daemon=True
            )
            self._thread.start()
        return self

    def stop(self, patience_s: float | None = None) -> None:
        """Show all that has been written by now, the last line too if it has no end, and be done.

        Returns when nothing is left of the thread and of what it had open. A stream that takes nothing holds it up, for
        `patience_s` at most where that is given; then the thread is left to itself.
        """
        self._stopping = True
        if self._changes is not None and self._thread is not None:
            self._changes.interrupt()
            self._thread.join(patience_s)
            if not self._thread.is_alive():
                changes, self._changes = self._changes, None
                changes.close()

    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopping

    def _run(self, changes: FileChanges) -> None:
        # Signals are for the main thread, also while it holds them back.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _CRASHES)
        try:
            self._follow(changes, _Display(self._dst))
        except Exception as error:  # noqa: BLE001 - the stream and the filter are the user's, and may do anything
            _say(f"{self._name}: cannot show any more lines: {error!r}; the log files have them all")
        finally:
            for file in self._files.values():
                file.close()

    def _follow(self, changes: FileChanges, display: _Display) -> None:
        changed: Iterable[int] = set(self._files)
        while True:
            stopping = self._stopping  # asked before the look, so that the last look comes after `stop`
            shown = self._catch_up(self._files if stopping else changed, changes, display)
            if stopping:
                break
            if shown:
                changes.pause(LINGER_S)
            changed = changes.wait()
        for file in self._files.values():
            display.show(file.last_line())

    def _catch_up(self, ranks: Iterable[int], changes: FileChanges, display: _Display) -> bool:
        """Show what these files have by now, in turns. Whether it was anything."""
        shown = False
        turns = {rank: self._files[rank].new_lines(changes) for rank in ranks if rank in self._files}
        while turns:
            for rank, blocks in list(turns.items()):
                try:
                    block = next(blocks, None)
                except OSError as error:
                    _say(f"{self._name}: cannot show the lines of rank {rank}: {error}")
                    file = self._files.pop(rank)
                    file.close()
                    display.show(file.last_line())
                    block = None
                if block is None:
                    del turns[rank]
                elif block:
                    display.show(block)
                    shown = True
        return shown


class _LogFile:
    """One file, read as far as it is written."""

    __slots__ = ("_at", "_fd", "_lines", "_path", "_rank")

    def __init__(self, rank: int, path: str, lines: Lines) -> None:
        self._rank = rank
        self._path = path
        self._lines = lines
        self._fd: int | None = None
        self._at = 0

    def new_lines(self, changes: FileChanges) -> Iterator[bytes]:
        """The lines that were completed since the last time, block by block; what comes later is watched for.

        Raises:
            OSError: the file cannot be read.
        """
        while True:
            if self._fd is not None:
                changes.watch_file(self._rank, self._fd)
                yield from self._read()
            if not self._has_successor(changes):
                return
            yield from self._read()  # what was written before it had one
            yield self._lines.finish()
            self._open_successor()

    def last_line(self) -> bytes:
        """The last line if it has no end, with one."""
        return self._lines.finish()

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _read(self) -> Iterator[bytes]:
        """To where the file ends now: one that grows for ever must not keep the others waiting."""
        if self._fd is None:
            return
        size = os.fstat(self._fd).st_size
        if size < self._at:  # it was truncated
            self._at = 0
            yield self._lines.finish()
        while self._at < size and (data := os.pread(self._fd, min(CHUNK_BYTES, size - self._at), self._at)):
            self._at += len(data)
            yield self._lines.feed(data)

    def _has_successor(self, changes: FileChanges) -> bool:
        """Whether the path names a file, and not the one we have; if it names none, the next is watched for."""
        status = _status(self._path)
        if status is None:
            changes.watch_creation(self._rank, self._path)
            status = _status(self._path)
        if status is None:
            return False
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "Not a regular file", self._path)
        return self._fd is None or not os.path.samestat(status, os.fstat(self._fd))

    def _open_successor(self) -> None:
        with contextlib.suppress(FileNotFoundError):  # it went away meanwhile, and the next will be watched for
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            self.close()
            self._fd, self._at = fd, 0


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


class _Display:
    """A stream that takes blocks of whole lines, one at a time from all threads that show something."""

    lock = threading.Lock()  # one for all streams, since several may lead to one terminal

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._binary = stream.buffer if _is_plain(stream) else None
        self._flush_stream = getattr(stream, "flush", lambda: None)

    def show(self, block: bytes) -> None:
        if not block:
            return
        with self.lock:
            if self._binary is None:
                self._stream.write(block.decode("utf-8", "replace"))
            else:
                self._flush()  # what others wrote as text before
                self._write(self._binary, block)
            self._flush()

    def _write(self, binary: BinaryIO, block: bytes) -> None:
        rest = memoryview(block)
        while rest:
            try:
                written = binary.write(rest)
            except BlockingIOError as full:
                written = full.characters_written
            rest = rest[written or 0 :]  # None: an unbuffered stream that took nothing
            if rest:
                self._await_room()

    def _flush(self) -> None:
        while True:
            try:
                self._flush_stream()
            except BlockingIOError:
                self._await_room()
            else:
                return

    def _await_room(self) -> None:
        """Whoever shares the terminal may have made it non-blocking."""
        room = select.poll()  # not select(), which knows no descriptor above 1023
        room.register(self._stream, select.POLLOUT)
        room.poll()


def _is_plain(stream: TextIO) -> bool:
    """Whether writing to the stream's binary layer is what its own `write` would do.

    It is not for one that delegates to another stream and does something of its own on the way, as people
    put into `sys.stdout`.
    """
    return isinstance(stream, io.TextIOWrapper) and stream.write == io.TextIOWrapper.write.__get__(stream)


def _renew_lock() -> None:
    _Display.lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)  # the thread that may hold it is not in the child


def _say(text: str) -> None:
    with _Display.lock:
        notice(text)


_said: set[str] = set()


def _say_once(text: str) -> None:
    with _Display.lock:
        if text not in _said:
            _said.add(text)
            notice(text)
