"""The parser of ``holdfast run``, built from the table of options."""

from __future__ import annotations

import os
from argparse import REMAINDER, ArgumentError, RawDescriptionHelpFormatter
from contextlib import suppress

from holdfast.cli.environment import as_given, check_env, env
from holdfast.cli.options import GROUPS, OURS
from holdfast.cli.subcommand_parser import VisibleParser

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Action, ArgumentParser, Namespace
    from collections.abc import Sequence
    from typing import Any, NoReturn

    from holdfast.cli.options import Option

PROG = "holdfast run"
DESCRIPTION = """Start the workers of a training program on this machine and keep them running.

  holdfast run --nproc-per-node 4 train.py --epochs 3
  holdfast run --nproc-per-node gpu --max-restarts 3 --tee 3 -m package.train"""
EPILOG = """Option names can be abbreviated and written with underscores. PET_NPROC_PER_NODE=4
in the environment sets the default of --nproc-per-node. Every option but
--logs-specs and --numa-binding has such a variable; a flag is on with 1, off with 0.

The exit code is 0 for success, 1 if workers failed, 2 for bad input, and
128 + n if signal n ended the job."""

HELP_MAX_COLUMNS = 110
HELP_FALLBACK_COLUMNS = 80
OPTION_MAX_COLUMNS = 30
COLUMNS_MAX_DIGITS = 9
"""A longer number is not a width."""

SIMILARITY_MIN = 0.75
"""How similar, by difflib's ratio, an unknown option must be to one that is suggested."""

_UNRECOGNIZED = "unrecognized arguments: "
"""The beginning of argparse's message about unknown options."""


def get_args_parser() -> ArgumentParser:
    """Build the parser. Its defaults come from the environment at this moment.

    Raises:
        InputError: the variable of a flag does not hold a whole number.
    """
    parser = _Parser(
        prog=PROG,
        usage=f"{PROG} [options] script [arguments]",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=_HelpFormatter,
        exit_on_error=False,
    )
    for title, options in GROUPS.items():
        group = parser.add_argument_group(title)
        for option in options:
            group.add_argument(*option.spellings, **_argparse_options(option))
    parser.add_argument("training_script", metavar="script", help="the program that every worker runs")
    rest = parser.add_argument(
        "training_script_args", metavar="arguments", nargs=REMAINDER, help="the arguments of the program"
    )
    rest.required = False  # otherwise the message about a missing script names it, too
    return parser


def parse_args(args: Sequence[str] | None) -> Namespace:
    """Parse the command line `args`, by default this process's. Exits with 2 if it cannot be parsed."""
    return get_args_parser().parse_args(args)


def _argparse_options(option: Option) -> dict[str, Any]:
    common = {"dest": option.dest, "help": option.help}
    if option.is_flag:
        return {**common, "action": check_env}
    if option.default not in (None, "", []):
        common["help"] += " (default: %(default)s)"
    return {
        **common,
        "action": env if option.has_variable else "store",
        "metavar": option.metavar,
        "default": option.default,
        "type": option.of_type,
    }


class _Parser(VisibleParser):
    """Reports a mistake in one line, and treats two spellings of an option as one."""

    # Both methods are overridden: the Python version decides which of them raises the error. argparse's are overloaded
    # by the type of `namespace`, which nobody here needs: hence the two "type: ignore".

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        try:
            return super().parse_args(args, namespace)
        except ArgumentError as problem:
            self.error(_one_line(problem))

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> tuple[Any, list[str]]:  # type: ignore[override]
        try:
            return super().parse_known_args(args, namespace)
        except ArgumentError as problem:
            self.error(_one_line(problem))

    def error(self, message: str) -> NoReturn:
        self.refuse(as_given(message) + _suggestion(message))

    def _get_option_tuples(self, option_string: str) -> list[Any]:
        """The options that a shortened name can mean.

        Two spellings of an option are one option, which only later versions of argparse know. Our options do not make a
        short name ambiguous that is unique in torchrun.
        """
        by_dest: dict[str, Any] = {}
        for match in super()._get_option_tuples(option_string):
            by_dest.setdefault(match[0].dest, match)
        return [match for dest, match in by_dest.items() if dest not in OURS] or list(by_dest.values())


def _suggestion(message: str) -> str:
    """The end of a message about an unknown option: the option that it looks like; "" if there is none."""
    unknown = message.removeprefix(_UNRECOGNIZED)
    if unknown == message:
        return ""
    from difflib import get_close_matches

    word = unknown.split()[0].partition("=")[0].replace("_", "-")
    names = [name for options in GROUPS.values() for option in options for name in option.spellings if "_" not in name]
    similar = get_close_matches(word, names, n=1, cutoff=SIMILARITY_MIN)
    return f"; did you mean {similar[0]}?" if similar else ""


def _one_line(problem: ArgumentError) -> str:
    """The message with one of the option's names, where argparse has all of them."""
    if problem.argument_name is None:
        return problem.message
    names = problem.argument_name
    name = next((name for name in names.split("/") if name.startswith("--")), names)
    return f"{name} {problem.message}"


class _HelpFormatter(RawDescriptionHelpFormatter):
    """Uses the width of the terminal, and shows one spelling of each option."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=OPTION_MAX_COLUMNS, width=_help_columns())

    def _format_action_invocation(self, action: Action) -> str:
        names = [name for name in action.option_strings if "_" not in name]
        if not names:
            return super()._format_action_invocation(action)
        return ", ".join(names) + (f" {action.metavar}" if action.metavar else "")


def _help_columns() -> int:
    # argparse would import shutil for this, which costs more than the rest of the help.
    wanted = os.environ.get("COLUMNS", "")
    columns = int(wanted) if wanted.isdecimal() and len(wanted) <= COLUMNS_MAX_DIGITS else 0
    if not columns:
        with suppress(OSError):
            columns = os.get_terminal_size().columns
    return min(columns or HELP_FALLBACK_COLUMNS, HELP_MAX_COLUMNS) - 2
