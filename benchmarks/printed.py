"""Whether all that workers printed is in their files, and on the console that they share.

All lines have one length, and so have all ranks' prefixes. That makes files and console tables of equal records,
which are compared in runs of one rank: there are far fewer of those than lines.
"""

from __future__ import annotations

import mmap
import os
import re
import zlib
from contextlib import ExitStack
from functools import cache
from typing import TYPE_CHECKING

from benchmarks.printing_worker import LINE_BYTES, rest_of_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_BLOCK_LINES = 10_000


def prefix(name: str, rank: int) -> bytes:
    """What both holdfast and torch put before a line unless told otherwise."""
    return b"[%s%d]:" % (name.encode(), rank)


def wrong_lines_in_file(path: str, rank: int, lines: int) -> int:
    """How many lines are missing or too many, and at least 1 if the file is not what this rank printed."""
    with open(path, "rb") as file:
        checksum, size = _checksum(iter(lambda: file.read(_BLOCK_LINES * LINE_BYTES), b""))
    if checksum == _expected_checksum(rank, lines):
        return 0
    return max(1, abs(size // LINE_BYTES - lines))


def wrong_lines_on_console(path: str, name: str, files: Sequence[str]) -> int:
    """How many lines of the workers' files are nowhere to be seen whole; at least 1 if there is any other flaw.

    The console has to show each file line by line behind the rank's prefix, in the file's order, and nothing else.
    """
    if os.path.getsize(path) == 0:  # which cannot be mapped
        return sum(map(os.path.getsize, files)) // LINE_BYTES
    with ExitStack() as stack:
        console, *contents = (stack.enter_context(_mapped(each)) for each in (path, *files))
        prefixes = [prefix(name, rank) for rank in range(len(files))]
        if _is_flawless(console, contents, prefixes):
            return 0
        shown = sum(_whole_lines(console, each, rank) for rank, each in enumerate(prefixes))
        return max(1, sum(map(len, contents)) // LINE_BYTES - shown)


def _is_flawless(console: mmap.mmap, contents: Sequence[mmap.mmap], prefixes: Sequence[bytes]) -> bool:
    width = len(prefixes[0])
    digit = width - len(b"0]:")  # where in a record its rank stands
    record = width + LINE_BYTES
    ranks = {each[digit]: rank for rank, each in enumerate(prefixes)}
    if len(console) * LINE_BYTES != sum(map(len, contents)) * record:
        return False
    at = [0] * len(contents)
    for start in range(0, len(console), _BLOCK_LINES * record):
        block = console[start : start + _BLOCK_LINES * record]
        for run in re.finditer(rb"(.)\1*", block[digit::record], re.DOTALL):
            rank = ranks.get(run[0][0])
            if rank is None:
                return False
            first, at[rank] = at[rank], at[rank] + len(run[0]) * LINE_BYTES
            lines = contents[rank][first : at[rank]]
            expected = prefixes[rank] + lines.replace(b"\n", b"\n" + prefixes[rank])[:-width]
            if block[run.start() * record : run.end() * record] != expected:
                return False
    return True


def _whole_lines(console: mmap.mmap, prefix_: bytes, rank: int) -> int:
    line = rb"%s(\d{10})%s\n" % (re.escape(prefix_), re.escape(rest_of_line(rank).encode()))
    return len(set(re.findall(line, console)))


@cache
def _expected_checksum(rank: int, lines: int) -> int:
    rest = rest_of_line(rank)
    blocks = (range(first, min(first + _BLOCK_LINES, lines)) for first in range(0, lines, _BLOCK_LINES))
    checksum, _ = _checksum("".join(f"{number:010d}{rest}\n" for number in block).encode() for block in blocks)
    return checksum


def _checksum(blocks: Iterable[bytes]) -> tuple[int, int]:
    checksum = size = 0
    for block in blocks:
        checksum = zlib.crc32(block, checksum)
        size += len(block)
    return checksum, size


def _mapped(path: str) -> mmap.mmap:
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
