"""The rendezvous options of commands other than ``holdfast run``."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Collection


def add_rendezvous_options(
    parser: ArgumentParser,
    *,
    endpoint_help: str,
    backend_help: str,
    backend: str | None,
    backends: Collection[str] = (),
) -> None:
    """Add ``--endpoint``, ``--backend`` and ``--rdzv-conf``, also in torchrun's spellings.

    They become the fields `endpoint`, `backend` and `rdzv_conf`. Defaults come from PET_RDZV_ENDPOINT and so on; the
    backend's last default is `backend`. With `backends`, only these are accepted, and a variable that names another one
    is ignored.
    """
    variable = os.environ.get("PET_RDZV_BACKEND", "")
    parser.add_argument(
        *_names("endpoint"),
        dest="endpoint",
        default=os.environ.get("PET_RDZV_ENDPOINT", ""),
        metavar="HOST[:PORT],..",
        help=endpoint_help,
    )
    parser.add_argument(
        *_names("backend"),
        dest="backend",
        choices=backends or None,
        default=variable if variable and variable in (backends or [variable]) else backend,
        metavar=None if backends else "BACKEND",
        help=backend_help,
    )
    parser.add_argument(
        *("--rdzv-conf", "--rdzv_conf"),
        dest="rdzv_conf",
        default=os.environ.get("PET_RDZV_CONF", ""),
        metavar="KEY=VALUE,..",
        help="the settings of the backend, as for holdfast run",
    )


def _names(word: str) -> tuple[str, str, str]:
    return f"--{word}", f"--rdzv-{word}", f"--rdzv_{word}"
