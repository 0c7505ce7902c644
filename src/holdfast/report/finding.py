"""Find the directories of a job, and read them."""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import islice

from holdfast.errors.tree import InputError
from holdfast.events.run_index import known_runs, newest_has_no_directory
from holdfast.report.entries import Identity, identity_of, read_log
from holdfast.report.joining import run_of, together
from holdfast.report.liveness import presence_of
from holdfast.report.timeline import agent_of, node_of
from holdfast.report.units import SHOWN_ID_CHARS
from holdfast.run_directory import EVENTS, RunDirectory, runs_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from holdfast.report.records import Node, Run

NAME_MIN_CHARS = 4
"""How many characters of a job's id are enough to name it."""

NEWER_WITHOUT_DIRECTORY = (
    "A newer run left no record, as with --log-dir /dev/null; this is the newest run that left one."
)


def find_run(name: str = "") -> Run:
    """The job that `name` means, read from its directories.

    `name` is an agent's directory, a directory that holds those of several agents, a run id or the beginning of a job
    id that is known here, or "" for the newest job. If it means several jobs, the newest one is returned, and a note
    says how to name the others.

    Raises:
        InputError: there is no such job, or it cannot be read.
    """
    if name and os.path.isdir(name):
        return _part_in(name) if RunDirectory(name).has_events() else _newest_in(name)
    known = _known()
    if not known and os.path.sep not in name:
        raise InputError("no runs are recorded here; give a run's directory (holdfast run --log-dir)")
    jobs = _jobs_named(name, known)
    newest = next(jobs, None)
    if newest is None:
        raise InputError(f"no run or directory {name!r}; see holdfast runs")
    others = sum(1 for _ in jobs) if name == newest[0].run_id else 0
    notes = [_several(others, f"have the run id {name!r}")] if others else []
    if not name and newest_has_no_directory():
        notes.append(NEWER_WITHOUT_DIRECTORY)
    return run_of(_readable_with_siblings(newest), notes)


def recent_runs(number: int) -> list[Run]:
    """The newest jobs that are known here, at most `number`, newest first."""
    runs: list[Run] = []
    for job in _jobs(_known()):
        if len(runs) == number:
            break
        with suppress(InputError):  # the log is gone, or we may not read it
            runs.append(run_of(_readable_with_siblings(job)))
    return runs


def _named(name: str, known: Iterable[Identity]) -> list[Identity]:
    """The identities that match a run id or the beginning of a job id; the first one, if `name` is empty."""
    if not name:
        return list(islice(known, 1))
    by_run_id = [each for each in known if each.run_id == name]
    if by_run_id or len(name) < NAME_MIN_CHARS:
        return by_run_id
    return [each for each in known if each.is_named(name)]


def _jobs_named(name: str, known: list[Identity]) -> Iterator[list[Identity]]:
    """The known jobs that `name` means, each with all of its known agents, newest first."""
    meant = _named(name, known)
    alike = [each for each in known if each.run_id == meant[0].run_id] if meant else []
    directories = {each.directory for each in meant}
    return (job for job in _jobs(alike) if any(each.directory in directories for each in job))


def jobs_named(name: str) -> list[list[str]]:
    """The directories of each known job that `name` means, as in `find_run`, newest first."""
    return [[each.directory for each in job] for job in _jobs_named(name, _known())]


def read_node(directory: str) -> Node:
    """The part of a job that a directory records.

    Raises:
        InputError: it holds no event log.
    """
    log = read_log(RunDirectory(directory))
    return node_of(log, os.path.abspath(directory), presence_of(*agent_of(log)))


def _jobs(identities: list[Identity]) -> Iterator[list[Identity]]:
    """One list per job, in the order of its first agent. Logs are read only where ids do not decide."""
    taken: set[str] = set()
    for identity in identities:
        if identity.directory in taken:
            continue
        left = [each for each in identities if each.directory not in taken and each is not identity]
        job = [identity, *_others(identity, left)]
        taken.update(each.directory for each in job)
        yield job


def _others(identity: Identity, candidates: Iterable[Identity]) -> list[Identity]:
    """Those of `candidates` that were in the same job."""
    if identity.job:
        return [each for each in candidates if each.job == identity.job]
    if identity.nodes <= 1:
        return []  # a job of one node
    alike = [each for each in candidates if not each.job and each.nodes > 1 and each.run_id == identity.run_id]
    own = _readable([identity])
    if not own or not alike:
        return []
    chosen = {node.directory for node in together(own[0], _readable(alike))}
    return [each for each in alike if os.path.abspath(each.directory) in chosen]


def _readable_with_siblings(job: list[Identity]) -> list[Node]:
    """The agents of a known job, and those of other machines whose directories are beside the first one's."""
    seen = {os.path.realpath(each.directory) for each in job}
    siblings = [each for each in _beside(job[0]) if os.path.realpath(each.directory) not in seen]
    return _readable([*job, *_others(job[0], siblings)]) or [read_node(job[0].directory)]  # raises, saying why


def _readable(identities: Iterable[Identity]) -> list[Node]:
    """The readable nodes: one that is gone, or that we may not read, does not hide the others."""
    nodes: list[Node] = []
    for identity in identities:
        with suppress(InputError):
            nodes.append(read_node(identity.directory))
    return nodes


def _beside(identity: Identity) -> list[Identity]:
    """The logs beside this one that have the same run id, as those of the job's other nodes do."""
    return _identified(RunDirectory(identity.directory).siblings())


def _known() -> list[Identity]:
    return _identified(map(RunDirectory, known_runs()))


def _identified(runs: Iterable[RunDirectory]) -> list[Identity]:
    return [identity for each in runs if (identity := identity_of(each)) is not None]


def _part_in(directory: str) -> Run:
    node = read_node(directory)
    identity = identity_of(RunDirectory(node.directory))
    others = [] if identity is None or not identity.job else _others(identity, _beside(identity))
    if not others:
        return run_of([node])
    name = node.job[:SHOWN_ID_CHARS] if node.directory in known_runs() else repr(os.path.dirname(node.directory))
    note = f"This shows one agent. The job has {len(others)} more: holdfast report {name}"
    return run_of([node], [note])


def _newest_in(directory: str) -> Run:
    try:
        found = runs_in(directory)
    except OSError as error:
        raise InputError(f"{directory!r} cannot be read: {error.strerror}") from error
    if not found:
        raise InputError(f"{directory!r} is not the directory of a run and contains none: no {EVENTS} in it")
    # Times of one machine are in order. Across machines they only decide which job is shown.
    identities = sorted(_identified(found), key=lambda each: each.started_at, reverse=True)
    jobs = _jobs(identities)
    nodes: list[Node] = []
    while not nodes:
        job = next(jobs, None)
        if job is None:
            read_node(found[0].path)  # raises, saying why
            raise InputError(f"no event log in {directory!r} can be read")
        nodes = _readable(job)
    others = sum(1 for _ in jobs)
    return run_of(nodes, [_several(others, "are in this directory")] if others else [])


def _several(others: int, are: str) -> str:
    jobs = "1 more job" if others == 1 else f"{others} more jobs"
    are = are if others > 1 else are.replace("have ", "has ").replace("are ", "is ")
    return f"{jobs} {are}; this is the newest. To see another, name its directory or its job id (holdfast runs)."
