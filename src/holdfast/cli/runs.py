"""``holdfast runs``: list the runs of this user."""

from __future__ import annotations

from argparse import ArgumentTypeError, RawDescriptionHelpFormatter

from holdfast.cli.exits import show
from holdfast.cli.subcommand_parser import SubcommandParser

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

PROG = "holdfast runs"
DESCRIPTION = """List what was run here, the newest first.

The run id is what a job had as --rdzv-id, or a random one. Several jobs may have the same.
The job id is of one job alone: holdfast report JOB_ID tells about that one."""
LISTED = 20
"""How many jobs are listed by default."""


def main(args: list[str]) -> None:
    """Run ``holdfast runs`` with these arguments."""
    options = _parsed(args)
    # Imported here, because --help does not need them.
    from holdfast.cli.report import has_colours
    from holdfast.events.run_index import index_directory
    from holdfast.report.finding import recent_runs
    from holdfast.report.listing import listing_json, listing_text

    runs = recent_runs(options.number)
    if options.json:
        show(listing_json(runs))
    elif runs:
        colours = has_colours()
        show(listing_text(runs, colours=colours), colours=colours)
    else:
        show(f"no run is known here ({index_directory() or 'there is no home directory to remember them in'})")


def _parsed(args: list[str]) -> Namespace:
    parser = SubcommandParser(prog=PROG, description=DESCRIPTION, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument(
        "-n", dest="number", type=_count, default=LISTED, metavar="N", help=f"how many at most; {LISTED} by default"
    )
    parser.add_argument("--json", action="store_true", help="a list for other programs")
    return parser.parse_args(args)


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise ArgumentTypeError(f"{text!r}: write a whole number, 1 or more")
    return int(text)
