"""``holdfast stacks``: show where every worker of a run is right now."""

from __future__ import annotations

import errno
import os
import select
import stat
import time

from holdfast.agent.requests import STACKS
from holdfast.cli.exits import show
from holdfast.cli.owners import warn_of_other_owners
from holdfast.cli.subcommand_parser import SubcommandParser
from holdfast.errors.notice import say
from holdfast.errors.tree import InputError, UserError
from holdfast.run_directory import RunDirectory, stacks_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

PROG = "holdfast stacks"
DESCRIPTION = """Show where every worker of a run is right now: the Python stacks of all threads of all ranks on all
nodes. Ranks at the same place are shown together; a rank in a different place than the others comes first.
Nothing is stopped for it."""

ANSWER_MAX_S = 90.0
"""How long an agent has to answer. It needs seconds, even with many nodes of which some do not answer."""

STEP_S = 0.05
"""The interval between checks for the answer's file."""

NOT_RUNNING = (errno.ENXIO, errno.ENOENT, errno.ENOTDIR)
"""The errors of opening the pipe if no agent reads it."""


def main(args: Sequence[str]) -> None:
    """Run ``holdfast stacks`` with these arguments.

    Raises:
        InputError: there is no such run, or it does not run here.
        UserError: the agent did not answer.
    """
    options = _parser().parse_args(list(args))
    jobs = _jobs(options.run)
    run, fd = _open(options.run, jobs)
    try:
        warn_of_other_owners(PROG, [run.path])
        if options.run:
            _tell_of_others(options.run, run, jobs)
        name = stacks_name()
        os.write(fd, f"{STACKS} {name}\n".encode())
        _await(run, name, fd)
    except (BrokenPipeError, BlockingIOError):
        raise UserError(f"{PROG}: the run in {run.path} no longer accepts requests") from None
    finally:
        os.close(fd)
    _show(run, name, as_json=options.json)


def _parser() -> SubcommandParser:
    parser = SubcommandParser(prog=PROG, usage=f"{PROG} [--json] [RUN]", description=DESCRIPTION)
    meaning = (
        "a run's directory, or the run id or job id of one that you started here (default: the newest running one)"
    )
    parser.add_argument("run", metavar="RUN", nargs="?", default="", help=meaning)
    parser.add_argument("--json", action="store_true", help="print the stacks as JSON")
    return parser


def _open(name: str, jobs: list[list[RunDirectory]]) -> tuple[RunDirectory, int]:
    """Open the pipe of the first run whose agent reads it."""
    for run in (run for job in jobs for run in job):
        fd = _open_pipe(run)
        if fd is not None:
            return run, fd
    if not name:
        raise InputError("none of your runs is active on this machine; name a run's directory")
    raise InputError(f"{name!r} is not running on this machine; run this command where one of its agents runs")


def _open_pipe(run: RunDirectory) -> int | None:
    """Open the pipe in an agent's directory; None if no agent reads it."""
    path = run.requests
    try:
        if not stat.S_ISFIFO(os.lstat(path).st_mode):
            return None
        return os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in NOT_RUNNING:
            raise InputError(f"{path} cannot be opened: {error.strerror}") from error
    return None


def _tell_of_others(name: str, run: RunDirectory, jobs: list[list[RunDirectory]]) -> None:
    """Print a notice on stderr if other jobs of this run id run here, too."""
    others = 0
    for job in jobs:
        if run not in job:
            fds = [fd for other in job if (fd := _open_pipe(other)) is not None]
            others += bool(fds)
            for fd in fds:
                os.close(fd)
    if others:
        running = "1 more job runs" if others == 1 else f"{others} more jobs run"
        say(f"{PROG}: {running} here as {name!r}; this is {run.path}. To see another, name its directory.")


def _jobs(name: str) -> list[list[RunDirectory]]:
    """The jobs that `name` may mean, the newest first. All runs in a directory count as one job; so do all known."""
    from holdfast.events.run_index import known_runs

    if not name:
        return [[RunDirectory(path) for path in known_runs()]]
    if os.path.isdir(name):
        return [[RunDirectory(path) for path in (os.path.abspath(name), *_newest_below(name))]]
    from holdfast.report.finding import jobs_named

    found = [[RunDirectory(path) for path in job] for job in jobs_named(name)]
    if not found:
        raise InputError(f"{name!r} is neither a run's directory nor the id of a known run")
    return found


def _newest_below(directory: str) -> list[str]:
    try:
        below = [entry for entry in os.scandir(directory) if entry.is_dir(follow_symlinks=False)]
        newest_first = sorted(below, key=lambda entry: entry.stat().st_mtime, reverse=True)
    except OSError as error:
        raise InputError(f"{directory!r} cannot be read: {error.strerror}") from error
    return [os.path.abspath(entry.path) for entry in newest_first]


def _await(run: RunDirectory, name: str, fd: int) -> None:
    """Wait for the answer, as long as an agent can still write it."""
    path = run.stacks(name, "txt")  # this file is written last
    poll = select.poll()
    poll.register(fd, 0)  # poll always reports errors: here, that nobody reads any more
    deadline = time.monotonic() + ANSWER_MAX_S
    has_left = False
    while not os.path.exists(path):
        if has_left:
            raise UserError(f"{PROG}: the run in {run.path} ended before it answered")
        if time.monotonic() > deadline:
            raise UserError(
                f"{PROG}: the agent of {run.path} did not answer within {ANSWER_MAX_S:.0f} s: it is stopped, "
                "or it still waits for other nodes and has no workers"
            )
        has_left = bool(poll.poll(STEP_S * 1000))  # check once more: the answer may have arrived just before


def _show(run: RunDirectory, name: str, *, as_json: bool) -> None:
    from holdfast.cli.report import has_colours
    from holdfast.stacks.dump import dump_json, read
    from holdfast.stacks.render import render

    path = run.stacks(name, "json")
    try:
        dump = read(path)
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{PROG}: the answer in {path!r} cannot be read: {error}") from None
    if as_json:
        show(dump_json(dump))
    else:
        colours = has_colours()
        show(f"{render(dump, colour=colours)}\nkept in {run.stacks(name, 'txt')}", colours=colours)
