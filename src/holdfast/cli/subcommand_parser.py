"""The parsers of all commands: bad input gets one line and exit code 2, and nothing in it steers the terminal."""

from __future__ import annotations

import sys
from argparse import ArgumentParser

from holdfast.errors.secret import hidden

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn


class VisibleParser(ArgumentParser):
    """An ArgumentParser that quotes arguments and variables in a visible form, whatever is in them."""

    color = False  # Python 3.14 and later would paint it

    def _print_message(self, message: str, file: Any = None) -> None:
        from holdfast.errors.text import visible

        super()._print_message(visible(message), file or sys.stderr)

    def refuse(self, message: str) -> NoReturn:
        """Leave with one line. It quotes words of the command line, but no secret among them."""
        said = hidden(" ".join(message.split()))
        self.exit(2, f"{self.prog}: error: {said} (see {self.prog} --help)\n")


class SubcommandParser(VisibleParser):
    """One that does not print its usage with an error."""

    def error(self, message: str) -> NoReturn:
        self.refuse(message)
