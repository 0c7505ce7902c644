"""The page that a worker and its agent share: a few numbers in a file that the worker maps into memory.

Writing to it is a store to memory, so heartbeats are cheap at any rate. The worker writes the version at its first use;
without a version, the agent knows that the program does not use the page. The worker creates the file, or the agent
does if it requests a stop before that: then the page has the request from its first moment. The agent never maps the
file: a worker that shrinks it would kill the agent by SIGBUS.

| number | written by | holds |
|---|---|---|
| 0 | worker | the version of this layout, once the page can be read |
| 1 | worker | the number of heartbeats |
| 2 | worker | the step of the last heartbeat, or -1 |
| 3 | worker | the time of the last heartbeat: nanoseconds of the monotonic clock |
| 4 | worker | 1 if it listens for a request to stop |
| 5 | agent | 0, or the worker's deadline after a request to stop: nanoseconds of the monotonic clock |
| 6 | agent | the length of the reason in bytes; it begins at byte 128 |
"""

from __future__ import annotations

import mmap
import os

VARIABLE = "HOLDFAST_WORKER_PAGE"
"""The environment variable with the file's path."""

VERSION, BEATS, STEP, BEAT_NS, LISTENS, STOP_NS, REASON_BYTES = range(7)

LAYOUT = 1
PAGE_BYTES = 4096
NUMBER_BYTES = 8
REASON_OFFSET = 128
REASON_MAX_BYTES = 1024
FIFO_SUFFIX = ".stop"
"""A pipe beside the page, which a worker with a callback reads. The agent writes a byte to it to request a stop."""


class Page:
    """A mapped page, in the worker. `numbers` is the memory itself."""

    __slots__ = ("_memory", "numbers")

    def __init__(self, memory: mmap.mmap | bytearray) -> None:
        self._memory = memory
        self.numbers = memoryview(memory).cast("q")

    @classmethod
    def make(cls, path: str) -> Page:
        """Open or create the page at `path`. The version is written last, when the page is complete.

        Raises OSError, also if the file system is full: a page that is only reserved by its length would end the
        program by SIGBUS at the first store.
        """
        with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b", buffering=0) as file:
            os.posix_fallocate(file.fileno(), 0, PAGE_BYTES)
            page = cls(mmap.mmap(file.fileno(), PAGE_BYTES))
        page.numbers[STEP] = -1
        page.numbers[VERSION] = LAYOUT
        return page

    @classmethod
    def private(cls) -> Page:
        """A page that no other process sees."""
        return cls(bytearray(PAGE_BYTES))

    @property
    def reason(self) -> str:
        length = min(max(self.numbers[REASON_BYTES], 0), REASON_MAX_BYTES)
        return bytes(self._memory[REASON_OFFSET : REASON_OFFSET + length]).decode(errors="replace")
