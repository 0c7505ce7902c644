"""The commands and their options, as tables: from the parsers that the commands themselves use."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING
from unittest import mock

from holdfast.cli.command import COMMANDS, _function
from holdfast.cli.options import GROUPS
from markup import code, table

if TYPE_CHECKING:
    from holdfast.cli.options import Option


_OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")


class _FoundError(Exception):
    """Carries a parser out of the command that made it."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        super().__init__(parser.prog)
        self.parser = parser


def parser_of(name: str) -> argparse.ArgumentParser:
    """The parser of a command, taken at the moment at which the command would use it."""

    def found(self: argparse.ArgumentParser, *_args: object, **_options: object) -> None:
        raise _FoundError(self)

    with mock.patch.object(argparse.ArgumentParser, "parse_args", found):
        try:
            _function(name)([])
        except _FoundError as carrier:
            return carrier.parser
    raise AssertionError(f"holdfast {name} has not parsed its arguments")


def commands() -> str:
    """Every command, and what it is good for."""
    return table(
        ["command", "does"],
        ([f"[`holdfast {name}`](#holdfast-{name})", summary] for name, (_, _, summary) in COMMANDS.items()),
    )


def command(name: str) -> str:
    """All of a command but ``run``, whose options have a table of their own."""
    parser = parser_of(name)
    rows = [
        [code(_words(action)), _default(action.default), _marked(_help(parser, action))]
        for action in parser._actions  # noqa: SLF001 - argparse has no other way to ask
        if not isinstance(action, argparse._HelpAction)  # noqa: SLF001 - likewise
    ]
    usage = " ".join(parser.format_usage().split()).removeprefix("usage: ")
    return f"```text\n{usage}\n```\n\n{table(['argument', 'default', 'meaning'], rows)}"


def others() -> list[str]:
    """The commands but ``run``."""
    return [name for name in COMMANDS if name != "run"]


def run_options() -> str:
    """The options of ``holdfast run``, under the headings of its help."""
    parts = []
    for title, options in GROUPS.items():
        rows = ([_names(option), _default(option.default), _marked(option.help)] for option in options)
        parts.append(
            f"### {title[0].upper()}{title[1:]}\n\n{table(['option, and its variable', 'default', 'meaning'], rows)}"
        )
    return "\n\n".join(parts)


def _names(option: Option) -> str:
    names = ", ".join(code(name) for name in option.names)
    value = f" `{option.metavar}`" if option.metavar else ""
    variable = f"<br>{code(f'PET_{option.dest.upper()}')}" if option.has_variable else ""
    return f"{names}{value}{' (new)' if option.is_ours else ''}{variable}"


def _default(default: object) -> str:
    if default is None or default is False or default is argparse.SUPPRESS or default in ("", []):
        return ""
    return ", ".join(map(code, f"{default}".split(",")))


def _marked(meaning: str) -> str:
    """A help text with its options as code."""
    return _OPTION.sub(lambda found: code(found[0]), meaning)


def _words(action: argparse.Action) -> str:
    names = [name for name in action.option_strings if "_" not in name]
    value = str(action.metavar or (action.dest.upper() if action.nargs != 0 else ""))
    if action.nargs == "?" and names:
        value = f"[{value}]"
    return " ".join(filter(None, [", ".join(names), value]))


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    formatter = argparse.HelpFormatter(parser.prog)
    return formatter._expand_help(action) if action.help else ""  # noqa: SLF001 - fills in %(default)s
