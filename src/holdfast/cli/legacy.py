"""The command line that was there before torchrun's: the script also gets ``--local-rank=N``, unless ``--use-env``."""

from __future__ import annotations

import sys

from holdfast.cli.exits import exit_code
from holdfast.cli.parser import PROG, get_args_parser
from holdfast.cli.running import run
from holdfast.errors.tree import InputError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

__all__ = ["get_args_parser", "launch", "main", "parse_args", "run"]


def parse_args(args: Sequence[str] | None) -> Namespace:
    """Parse a command line of ``holdfast run`` that may also have ``--use-env``. By default it is this process's."""
    parser = get_args_parser()
    parser.add_argument(
        "--use-env",
        "--use_env",
        action="store_true",
        help="do not pass --local-rank to the script; it reads LOCAL_RANK from its environment",
    )
    return parser.parse_args(args)


def launch(args: Namespace) -> None:
    """Run the job that `args` describes.

    Raises:
        InputError: a value cannot be used, or a program that is not Python would get ``--local-rank``.
    """
    if args.no_python and not args.use_env:
        raise InputError("--no-python: the program would get --local-rank, which only a script expects; add --use-env")
    run(args)


def main(args: Sequence[str] | None = None) -> None:
    """Run the job that a command line describes, by default this process's, as `holdfast.cli.main` does."""
    import warnings

    warnings.warn(
        "this form of the command passes --local-rank to the script; "
        "use holdfast run, and read LOCAL_RANK from the environment",
        FutureWarning,
        stacklevel=2,
    )
    if args is not None:
        launch(parse_args(args))
        return
    code = exit_code(lambda: launch(parse_args(sys.argv[1:])), PROG)
    if code:
        sys.exit(code)
