"""The parsers of all commands: bad input gets one line and exit code 2, and cannot control the terminal."""

from __future__ import annotations

import sys
from argparse import ArgumentParser

from holdfast.errors.secret import hidden

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn


class VisibleParser(ArgumentParser):
    """An ArgumentParser that escapes the arguments and variables that it quotes."""

    color = False  # Python 3.14 and later would colour it

    def _print_message(self, message: str, file: Any = None) -> None:
        if file is not None and file is sys.stdout:
            from holdfast.cli.exits import show

            show(message.removesuffix("\n"))  # argparse would hide that stdout cannot be written
            return
        from holdfast.errors.text import visible

        super()._print_message(visible(message), file or sys.stderr)

    def refuse(self, message: str) -> NoReturn:
        """Exit with a one-line message. It quotes the command line, but no secrets."""
        self.leave(2, f"{message} (see {self.prog} --help)")

    def leave(self, code: int, message: str) -> NoReturn:
        """Exit with this code and a one-line message, without secrets."""
        self.exit(code, f"{self.prog}: error: {hidden(' '.join(message.split()))}\n")


class SubcommandParser(VisibleParser):
    """A parser that does not print its usage with an error."""

    def error(self, message: str) -> NoReturn:
        self.refuse(message)
