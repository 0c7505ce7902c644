"""``holdfast alias``: a command ``torchrun`` that is holdfast."""

from __future__ import annotations

import os
import sys
from argparse import RawDescriptionHelpFormatter

from holdfast.cli.exits import show
from holdfast.cli.subcommand_parser import SubcommandParser
from holdfast.errors.tree import InputError
from holdfast.files import NotRegularError, read_regular, write_whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

PROG = "holdfast alias"
DESCRIPTION = """Put a command torchrun into a directory. It is holdfast run, with the Python that runs this command.

  holdfast alias ~/bin"""
EPILOG = """The directory has to exist, and should come first in PATH. torchrun --version tells which one
is found. A torchrun that holdfast alias has not made is left alone without --force."""

NAME = "torchrun"
MARK = b"# made by holdfast alias"
"""The beginning of the second line of every alias: only files that have it are replaced without --force."""

MODE = 0o755
LOOK_MAX_BYTES = 4096
"""How much of an existing file is read to see who made it."""


def main(args: Sequence[str]) -> None:
    """Run ``holdfast alias`` with these arguments.

    Raises:
        InputError: the directory does not exist, or has a torchrun of somebody else's.
    """
    options = _parser().parse_args(list(args))
    path = os.path.join(options.directory, NAME)
    if not os.path.isdir(options.directory):
        raise InputError(f"{options.directory!r} is not a directory; make it, or choose one that is in PATH")
    if not options.force and os.path.lexists(path) and not _is_ours(path):
        raise InputError(f"{path!r} exists, and holdfast alias has not made it; --force replaces it")
    if not sys.executable:
        raise InputError("this Python does not know where it is; start it by its full path")
    try:
        write_whole(path, _script(sys.executable), mode=MODE)
    except NotRegularError as error:
        raise InputError(f"{path!r} is not a file; remove it first") from error
    except OSError as error:
        raise InputError(f"{path!r} cannot be written: {error.strerror}") from error
    show(f"{path} runs holdfast with {sys.executable}{_remark(path)}")


def _script(python: str) -> bytes:
    from shlex import quote

    line = f'exec {quote(python)} -P -m holdfast.run "$@"\n'  # -P: nothing is imported from the working directory
    return b"#!/bin/sh\n" + MARK + b": torchrun is holdfast run\n" + os.fsencode(line)


def _is_ours(path: str) -> bool:
    try:
        lines = read_regular(path, LOOK_MAX_BYTES).splitlines()
    except OSError:
        return False
    return len(lines) > 1 and lines[1].startswith(MARK)


def _remark(path: str) -> str:
    """What is left to do until the name means this file."""
    from shutil import which

    found = which(NAME)
    if found is not None and os.path.exists(found) and os.path.samefile(found, path):
        return ""
    directory = os.path.dirname(os.path.abspath(path))
    return f"\nput {directory} first in PATH: {NAME} is {found or 'not found'} now"


def _parser() -> SubcommandParser:
    parser = SubcommandParser(
        prog=PROG, description=DESCRIPTION, epilog=EPILOG, formatter_class=RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", help="where torchrun goes")
    parser.add_argument("--force", action="store_true", help="replace a torchrun that holdfast alias has not made")
    return parser
