"""Shows what processes write to their log files, as they write it."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
import time

from holdfast.errors.notice import notice
from holdfast.processes.console import GivenUpError, Patience
from holdfast.processes.display import Display
from holdfast.processes.file_changes import FileChanges
from holdfast.processes.lines import Lines
from holdfast.signals import leave_to_main_thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import TextIO

CHUNK_BYTES = 64 * 1024
"""How much is read from one file before the next has its turn.

More is slower: malloc maps fresh pages for each larger block, and filling those takes longer than everything else.
"""

LINGER_S = 0.02
"""How long lines may wait after others, to be shown together; the first line after a pause never waits.

Showing four writers that never pause costs 8 % of a CPU with it, and 40 % without.
"""

STALLS_S = 2.0
"""How long a caller in a hurry waits for a console that accepts nothing."""

LAGGARDS_MAX = 8
"""How many detached tails may still have lines to show. Earlier ones give up: each has a thread and a descriptor for
every file.
"""


class TailLog:
    """Shows the lines of several files, each after its prefix, on one stream until it is stopped.

    A line is shown when it is complete, and in one piece, even if several tails share a stream or a terminal. A stream
    with a binary layer gets the bytes unchanged, any other gets UTF-8 text. A file that does not exist yet is waited
    for; one that is truncated or replaced is read from its new start. If the stream breaks, nothing more is shown. The
    files belong to their writers and are never modified.

    One thread does the work, and sleeps while nothing is written.

    Args:
        name: used in the default prefix of a rank, `[<name><rank>]:`.
        log_files: the files, by rank.
        dst: the stream to show them on.
        log_line_prefixes: the prefix of each line, by rank.
        interval_sec: ignored; accepted for programs that still set the polling interval.
        log_line_filter: called with each line and its line feed; lines for which it is false are not shown.
    """

    def __init__(
        self,
        name: str,
        log_files: Mapping[int, str],
        dst: TextIO,
        log_line_prefixes: Mapping[int, str] | None = None,
        interval_sec: float = 0.1,  # noqa: ARG002 - for compatibility
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
        self._display: Display | None = None
        self._is_given_up = False

    def start(self) -> TailLog:
        """Begin to show the files' content and what is added to it."""
        if self._thread is not None:
            raise RuntimeError(f"TailLog {self._name!r} was already started; make a new one")
        if self._files and self._dst is not None:  # a process without a stdout has None
            self._changes = FileChanges(_say_once)
            self._thread = threading.Thread(
                target=self._run, args=(self._changes,), name=f"tail {self._name}", daemon=True
            )
            self._thread.start()
        return self

    def stop(self, patience_s: float | None = None) -> None:
        """Show everything written so far, including an unfinished last line, and end.

        Returns when the thread has ended and its files are closed. A stream that accepts nothing blocks this, unless
        `patience_s` is given: then it waits at most STALLS_S for such a stream, and at most `patience_s` for a slow
        one. After that the thread is detached, and shows the rest if the stream accepts it while this process lives.
        """
        self._stopping = True
        if self._changes is None or self._thread is None:
            return
        self._changes.interrupt()
        if patience_s is None:
            self._thread.join()
        elif not self.await_end(patience_s, STALLS_S):
            _leave_behind(self)
            _say_once(
                "the console is too slow, so some lines come late or are left out there; the log files have them all"
            )
        self.has_ended()

    def await_end(self, patience_s: float, stalls_s: float) -> bool:
        """Wait for the thread to end: for `patience_s`, or less if the stream accepts nothing for `stalls_s`."""
        assert self._thread is not None
        now = time.monotonic()
        patience = Patience(stalls_s, self._accepted_bytes(), now, limit=now + patience_s)
        while self._thread.is_alive():
            self._thread.join(max(0.0, patience.deadline - time.monotonic()))
            if patience.is_over(self._accepted_bytes(), time.monotonic(), is_held_up=self._is_held_up()):
                break
        return not self._thread.is_alive()

    def has_ended(self) -> bool:
        """Whether the thread has ended; if so, also close what it had open."""
        if self._thread is not None and self._thread.is_alive():
            return False
        changes, self._changes = self._changes, None
        if changes is not None:
            changes.close()
        return True

    def give_up(self) -> None:
        """Show nothing more."""
        self._is_given_up = True
        if self._display is not None:
            self._display.give_up()

    def _accepted_bytes(self) -> int:
        return 0 if self._display is None else self._display.console.accepted_bytes

    def _is_held_up(self) -> bool:
        """Whether the thread waits for the stream, and not for a CPU."""
        return self._display is not None and self._display.console.is_taken

    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopping

    def _run(self, changes: FileChanges) -> None:
        leave_to_main_thread()
        try:
            self._display = Display(self._dst)
            if self._is_given_up:
                return
            self._follow(changes, self._display)
        except GivenUpError:
            pass
        except Exception as error:  # noqa: BLE001 - the stream and the filter are the user's, and may raise anything
            notice(f"{self._name}: cannot show any more lines: {error!r}; the log files have them all")
        finally:
            for file in self._files.values():
                file.close()

    def _follow(self, changes: FileChanges, display: Display) -> None:
        changed: Iterable[int] = set(self._files)
        while True:
            stopping = self._stopping  # read first, so that the last read of the files comes after `stop`
            shown = self._catch_up(self._files if stopping else changed, changes, display)
            if stopping:
                break
            if shown:
                changes.pause(LINGER_S)
            changed = changes.wait()
        for file in self._files.values():
            display.show(file.last_line())

    def _catch_up(self, ranks: Iterable[int], changes: FileChanges, display: Display) -> bool:
        """Show the new lines of these files, in turns. Returns whether there were any."""
        shown = False
        turns = {rank: self._files[rank].new_lines(changes) for rank in ranks if rank in self._files}
        while turns:
            for rank, blocks in list(turns.items()):
                try:
                    block = next(blocks, None)
                except OSError as error:
                    notice(f"{self._name}: cannot show the lines of rank {rank}: {error}")
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
    """One file, read up to its current end."""

    __slots__ = ("_at", "_fd", "_lines", "_path", "_rank")

    def __init__(self, rank: int, path: str, lines: Lines) -> None:
        self._rank = rank
        self._path = path
        self._lines = lines
        self._fd: int | None = None
        self._at = 0

    def new_lines(self, changes: FileChanges) -> Iterator[bytes]:
        """The lines completed since the last call, block by block; sets a watch for later ones.

        Raises:
            OSError: the file cannot be read.
        """
        while True:
            if self._fd is not None:
                changes.watch_file(self._rank, self._fd)
                yield from self._read()
            if not self._has_successor(changes):
                return
            yield from self._read()  # the lines written before it was replaced
            yield self._lines.finish()
            self._open_successor()

    def last_line(self) -> bytes:
        """The unfinished last line, with a line feed."""
        return self._lines.finish()

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _read(self) -> Iterator[bytes]:
        """Read to the current end: a file that grows for ever must not keep the others waiting."""
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
        """Whether the path names a file other than the open one. If it names none, watch for the next."""
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
        with contextlib.suppress(FileNotFoundError):  # removed meanwhile; the next one will be watched for
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            self.close()
            self._fd, self._at = fd, 0


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def await_laggards(stalls_s: float) -> None:
    """Wait for the detached tails, unless the console accepts nothing for `stalls_s`."""
    for tail in _laggards:
        if not tail.await_end(float("inf"), stalls_s):
            break
    _forget_ended_laggards()


_laggards: list[TailLog] = []
"""The detached tails, oldest first."""


def _leave_behind(tail: TailLog) -> None:
    _forget_ended_laggards()
    _laggards.append(tail)
    for early in _laggards[:-LAGGARDS_MAX]:
        early.give_up()


def _forget_ended_laggards() -> None:
    for tail in list(_laggards):
        if tail.has_ended():
            _laggards.remove(tail)


_saying = threading.Lock()
_said: set[str] = set()


def _say_once(text: str) -> None:
    with _saying:
        is_new = text not in _said
        _said.add(text)
    if is_new:
        notice(text)
