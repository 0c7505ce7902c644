"""``holdfast report``: report on a run."""

from __future__ import annotations

import os
import shutil
import sys
from argparse import RawDescriptionHelpFormatter

from holdfast.cli.exits import show
from holdfast.cli.owners import warn_of_other_owners
from holdfast.cli.subcommand_parser import SubcommandParser
from holdfast.errors.tree import InputError
from holdfast.files import write_whole
from holdfast.run_directory import REPORT_PAGE, RunDirectory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.report import Run

PROG = "holdfast report"
DESCRIPTION = """Show what happened in a run, from its directory alone: its attempts, who failed and why,
and where the time went.

  holdfast report                    the newest run of this machine
  holdfast report 1a2b3c4d           the job with this id (see holdfast runs)
  holdfast report logs/job7_1a2b3c4d --html job7.html"""

PAGE_MODE = 0o666
"""The mode before the umask: a page is made to be shared."""

STDOUT = "-"
FALLBACK_COLUMNS = 100


def main(args: list[str]) -> None:
    """Run ``holdfast report`` with these arguments.

    Raises:
        InputError: there is no such run, or the page cannot be written.
    """
    options = _parsed(args)
    from holdfast.report import find_run, report_json, report_text

    run = find_run(options.run)
    warn_of_other_owners(PROG, [node.directory for node in run.nodes])
    if options.html is not None:
        _write_page(run, options.html)
    elif options.json:
        show(report_json(run))
    else:
        colours = has_colours()
        show(report_text(run, _columns(), colours=colours), colours=colours)


def has_colours() -> bool:
    """Whether stdout is a terminal whose user wants colours."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    return is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _columns() -> int:
    return shutil.get_terminal_size((FALLBACK_COLUMNS, 24)).columns


def _parsed(args: list[str]) -> Namespace:
    parser = SubcommandParser(prog=PROG, description=DESCRIPTION, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument(
        "run",
        nargs="?",
        default="",
        metavar="RUN",
        help="a run's directory, a directory that holds those of its nodes, or a run id or a job id that is known here "
        "(see holdfast runs); the newest run if left out",
    )
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="print all that is known, for other programs")
    shape.add_argument(
        "--html",
        nargs="?",
        const="",
        metavar="FILE",
        help="write one page that needs nothing else, to FILE (- is stdout), or to "
        f"{REPORT_PAGE} in the run's directory",
    )
    options = parser.parse_args(args)
    # In `--html RUN`, argparse takes the run for the file.
    if options.html and not options.run and options.html != STDOUT and not options.html.endswith((".html", ".htm")):
        options.run, options.html = options.html, ""
    return options


def _write_page(run: Run, path: str) -> None:
    from holdfast.report import report_page

    page = report_page(run)
    if path == STDOUT:
        show(page)
        return
    path = path or RunDirectory(run.first().directory).report_page
    if os.path.exists(path) and not os.path.isfile(path):
        raise InputError(f"{path!r} is not a file; give --html the name of one, or - for stdout")
    try:
        # Replace the page atomically: it may be open in a browser.
        write_whole(path, page.encode("utf-8", "backslashreplace"), mode=PAGE_MODE)
    except OSError as error:
        raise InputError(f"{path!r} cannot be written: {error.strerror}; --html FILE names another place") from error
    show(path)
