"""``holdfast token``: make a token for a job."""

from __future__ import annotations

import secrets

from holdfast.cli.exits import show
from holdfast.cli.subcommand_parser import SubcommandParser

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

PROG = "holdfast token"
DESCRIPTION = "Print a new secret token. Nodes of a job that have the same one let each other in, and nobody else."
EPILOG = "Use it as: export HOLDFAST_TOKEN=$(holdfast token), and copy the value to the other nodes."

TOKEN_BYTES = 32
"""How many random bytes a token is made of."""


def main(args: Sequence[str]) -> None:
    """Do what the words after ``holdfast token`` say."""
    SubcommandParser(prog=PROG, description=DESCRIPTION, epilog=EPILOG).parse_args(list(args))
    show(secrets.token_hex(TOKEN_BYTES))
