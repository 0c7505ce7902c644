"""``holdfast stacks``: show where every worker of a run is right now."""

from __future__ import annotations

import errno
import os
import select
import stat
import time

from holdfast.agent.requests import NAME, STACKS
from holdfast.cli.exits import show
from holdfast.cli.owners import warn_of_other_owners
from holdfast.cli.subcommand_parser import SubcommandParser
from holdfast.errors.notice import say
from holdfast.errors.tree import InputError, UserError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PROG = "holdfast stacks"
DESCRIPTION = """Show where every worker of a run is right now: the Python stacks of all threads of all ranks on all
nodes. Ranks at the same place are shown together, and the one that is not where the others are comes first.
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
    run_dir, fd = _open(options.run)
    try:
        warn_of_other_owners(PROG, [run_dir])
        _tell_of_others(options.run, run_dir)
        name = f"{time.strftime('%Y%m%dT%H%M%S')}-{os.urandom(4).hex()}"
        os.write(fd, f"{STACKS} {name}\n".encode())
        _await(run_dir, name, fd)
    except (BrokenPipeError, BlockingIOError):
        raise UserError(f"{PROG}: the run in {run_dir} takes no requests any more") from None
    finally:
        os.close(fd)
    _show(run_dir, name, as_json=options.json)


def _parser() -> SubcommandParser:
    parser = SubcommandParser(prog=PROG, usage=f"{PROG} [--json] [RUN]", description=DESCRIPTION)
    meaning = "a run's directory, or the run id or job id of one that you started here (default: the newest that runs)"
    parser.add_argument("run", metavar="RUN", nargs="?", default="", help=meaning)
    parser.add_argument("--json", action="store_true", help="for programs")
    return parser


def _open(run: str) -> tuple[str, int]:
    """Find the run's directory and open the pipe that its agent reads."""
    for directory in _candidates(run):
        fd = _open_pipe(directory)
        if fd is not None:
            return directory, fd
    if not run:
        raise InputError("no run of yours is running on this machine; name the directory of one")
    raise InputError(f"{run!r} is not running on this machine; ask where one of its agents runs")


def _open_pipe(directory: str) -> int | None:
    """Open the pipe in an agent's directory; None if no agent reads it."""
    path = os.path.join(directory, NAME)
    try:
        if not stat.S_ISFIFO(os.lstat(path).st_mode):
            return None
        return os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in NOT_RUNNING:
            raise InputError(f"{path} cannot be opened: {error.strerror}") from error
    return None


def _tell_of_others(run: str, run_dir: str) -> None:
    """Print a notice on stderr if other jobs of this run id run here, too."""
    if not run or os.path.isdir(run):
        return
    from holdfast.report.finding import jobs_named

    others = 0
    for directories in jobs_named(run):
        if run_dir not in directories:
            fds = [fd for directory in directories if (fd := _open_pipe(directory)) is not None]
            others += bool(fds)
            for fd in fds:
                os.close(fd)
    if others:
        jobs = "1 more job runs" if others == 1 else f"{others} more jobs run"
        say(f"{PROG}: {jobs} here as {run!r}; this is {run_dir}. To see another, name its directory.")


def _candidates(run: str) -> Iterable[str]:
    """The directories that `run` may mean, the newest first."""
    from holdfast.events.run_index import known_runs

    if not run:
        return known_runs()
    if os.path.isdir(run):
        return [os.path.abspath(run), *_newest_below(run)]
    from holdfast.report.finding import jobs_named

    found = [directory for job in jobs_named(run) for directory in job]
    if not found:
        raise InputError(f"{run!r} is no run's directory, and no run of this id is known here")
    return found


def _newest_below(directory: str) -> list[str]:
    try:
        below = [entry for entry in os.scandir(directory) if entry.is_dir(follow_symlinks=False)]
        newest_first = sorted(below, key=lambda entry: entry.stat().st_mtime, reverse=True)
    except OSError as error:
        raise InputError(f"{directory!r} cannot be read: {error.strerror}") from error
    return [os.path.abspath(entry.path) for entry in newest_first]


def _await(run_dir: str, name: str, fd: int) -> None:
    """Wait for the answer, as long as an agent can still write it."""
    from holdfast.stacks.dump import result_path

    path = result_path(run_dir, name, "txt")  # this file is written last
    poll = select.poll()
    poll.register(fd, 0)  # poll always reports errors: here, that nobody reads any more
    deadline = time.monotonic() + ANSWER_MAX_S
    has_left = False
    while not os.path.exists(path):
        if has_left:
            raise UserError(f"{PROG}: the run in {run_dir} ended before it answered")
        if time.monotonic() > deadline:
            raise UserError(
                f"{PROG}: the agent of {run_dir} did not answer within {ANSWER_MAX_S:.0f} s: it is stopped, "
                "or no workers run, as nodes still meet"
            )
        has_left = bool(poll.poll(STEP_S * 1000))  # check once more: the answer may have arrived just before


def _show(run_dir: str, name: str, *, as_json: bool) -> None:
    from holdfast.cli.report import has_colours
    from holdfast.stacks.dump import dump_json, read, result_path
    from holdfast.stacks.render import render

    path = result_path(run_dir, name, "json")
    try:
        dump = read(path)
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{PROG}: the answer in {path!r} cannot be read: {error}") from None
    if as_json:
        show(dump_json(dump))
    else:
        colours = has_colours()
        show(f"{render(dump, colour=colours)}\nkept in {result_path(run_dir, name, 'txt')}", colours=colours)
