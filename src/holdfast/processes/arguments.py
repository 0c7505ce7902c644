"""Checks of what a caller gives a set of processes. An error names the argument, and says what is wrong with it."""

from __future__ import annotations

import os

START_METHODS = ("spawn", "fork", "forkserver")
"""How the process of a function can be started."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def check_ranks(name: str, **mappings: Mapping[int, Any]) -> None:
    """Check that each mapping has exactly the ranks 0 to N-1; the error names the mapping and the rank."""
    nprocs = max(map(len, mappings.values()))
    problem = "" if nprocs else f"{' and '.join(mappings)} are empty; no process to start"
    for what, mapping in mappings.items():
        for rank in range(nprocs):
            if not problem and rank not in mapping:
                others = ", ".join(map(str, mapping)) or "none"
                problem = (
                    f"{what} has no rank {rank}; {nprocs} processes need ranks 0 to {nprocs - 1}, but it has {others}"
                )
    if problem:
        from holdfast.errors.tree import InputError

        class RanksError(InputError, RuntimeError):
            """Also a RuntimeError, as callers of torch's function expect."""

        raise RanksError(f"{name}: {problem}")


def check_text(what: str, text: object) -> str:
    """`text`, if it can be passed to a program."""
    if not isinstance(text, str):
        raise input_error(f"{what}: {text!r} is not a str")
    if "\0" in text:
        raise input_error(f"{what}: {text!r} contains a zero byte, which cannot be passed to a program")
    return text


def check_seconds(what: str, seconds: float) -> float:
    """`seconds`, if a wait can last that long."""
    if not seconds >= 0:  # also rejects NaN
        raise input_error(f"{what}={seconds!r}: must be 0 seconds or more")
    return seconds


def input_error(message: str) -> Exception:
    from holdfast.errors.tree import InputError

    return InputError(message)


def environment(name: str, rank: int, additions: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of a process: that of this process, and its `additions`."""
    for variable, value in additions.items():
        check_text(f"{name}: rank {rank}: environment variable {variable!r}", value)
        if not variable or "=" in check_text(f"{name}: rank {rank}: environment", variable):
            raise input_error(f"{name}: rank {rank}: an environment variable cannot be called {variable!r}")
    return {**os.environ, **additions}
