"""``holdfast forget``: delete a run's records from etcd."""

from __future__ import annotations

from argparse import RawDescriptionHelpFormatter

from holdfast.cli.exits import show
from holdfast.cli.rendezvous_options import add_rendezvous_options
from holdfast.cli.subcommand_parser import SubcommandParser
from holdfast.errors.tree import InputError, UserError
from holdfast.rendezvous.backends import BACKENDS, ETCD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from holdfast.rendezvous.elastic_settings import ElasticSettings
    from holdfast.rendezvous.forgetting import Forgotten

PROG = "holdfast forget"
DESCRIPTION = """Delete the records of one run from etcd, so that its id can be used again. Other runs keep theirs.

  holdfast forget job7 --rdzv-endpoint etcd0:2379,etcd1:2379,etcd2:2379"""
EPILOG = """Options that are not given are taken from PET_RDZV_ENDPOINT and so on, as holdfast run
does. The exit code is 0 if nothing is left of the run, also if there was nothing; 1 if
nodes of it are alive or etcd cannot be reached; and 2 for bad input."""

KEYS_SHOWN_MAX = 20
"""How many deleted keys are listed. The rest are only counted; --json has all."""


def main(args: Sequence[str]) -> None:
    """Run ``holdfast forget`` with these arguments.

    Raises:
        InputError: a value cannot be used.
        UserError: nodes of the run are alive.
        CoordinationError: etcd cannot be reached, or refuses us.
    """
    options = _parser().parse_args(list(args))
    # Imported here, because --help does not need it.
    import asyncio

    settings = _settings(options)
    forgotten = asyncio.run(_forget(settings, options.run_id, force=options.force))
    prefix = settings.place.prefix
    if options.json:
        _show_json(options.run_id, prefix, forgotten)
    alive = len(forgotten.alive)
    if alive and not options.force:
        raise UserError(
            f"{PROG}: run {options.run_id!r} is in use: {alive} of its nodes {'is' if alive == 1 else 'are'} alive "
            f"({', '.join(forgotten.alive)}); stop them first, or give --force. A lost node counts as alive "
            "until its lease expires"
        )
    if not options.json:
        show(_text(options.run_id, settings.place.name, prefix, forgotten))


def _settings(options: Namespace) -> ElasticSettings:
    from holdfast.cli.configuration import rdzv_settings
    from holdfast.rendezvous.elastic_settings import ElasticSettings
    from holdfast.rendezvous.parameters import RendezvousParameters

    keepers = [name for name, backend in BACKENDS.items() if backend.is_external]
    if options.backend not in keepers:
        raise InputError(
            f"--rdzv-backend {options.backend}: only {' or '.join(keepers)} keeps records after a run; there "
            "is nothing to delete"
        )
    if not options.run_id:
        raise InputError("the run id is empty; give the --rdzv-id of the job")
    settings = rdzv_settings(options.rdzv_conf)
    return ElasticSettings(
        RendezvousParameters(options.backend, options.endpoint.strip(), options.run_id, 1, 2, None, **settings)
    )


async def _forget(settings: ElasticSettings, run_id: str, *, force: bool) -> Forgotten:
    from holdfast.rendezvous.forgetting import forget
    from holdfast.rendezvous.records import Keys

    async with await settings.place.open() as store:
        return await forget(store, Keys(run_id), force=force)


def _text(run_id: str, place: str, prefix: str, forgotten: Forgotten) -> str:
    deleted = forgotten.deleted
    if not deleted:
        return f"{place} has no records of run {run_id!r}"
    noun = "record" if len(deleted) == 1 else "records"
    lines = [f"deleted {len(deleted)} {noun} of run {run_id!r} from {place}:"]
    lines += [f"  {prefix}{key}" for key in deleted[:KEYS_SHOWN_MAX]]
    if len(deleted) > KEYS_SHOWN_MAX:
        lines.append(f"  and {len(deleted) - KEYS_SHOWN_MAX} more")
    return "\n".join(lines)


def _show_json(run_id: str, prefix: str, forgotten: Forgotten) -> None:
    import json

    deleted = [f"{prefix}{key}" for key in forgotten.deleted]
    show(json.dumps({"run_id": run_id, "deleted": deleted, "alive": list(forgotten.alive)}, indent=2))


def _parser() -> SubcommandParser:
    parser = SubcommandParser(
        prog=PROG, description=DESCRIPTION, epilog=EPILOG, formatter_class=RawDescriptionHelpFormatter
    )
    parser.add_argument("run_id", metavar="RUN_ID", help="the id of the run: its --rdzv-id")
    add_rendezvous_options(
        parser,
        endpoint_help="the members of etcd, as in holdfast run",
        backend_help="the backend of the run; only etcd keeps records (default: %(default)s)",
        backend=ETCD.name,
    )
    parser.add_argument(
        "--force", action="store_true", help="delete even if nodes of the run are alive; they will stop their workers"
    )
    parser.add_argument("--json", action="store_true", help="print the deleted keys as JSON")
    return parser
