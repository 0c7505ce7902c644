"""Makes a Python program run `startup/sitecustomize.py` before its own first line.

Only the environment changes. The command line, which ps shows and the program sees, stays the user's.

| variable | holds |
|---|---|
| PYTHONPATH | the directory `startup`, before what was there |
| HOLDFAST_STARTUP | what PYTHONPATH was: "set", "empty" or "unset" |
| HOLDFAST_WORKER_PID | the worker's process id; other processes that inherit the variables only remove them |

A Python program no longer has these variables when it begins. Other programs, and Python with -I, -E or -S, see them.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

STATE_VARIABLE = "HOLDFAST_STARTUP"
PID_VARIABLE = "HOLDFAST_WORKER_PID"

SWITCH_VARIABLE = "HOLDFAST_HOOKS"
"""Set it to 0 to start programs without the hooks."""

DIRECTORY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "startup")


def with_startup(env: Mapping[str, str]) -> dict[str, str]:
    """`env` plus the hooks. `for_this_process` completes it."""
    path = env.get("PYTHONPATH")
    if env.get(SWITCH_VARIABLE) == "0" or os.pathsep in DIRECTORY:
        return dict(env)
    if STATE_VARIABLE in env and DIRECTORY in (path or "").split(os.pathsep):
        return dict(env)  # inherited from a worker that never removed them
    if path:
        return {**env, "PYTHONPATH": f"{DIRECTORY}{os.pathsep}{path}", STATE_VARIABLE: "set"}
    return {**env, "PYTHONPATH": DIRECTORY, STATE_VARIABLE: "unset" if path is None else "empty"}


def for_this_process(env: Mapping[str, str]) -> Mapping[str, str]:
    """`env`, for the program that this process is about to become."""
    return {**env, PID_VARIABLE: str(os.getpid())} if STATE_VARIABLE in env else env
