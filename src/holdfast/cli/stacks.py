"""``holdfast stacks``: where every worker of a run is right now."""

from __future__ import annotations

import errno
import os
import select
import stat
import time
from argparse import ArgumentParser

from holdfast.agent.requests import NAME, STACKS
from holdfast.cli.exits import show
from holdfast.errors.tree import InputError, UserError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import NoReturn

PROG = "holdfast stacks"
DESCRIPTION = """Show where every worker of a run is right now: the Python stacks of all threads of all ranks on all
nodes. Ranks at the same place are shown together, and the one that is not where the others are comes first.
Nothing is stopped for it."""

ANSWER_MAX_S = 90.0
"""How long an agent has to answer. It takes seconds, also with many nodes of which some do not answer it."""

STEP_S = 0.05
"""How often the answer's file is looked for."""

NOT_RUNNING = (errno.ENXIO, errno.ENOENT, errno.ENOTDIR)
"""What opening the pipe fails with where no agent reads it."""


def main(args: Sequence[str]) -> None:
    """Do what the command line says.

    Raises:
        InputError: there is no such run, or it does not run here.
        UserError: it did not answer.
    """
    options = _parser().parse_args(list(args))
    run_dir, fd = _open(options.run)
    try:
        name = f"{time.strftime('%Y%m%dT%H%M%S')}-{os.urandom(4).hex()}"
        os.write(fd, f"{STACKS} {name}\n".encode())
        _await(run_dir, name, fd)
    except (BrokenPipeError, BlockingIOError):
        raise UserError(f"{PROG}: the run in {run_dir} takes no requests any more") from None
    finally:
        os.close(fd)
    _show(run_dir, name, as_json=options.json)


def _parser() -> ArgumentParser:
    parser = _Parser(prog=PROG, usage=f"{PROG} [--json] [RUN]", description=DESCRIPTION)
    meaning = "a run's directory, or the id of a run that you started here (default: the newest that runs)"
    parser.add_argument("run", metavar="RUN", nargs="?", default="", help=meaning)
    parser.add_argument("--json", action="store_true", help="for programs")
    return parser


class _Parser(ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def _open(run: str) -> tuple[str, int]:
    """The directory of the run that is meant, and the pipe that its agent reads."""
    directories = list(_candidates(run))
    for directory in directories:
        path = os.path.join(directory, NAME)
        try:
            if not stat.S_ISFIFO(os.lstat(path).st_mode):
                continue
            return directory, os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            if error.errno not in NOT_RUNNING:
                raise InputError(f"{path} cannot be opened: {error.strerror}") from error
    if not run:
        raise InputError("no run of yours is running on this machine; name the directory of one")
    raise InputError(f"{run!r} is not running on this machine; ask where one of its agents runs")


def _candidates(run: str) -> Iterable[str]:
    """The directories that may be meant, the newest first."""
    from holdfast.events.run_index import known_runs  # noqa: PLC0415 - not for --help

    if not run:
        return known_runs()
    if os.path.isdir(run):
        below = [entry for entry in os.scandir(run) if entry.is_dir(follow_symlinks=False)]
        newest_first = sorted(below, key=lambda entry: entry.stat().st_mtime, reverse=True)
        return [os.path.abspath(run), *(os.path.abspath(entry.path) for entry in newest_first)]
    found = [directory for directory in known_runs() if _run_id(directory) == run]
    if not found:
        raise InputError(f"{run!r} is no run's directory, and no run of this id is known here")
    return found


def _run_id(directory: str) -> str:
    """The run id in the first event of a run; "" if there is none."""
    import json  # noqa: PLC0415 - not for --help

    try:
        with open(os.path.join(directory, "events.jsonl"), encoding="utf-8") as file:
            return str(json.loads(file.readline())["metadata"]["run_id"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _await(run_dir: str, name: str, fd: int) -> None:
    """Wait until the answer is there, as long as somebody may write it."""
    from holdfast.stacks.dump import result_path  # noqa: PLC0415 - not for --help

    path = result_path(run_dir, name, "txt")  # it is written last
    poll = select.poll()
    poll.register(fd, 0)  # an error is told of unasked: nobody reads any more
    deadline = time.monotonic() + ANSWER_MAX_S
    has_left = False
    while not os.path.exists(path):
        if has_left:
            raise UserError(f"{PROG}: the run in {run_dir} ended before it answered")
        if time.monotonic() > deadline:
            raise UserError(
                f"{PROG}: the agent of {run_dir} did not answer within {ANSWER_MAX_S:.0f} s: it is stopped, "
                "or no workers run, as nodes still meet or end"
            )
        has_left = bool(poll.poll(STEP_S * 1000))  # the answer may have come just before


def _show(run_dir: str, name: str, *, as_json: bool) -> None:
    from holdfast.cli.report import has_colours  # noqa: PLC0415 - not for --help
    from holdfast.stacks.dump import read, result_path  # noqa: PLC0415 - likewise
    from holdfast.stacks.render import render  # noqa: PLC0415 - likewise

    path = result_path(run_dir, name, "json")
    if as_json:
        with open(path, encoding="utf-8") as file:
            show(file.read().rstrip("\n"))
        return
    show(f"{render(read(path), colour=has_colours())}\nkept in {result_path(run_dir, name, 'txt')}")
