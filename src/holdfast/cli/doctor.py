"""``holdfast doctor``: find what would break a job here, and what to do about it."""

from __future__ import annotations

import os
import shutil
import sys
from argparse import SUPPRESS, RawDescriptionHelpFormatter

from holdfast.cli.exits import FAILURE, show
from holdfast.cli.rendezvous_options import add_rendezvous_options
from holdfast.cli.subcommand_parser import SubcommandParser
from holdfast.errors.tree import InputError
from holdfast.rendezvous.backends import BACKENDS, EMBEDDED, ETCD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence
    from typing import Any

    from holdfast.doctor.context import Context

PROG = "holdfast doctor"
DESCRIPTION = """Check this machine for problems that break jobs in practice, and say how to fix them. Changes nothing.

  holdfast doctor                                          for jobs on this machine
  holdfast doctor --endpoint node0:29400                   and with others, that meet there; on each of them
  holdfast doctor --endpoint etcd0:2379,etcd1:2379         and that meet in etcd"""
EPILOG = """Options that are not given are taken from PET_RDZV_ENDPOINT and so on, as holdfast run
does. The exit code is 0 if there is no problem (warnings are none), 1 if there is one, and
2 for bad input."""

FALLBACK_COLUMNS = 100


def main(args: Sequence[str]) -> None:
    """Run ``holdfast doctor`` with these arguments.

    Raises:
        InputError: a value cannot be used.
        SystemExit: with 1, if there is a problem.
    """
    options = _parser().parse_args(list(args))
    # Imported here, because --help does not need them.
    from holdfast.cli.report import has_colours
    from holdfast.doctor.examination import CHECKS, examine
    from holdfast.doctor.finding import State
    from holdfast.doctor.rendering import findings_json, findings_text

    topics = [topic.strip() for topic in options.only.split(",") if topic.strip()]
    for topic in topics:
        if topic not in CHECKS:
            raise InputError(f"--only {topic!r}: unknown topic; choose from {', '.join(CHECKS)}")
    findings = examine(_context(options), topics)
    if options.json:
        show(findings_json(findings))
    else:
        columns = shutil.get_terminal_size((FALLBACK_COLUMNS, 24)).columns
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
        colours = has_colours()
        show(findings_text(findings, columns, colours=colours, encoding=encoding), colours=colours)
    if any(finding.state is State.PROBLEM for finding in findings):
        raise SystemExit(FAILURE)


def _context(options: Namespace) -> Context:
    from holdfast import __version__
    from holdfast.cli import accelerators
    from holdfast.cli.configuration import determine_local_world_size, rdzv_settings
    from holdfast.doctor.context import Accelerators, Context, read_meeting

    environ = dict(os.environ)
    settings = rdzv_settings(options.rdzv_conf)
    endpoint = options.endpoint.strip()
    topics = [topic.strip() for topic in options.only.split(",")]
    asked_for = next((name for name in BACKENDS if name in topics), None)  # by a topic of the same name
    backend = options.backend or asked_for or likely_backend(endpoint)
    return Context(
        Accelerators(accelerators.cpu_count(), accelerators.gpu_count(), accelerators.xpu_count()),
        environ,
        determine_local_world_size(options.nproc_per_node),
        read_meeting(backend, endpoint, settings, environ) if endpoint else None,
        options.local_addr or None,
        options.log_dir or None,
        __version__,
    )


def likely_backend(endpoint: str) -> str:
    """The backend that an endpoint suggests."""
    return next((name for name, backend in BACKENDS.items() if backend.is_likely(endpoint)), EMBEDDED.name)


class _Parser(SubcommandParser):
    """The ignored options make no shortened name ambiguous."""

    def _get_option_tuples(self, option_string: str) -> list[Any]:
        found = {match[0].dest: match for match in super()._get_option_tuples(option_string)}
        own = [match for match in found.values() if match[0].help is not SUPPRESS]
        return own or list(found.values())


def add_ignored_options(parser: SubcommandParser) -> None:
    """Accept all other options of ``holdfast run``, so that the options of a job can be copied. They mean nothing."""
    from holdfast.cli.options import GROUPS

    known = parser._option_string_actions  # noqa: SLF001 - argparse has no public list of them
    for option in (option for options in GROUPS.values() for option in options):
        names = [name for name in option.spellings if name not in known]
        if names:
            action = "store_true" if option.is_flag else "store"
            parser.add_argument(*names, action=action, dest=f"ignored_{option.dest}", help=SUPPRESS)


def _parser() -> SubcommandParser:
    parser = _Parser(prog=PROG, description=DESCRIPTION, epilog=EPILOG, formatter_class=RawDescriptionHelpFormatter)
    add_rendezvous_options(
        parser,
        endpoint_help="where the machines of a job would meet; several members of etcd are separated by commas",
        backend_help=f"the backend (default: etcd for several endpoints, https:// or port {ETCD.default_port}, "
        "otherwise c10d)",
        backend=None,
        backends=tuple(BACKENDS),
    )
    parser.add_argument(
        *("--nproc-per-node", "--nproc_per_node"),
        dest="nproc_per_node",
        default=os.environ.get("PET_NPROC_PER_NODE", "auto"),
        metavar="N",
        help="how many workers this machine would run (default: %(default)s)",
    )
    parser.add_argument(
        *("--local-addr", "--local_addr"),
        dest="local_addr",
        default=os.environ.get("PET_LOCAL_ADDR", ""),
        metavar="ADDRESS",
        help="the address of this machine that the others would use (default: found automatically)",
    )
    parser.add_argument(
        *("--log-dir", "--log_dir"),
        dest="log_dir",
        default=os.environ.get("PET_LOG_DIR", ""),
        metavar="DIRECTORY",
        help="where the job would keep its logs",
    )
    add_ignored_options(parser)
    parser.add_argument("--only", default="", metavar="TOPIC,..", help="check these topics only")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    return parser
