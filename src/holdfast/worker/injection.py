"""How a program that we start comes to run `startup/sitecustomize.py` before its own first line, if it is Python.

By its environment alone: the command line, and so what ps shows and what the program sees of itself, is the user's.

| variable | holds |
|---|---|
| PYTHONPATH | the directory `startup`, before what was there |
| HOLDFAST_STARTUP | what PYTHONPATH was: "set", "empty" or "unset" |
| HOLDFAST_WORKER_PID | the process that is meant; others that inherit all this only tidy it away |

A Python program has none of these when it begins. Other programs, and Python with -I, -E or -S, see them.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

STATE_VARIABLE = "HOLDFAST_STARTUP"
PID_VARIABLE = "HOLDFAST_WORKER_PID"

SWITCH_VARIABLE = "HOLDFAST_HOOKS"
"""Set to 0, programs start without any of this."""

DIRECTORY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "startup")


def with_startup(env: Mapping[str, str]) -> dict[str, str]:
    """`env` for a program that is to have the hooks. `for_this_process` completes it."""
    path = env.get("PYTHONPATH")
    if env.get(SWITCH_VARIABLE) == "0" or os.pathsep in DIRECTORY:
        return dict(env)
    if STATE_VARIABLE in env and DIRECTORY in (path or "").split(os.pathsep):
        return dict(env)  # from a worker that never tidied up
    if path:
        return {**env, "PYTHONPATH": f"{DIRECTORY}{os.pathsep}{path}", STATE_VARIABLE: "set"}
    return {**env, "PYTHONPATH": DIRECTORY, STATE_VARIABLE: "unset" if path is None else "empty"}


def for_this_process(env: Mapping[str, str]) -> Mapping[str, str]:
    """`env`, for the program that this process is about to become."""
    return {**env, PID_VARIABLE: str(os.getpid())} if STATE_VARIABLE in env else env
