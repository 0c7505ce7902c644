"""The index of this user's runs: a directory with one symbolic link for each run.

``${XDG_STATE_HOME:-~/.local/state}/holdfast/runs/<time>_<process id>_<host>`` points to a run's directory. Names sort
by time. The link of a run without a directory points to ``/dev/null``. Machines may share a home directory, so a link
belongs to the host in its name. A machine removes only its own links, because other links may point to directories that
are not visible here.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress

RUNS_MAX = 1000
"""How many runs a machine keeps in the index. The oldest are removed first."""

_PRIVATE = 0o700


def index_directory() -> str:
    """The directory of the links; "" if there is no home directory."""
    state = os.environ.get("XDG_STATE_HOME", "")
    # The XDG specification says to ignore a relative path.
    base = state if os.path.isabs(state) else os.path.expanduser("~/.local/state")
    return os.path.join(base, "holdfast", "runs") if os.path.isabs(base) else ""


def register(run_dir: str | None) -> None:
    """Add a run's directory, or `os.devnull`, to the index. Never raises: the run goes on without an entry."""
    index = index_directory()
    if not run_dir or not index:
        return
    try:
        _make_private(index)
        now_ns = time.time_ns()
        began = time.strftime("%Y-%m-%dT%H-%M-%S", time.gmtime(now_ns // 1_000_000_000))
        name = f"{began}.{now_ns % 1_000_000_000:09}Z_{os.getpid()}{_host()}"
        os.symlink(os.path.abspath(run_dir), os.path.join(index, name))
        for old in _own_names(index)[:-RUNS_MAX]:
            _forget(index, old)
    except OSError:
        pass


def known_runs() -> list[str]:
    """The directories of the indexed runs that still exist, the newest first."""
    index = index_directory()
    try:
        names = sorted(os.listdir(index), reverse=True) if index else []
    except OSError:
        return []
    found: dict[str, None] = {}
    for name in names:
        path = os.path.join(index, name)
        try:
            target = os.readlink(path)
        except OSError:
            continue
        if os.path.isdir(target):
            found.setdefault(target)
        elif name.endswith(_host()) and not os.path.lexists(target):
            _forget(index, name)
    return list(found)


def newest_has_no_directory() -> bool:
    """Whether the newest run that was indexed wrote no directory."""
    index = index_directory()
    try:
        return bool(index) and os.readlink(os.path.join(index, max(os.listdir(index)))) == os.devnull
    except (OSError, ValueError):  # there is no index, or nothing in it
        return False


def _host() -> str:
    return f"_{os.uname().nodename}"


def _own_names(index: str) -> list[str]:
    return sorted(name for name in os.listdir(index) if name.endswith(_host()))


def _make_private(index: str) -> None:
    if os.path.isdir(index):
        return
    parent = os.path.dirname(index)
    os.makedirs(os.path.dirname(parent), exist_ok=True)
    for directory in (parent, index):
        try:
            os.mkdir(directory, _PRIVATE)
        except FileExistsError:
            continue


def _forget(index: str, name: str) -> None:
    with suppress(OSError):  # another process may have removed it first
        os.unlink(os.path.join(index, name))
