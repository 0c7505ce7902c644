"""Where the nodes of a static job meet: beside the master's port, at the node of rank 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.coordination.loopback import is_loopback
from holdfast.coordination.token import check_strength, find_token
from holdfast.errors.tree import InputError
from holdfast.logger import get_logger
from holdfast.rendezvous.addresses import bracketed
from holdfast.rendezvous.backends import STATIC
from holdfast.rendezvous.embedded_settings import tls_files
from holdfast.rendezvous.meeting_place import EmbeddedPlace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.coordination.local_users import Users
    from holdfast.rendezvous.parameters import RendezvousParameters

PORT_MAX = (1 << 16) - 1

log = get_logger(__name__)


def static_place(
    params: RendezvousParameters, answer_timeout_s: float, users: Users, environ: Mapping[str, str]
) -> EmbeddedPlace:
    """Where nodes meet that were told their ranks. The node of rank 0 serves the store.

    A static job starts without a token, as under torchrun. Then nodes take nothing from each other that could do more
    than end the job.

    Raises:
        InputError: a setting is missing or wrong, or the token is too weak for a network.
    """
    if not params.endpoint:
        raise InputError("--master-addr: several nodes need the address of node 0")
    ((host, master_port),) = STATIC.endpoints(params.endpoint)
    if master_port == 0:
        raise InputError("--master-port 0: several nodes need the same port; write one above 0")
    port = meeting_port(params, master_port)
    token = find_token(params.get("token"), params.get("token_file"), environ)
    is_local = is_loopback(host)
    if token and not is_local:
        check_strength(token, f"--master-addr {host}")
    if not token and not is_local:
        log.warning(
            "the nodes of this job meet at %s without a token: anybody who reaches that port can end the job. To "
            "prevent that, set HOLDFAST_TOKEN to the output of `holdfast token` on all nodes",
            bracketed(host, port),
        )
    return EmbeddedPlace(
        host,
        port,
        is_host=params.get_as_int("rank") == 0,
        token=token,
        answer_timeout_s=answer_timeout_s,
        nodes_max=params.max_nodes,
        tls_files=tls_files(params),
        users=users,
        option=_option(params, master_port, port),
        is_of_one_job=True,
        has_trust=bool(token) or is_local,
    )


def meeting_port(params: RendezvousParameters, master_port: int) -> int:
    """The port where the nodes meet: ``meeting_port``, or the one after the master's.

    Raises:
        InputError: it is no port, or the master's.
    """
    default = master_port + 1 if master_port < PORT_MAX else master_port - 1
    port = params.get_as_int("meeting_port", default)
    assert port is not None
    if not 0 < port <= PORT_MAX or port == master_port:
        raise InputError(
            f"--rdzv-conf meeting_port={port}: write a port from 1 to {PORT_MAX} other than --master-port, the same on "
            "all nodes"
        )
    return port


def _option(params: RendezvousParameters, master_port: int, port: int) -> str:
    """What a message about the port begins with."""
    if params.get("meeting_port") is not None:
        return f"--rdzv-conf meeting_port={port}"
    return (
        f"--master-port {master_port}: the nodes meet at port {port}, or at another one with --rdzv-conf meeting_port"
    )
