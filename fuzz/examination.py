"""One input at a time: run it, and say what is wrong if anything is."""

from __future__ import annotations

import signal
import sys
import traceback
import tracemalloc
from typing import TYPE_CHECKING, NamedTuple

from fuzz.oracles import BrokenPromiseError

if TYPE_CHECKING:
    from types import FrameType

    from fuzz.target import Target

CPU_MAX_S = 3.0
"""How much processor time one input may take. Other processes of the machine do not count."""

REAL_MAX_S = 60.0
"""How long one input may take in all: it waits for something that does not come."""

PROMISE_WORDS = 5
"""How many words of a promise tell it from others that are checked in the same line."""

_IGNORED_FRAMES = ("/fuzz/oracles.py",)


class HangError(BaseException):
    """An input takes too long. Not an Exception: nobody is to handle it."""


class Problem(NamedTuple):
    """What an input did. Two inputs with the same `signature` have most likely found the same defect."""

    signature: str
    text: str


def examine(target: Target, data: bytes, *, with_memory: bool = False) -> Problem | None:
    """Run one input. `with_memory` also counts the memory that it takes, which is slow."""
    before = [signal.signal(signum, _hang) for signum in (signal.SIGPROF, signal.SIGALRM)]
    signal.setitimer(signal.ITIMER_PROF, CPU_MAX_S)
    signal.setitimer(signal.ITIMER_REAL, REAL_MAX_S)
    if with_memory:
        tracemalloc.start()
    try:
        target.run(data)
        peak = tracemalloc.get_traced_memory()[1] if with_memory else 0
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - a SystemExit is as bad
        return _problem(error)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        for signum, handler in zip((signal.SIGPROF, signal.SIGALRM), before, strict=True):
            signal.signal(signum, handler)
        if with_memory:
            tracemalloc.stop()
    if peak > target.memory_max_bytes:
        return Problem("memory", f"{len(data)} bytes took {peak} bytes of memory, more than {target.memory_max_bytes}")
    return None


def _hang(signum: int, _frame: FrameType | None) -> None:
    limit = f"{CPU_MAX_S:g} s of processor time" if signum == signal.SIGPROF else f"{REAL_MAX_S:g} s"
    raise HangError(f"no end after {limit}")


def _problem(error: BaseException) -> Problem:
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.endswith(_IGNORED_FRAMES)
    ]
    place = f"{frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno}" if frames else ""
    if isinstance(error, HangError):
        place = ""  # it hangs in one line as well as in the next
    what = (
        f" ({' '.join(str(error).partition(':')[0].split()[:PROMISE_WORDS])})"
        if isinstance(error, BrokenPromiseError)
        else ""
    )
    return Problem(f"{type(error).__name__} {place}{what}".rstrip(), "".join(traceback.format_exception(error)))


def lines_run(target: Target, data: bytes) -> set[tuple[str, int]]:
    """The lines of holdfast that an input runs; what is wrong with it is of no interest here."""
    seen: set[tuple[str, int]] = set()

    def in_function(frame: FrameType, event: str, _: object) -> object:
        if event == "line":
            seen.add((frame.f_code.co_filename, frame.f_lineno))
        return in_function

    def in_call(frame: FrameType, _event: str, _: object) -> object:
        return in_function if "/holdfast/" in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(in_call)  # type: ignore[arg-type]  # it also returns None
    try:
        examine(target, data)
    finally:
        sys.settrace(before)
    return seen
