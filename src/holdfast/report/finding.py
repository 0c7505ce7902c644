"""Which directories a run is in, and what they tell."""

from __future__ import annotations

import os
from contextlib import suppress

from holdfast.errors.tree import InputError
from holdfast.events.run_index import known_runs
from holdfast.report.entries import EVENT_LOG, read_log, run_id_of
from holdfast.report.joining import is_of_same_run, run_of
from holdfast.report.presence import presence_of
from holdfast.report.timeline import agent_of, node_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.report.records import Node, Run

NODES_MAX = 4096
"""How many run directories of a directory are looked at."""

READ_MAX = 100
"""How many known runs are read to name them."""

NAMED_MAX = 8
"""How many runs are named to somebody who asked for one that is not known."""


def find_run(name: str = "") -> Run:
    """The run that `name` means, read from its directories.

    That is a run's directory, a directory that holds those of its nodes, a run id that is known here, or, if it is
    empty, the newest run.

    Raises:
        InputError: there is no such run, or it cannot be read.
    """
    if name and os.path.isdir(name):
        if _is_run(name):
            return run_of([read_node(name)])
        return _newest_in(name)
    known = [directory for directory in known_runs() if _is_run(directory)]
    if not known and os.path.sep not in name:
        raise InputError("no run is known here; name the directory of one (holdfast run --log-dir)")
    newest = next((directory for directory in known if not name or run_id_of(directory) == name), None)
    if newest is None and os.path.sep in name:
        raise InputError(f"{name!r} is no directory, and no run of this id is known here")
    if newest is None:
        raise InputError(f"no run {name!r} is known here, and it is no directory; {_named(known)}")
    return run_of(_with_others(read_node(newest), [*known, *_siblings(newest)]))


def read_node(directory: str) -> Node:
    """The part of a run that a directory tells of.

    Raises:
        InputError: it holds no event log.
    """
    log = read_log(directory)
    return node_of(log, os.path.abspath(directory), presence_of(*agent_of(log)))


def _readable(directories: list[str]) -> list[Node]:
    """The parts of runs that can be read: one that is gone, or not for us to read, does not hide the others."""
    nodes: list[Node] = []
    for directory in directories:
        with suppress(InputError):
            nodes.append(read_node(directory))
    return nodes


def _is_run(directory: str) -> bool:
    return os.path.isfile(os.path.join(directory, EVENT_LOG))


def _newest_in(directory: str) -> Run:
    found = _runs_in(directory)
    if not found:
        raise InputError(f"{directory!r} is no run's directory and holds none: there is no {EVENT_LOG}")
    nodes = _readable(found) or [read_node(found[0])]  # of which the error says why
    # Of one machine these are in order. Of several, the clocks only pick which run is shown.
    newest = max(nodes, key=lambda node: node.started_at)
    chosen = _together(newest, nodes)
    others = len(nodes) - len(chosen)
    notes = [f"There are {others} more of other runs in this directory; this is the newest."] if others else []
    return run_of(chosen, notes)


def _runs_in(directory: str) -> list[str]:
    try:
        names = sorted(os.listdir(directory))
    except OSError as error:
        raise InputError(f"{directory!r} cannot be read: {error.strerror}") from error
    paths = (os.path.join(directory, name) for name in names)
    return [path for path in paths if _is_run(path)][:NODES_MAX]


def _siblings(directory: str) -> list[str]:
    """The directories beside it that begin with the same run id, as those of the other nodes do."""
    parent, name = os.path.split(directory)
    prefix = name.rpartition("_")[0]
    try:
        return [path for path in _runs_in(parent) if os.path.basename(path).rpartition("_")[0] == prefix]
    except InputError:
        return []


def _with_others(newest: Node, directories: Iterable[str]) -> list[Node]:
    seen = {os.path.realpath(newest.directory)}
    others: list[str] = []
    prefix = os.path.basename(newest.directory).rpartition("_")[0]
    for directory in directories:
        is_named_so = os.path.basename(directory).rpartition("_")[0] == prefix
        if is_named_so and os.path.realpath(directory) not in seen:
            seen.add(os.path.realpath(directory))
            others.append(directory)
    return _together(newest, _readable(others))


def _together(newest: Node, nodes: list[Node]) -> list[Node]:
    """Those of `nodes` that were in the same run as `newest`, the latest first where two claim the same place."""
    chosen = [newest]
    for node in sorted(nodes, key=lambda node: node.started_at, reverse=True):
        if node is not newest and node.attempts and all(is_of_same_run(node, each) for each in chosen):
            chosen.append(node)
    return chosen


def _named(directories: list[str]) -> str:
    ids = list(dict.fromkeys(run_id_of(directory) for directory in directories[:READ_MAX]))
    more = f" and {len(ids) - NAMED_MAX} more" if len(ids) > NAMED_MAX else ""
    return f"known are {', '.join(ids[:NAMED_MAX])}{more} (see holdfast runs)"
