"""``holdfast token``: make a token for a job."""

from __future__ import annotations

import secrets
from argparse import RawDescriptionHelpFormatter

from holdfast.cli.exits import show
from holdfast.cli.subcommand_parser import SubcommandParser

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

PROG = "holdfast token"
DESCRIPTION = "Print a new secret token. Only nodes that have the same token can join a job together."
EPILOG = """Write one to a file that only you can read, once for all nodes:

  (umask 077; holdfast token > job.token)

Copy the file to every node, and give each --rdzv-conf token_file=job.token."""

TOKEN_BYTES = 32
"""The number of random bytes in a token."""


def main(args: Sequence[str]) -> None:
    """Run ``holdfast token`` with these arguments."""
    SubcommandParser(
        prog=PROG, description=DESCRIPTION, epilog=EPILOG, formatter_class=RawDescriptionHelpFormatter
    ).parse_args(list(args))
    show(secrets.token_hex(TOKEN_BYTES))
