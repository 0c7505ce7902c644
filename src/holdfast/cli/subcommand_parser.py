"""The parser of every subcommand but ``run``: bad input gets one line and exit code 2."""

from __future__ import annotations

from argparse import ArgumentParser

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


class SubcommandParser(ArgumentParser):
    """An ArgumentParser that does not print its usage with an error."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")
