"""The settings of the embedded store in ``--rdzv-endpoint`` and ``--rdzv-conf``: address, token and certificates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.coordination.loopback import is_loopback
from holdfast.coordination.token import check_strength, find_token
from holdfast.errors.tree import InputError
from holdfast.rendezvous.addresses import bracketed
from holdfast.rendezvous.backends import EMBEDDED
from holdfast.rendezvous.meeting_place import EmbeddedPlace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.coordination.local_users import Users
    from holdfast.rendezvous.parameters import RendezvousParameters


def embedded_place(
    params: RendezvousParameters, answer_timeout_s: float, users: Users, environ: Mapping[str, str]
) -> EmbeddedPlace:
    """Where nodes meet. On loopback, `users` may take part, and so may root and the user of this node.

    Raises:
        InputError: a setting is missing or wrong, or the token is too weak for a network.
    """
    if not params.endpoint:
        raise InputError(
            f"--rdzv-backend {params.backend}: give --rdzv-endpoint HOST:PORT, the address of the node that serves the "
            "store, the same on all nodes"
        )
    ((host, port),) = EMBEDDED.endpoints(params.endpoint)
    if port == 0:
        what_to_do = "several nodes need the same port; choose one from 1 to 65535"
        raise InputError(f"--rdzv-endpoint {params.endpoint!r}: {what_to_do}")
    store_type = params.get("store_type", "tcp")
    if store_type != "tcp":
        raise InputError(f"--rdzv-conf store_type={store_type}: only tcp is supported; or use --rdzv-backend etcd")
    token = find_token(params.get("token"), params.get("token_file"), environ)
    if not is_loopback(host):
        check_strength(token, f"--rdzv-endpoint {bracketed(host, port)}")
    return EmbeddedPlace(
        host,
        port,
        is_host=params.get_as_bool("is_host", None),
        token=token,
        answer_timeout_s=answer_timeout_s,
        nodes_max=params.max_nodes,
        tls_files=tls_files(params),
        users=users,
    )


def tls_files(params: RendezvousParameters) -> tuple[str, str, str] | None:
    """The user's CA, certificate and key, or None.

    Raises:
        InputError: some of them are missing.
    """
    ca, cert, key = (params.get(name) for name in ("ca_cert", "ssl_cert", "ssl_cert_key"))
    if (ca or cert or key) and not (ca and cert and key):
        raise InputError(
            "--rdzv-conf ca_cert, ssl_cert, ssl_cert_key: TLS needs all three on every node, because every node proves "
            "its identity"
        )
    return (ca, cert, key) if ca and cert and key else None
