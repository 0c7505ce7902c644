"""Find the directories of a job, and read them."""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import islice

from holdfast.errors.tree import InputError
from holdfast.events.run_index import known_runs, newest_has_no_directory
from holdfast.report.entries import Identity, identity_of, read_log, skim_log
from holdfast.report.joining import run_of, together
from holdfast.report.liveness import presence_of
from holdfast.report.timeline import agent_of, node_of
from holdfast.report.units import SHOWN_ID_CHARS
from holdfast.run_directory import EVENTS, RunDirectory, runs_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from holdfast.report.entries import Log
    from holdfast.report.records import Node, Run

NAME_MIN_CHARS = 4
"""How many characters of a job's id are enough to name it."""

JOB_MAX_BYTES = 256 << 20
"""How much of all logs of a job is read together. The agents beyond it are left out."""

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
    return _run_with_siblings(newest, notes, read_log)


def recent_runs(number: int) -> list[Run]:
    """The newest jobs that are known here, at most `number`, newest first."""
    runs: list[Run] = []
    for job in _jobs(_known()):
        if len(runs) == number:
            break
        with suppress(InputError):  # the log is gone, or we may not read it
            runs.append(_run_with_siblings(job, (), skim_log))
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
    return _node_in(directory, read_log(RunDirectory(directory)))


def _node_in(directory: str, log: Log) -> Node:
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
    """Those of `candidates` that were in the same job. Other users can claim to be: theirs are not opened."""
    candidates = [each for each in candidates if each.owner in (0, os.geteuid(), identity.owner)]
    if identity.job:
        return [each for each in candidates if each.job == identity.job]
    if identity.nodes <= 1:
        return []  # a job of one node
    alike = [each for each in candidates if not each.job and each.nodes > 1 and each.run_id == identity.run_id]
    own, _ = _readable([identity], skim_log)
    if not own or not alike:
        return []
    chosen = {node.directory for node in together(own[0], _readable(alike, skim_log)[0])}
    return [each for each in alike if os.path.abspath(each.directory) in chosen]


def _run_with_siblings(job: list[Identity], notes: Iterable[str], read: Callable[[RunDirectory], Log]) -> Run:
    """A known job: its agents, and those of other machines whose directories are beside the first one's."""
    seen = {os.path.realpath(each.directory) for each in job}
    siblings = [each for each in _beside(job[0]) if os.path.realpath(each.directory) not in seen]
    nodes, left_out = _readable([*job, *_others(job[0], siblings)], read)
    return run_of(nodes or [read_node(job[0].directory)], [*notes, *left_out])  # raises, saying why


def _readable(identities: list[Identity], read: Callable[[RunDirectory], Log]) -> tuple[list[Node], list[str]]:
    """The readable nodes, and a note if there are more than `JOB_MAX_BYTES` of them.

    A node that is gone, or that we may not read, does not hide the others.
    """
    nodes: list[Node] = []
    left = JOB_MAX_BYTES
    for place, identity in enumerate(identities):
        if left <= 0:
            return nodes, [_not_read(len(identities) - place)]
        with suppress(InputError):
            log = read(RunDirectory(identity.directory))
            left -= log.read_bytes
            nodes.append(_node_in(identity.directory, log))
    return nodes, []


def _not_read(agents: int) -> str:
    them = "1 more agent was" if agents == 1 else f"{agents} more agents were"
    return f"{them} not read: the event logs of this job are longer than {JOB_MAX_BYTES:,} bytes together."


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
    notes: list[str] = []
    while not nodes:
        job = next(jobs, None)
        if job is None:
            read_node(found[0].path)  # raises, saying why
            raise InputError(f"no event log in {directory!r} can be read")
        nodes, notes = _readable(job, read_log)
    others = sum(1 for _ in jobs)
    return run_of(nodes, [*([_several(others, "are in this directory")] if others else []), *notes])


def _several(others: int, are: str) -> str:
    jobs = "1 more job" if others == 1 else f"{others} more jobs"
    are = are if others > 1 else are.replace("have ", "has ").replace("are ", "is ")
    return f"{jobs} {are}; this is the newest. To see another, name its directory or its job id (holdfast runs)."
