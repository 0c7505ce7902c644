"""``holdfast exec``: run a program in which torch's launcher is holdfast's."""

from __future__ import annotations

import os
import signal
from argparse import RawDescriptionHelpFormatter

from holdfast.cli.subcommand_parser import SubcommandParser
from holdfast.errors.tree import InputError
from holdfast.signals import IGNORED_BY_PYTHON

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import NoReturn

PROG = "holdfast exec"
DESCRIPTION = """Run a program that starts its workers with torch's launcher, and have it use holdfast instead. In the
program and in the Python programs that it starts, torch.distributed.run, launch, launcher and
elastic are holdfast's. Nothing is changed on disk.

  holdfast exec accelerate launch --multi_gpu --num_processes 8 train.py
  holdfast exec -- python -m torch.distributed.run --nproc-per-node 8 train.py"""
EPILOG = """The exit code is the command's. It is 127 if there is no such command, 126 if it cannot be
executed, and 2 for bad input."""

VARIABLE = "HOLDFAST_EXEC"
"""Is 1 below ``holdfast exec``. With 0, Python programs find torch's own launcher again."""

DIRECTORY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "startup")

NOT_EXECUTABLE = 126
NOT_FOUND = 127


def main(args: Sequence[str]) -> NoReturn:
    """Become the command in `args`, which may follow upon ``--``.

    Raises:
        InputError: there is no command, or the environment cannot carry the import hook.
        SystemExit: with 127 or 126, if the command cannot be run.
    """
    words = list(args)
    has_options = bool(words) and words[0].startswith("-") and words[0] != "--"
    parser = _parser()
    parser.parse_args(words[:1] if has_options else [])
    command = words[1:] if words[:1] == ["--"] else words
    if not command:
        parser.error("no command given; write it after exec, as in: holdfast exec python train.py")
    become(parser, command, with_hook(os.environ))


def with_hook(env: Mapping[str, str]) -> dict[str, str]:
    """`env` plus the import hook, for a program and its children.

    Raises:
        InputError: holdfast is installed in a directory that PYTHONPATH cannot hold.
    """
    if os.pathsep in DIRECTORY:
        raise InputError(f"holdfast is installed in {DIRECTORY!r}, and PYTHONPATH cannot hold a directory with a colon")
    entries = [entry for entry in env.get("PYTHONPATH", "").split(os.pathsep) if entry != DIRECTORY]
    path = os.pathsep.join([DIRECTORY, *entries]) if any(entries) else DIRECTORY
    return {**env, "PYTHONPATH": path, VARIABLE: "1"}


def become(parser: SubcommandParser, command: list[str], env: Mapping[str, str]) -> NoReturn:
    """Replace this process by `command`. It gets the signals that this process would get, and has its parent."""
    for signum in IGNORED_BY_PYTHON:
        signal.signal(signum, signal.SIG_DFL)
    try:
        os.execvpe(command[0], command, env)  # noqa: S606 - a program of the user's choice, and no shell
    except OSError as error:
        is_missing = isinstance(error, FileNotFoundError | NotADirectoryError)
        hint = f"; did you mean 'python {command[0]}'?" if command[0].endswith(".py") else ""
        reason = "no such command" if is_missing else error.strerror
        parser.leave(NOT_FOUND if is_missing else NOT_EXECUTABLE, f"{command[0]!r}: {reason}{hint}")
    except ValueError as error:  # an empty name, or a NUL in it
        parser.leave(NOT_FOUND, f"{command[0]!r}: {error}")


def _parser() -> SubcommandParser:
    parser = SubcommandParser(
        prog=PROG,
        usage=f"{PROG} [--] command [arguments]",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", nargs="?", help="the program; it is looked for in PATH")
    parser.add_argument("arguments", nargs="*", help="its arguments")
    return parser
