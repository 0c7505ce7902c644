"""What ``--rdzv-conf`` means to nodes that come and go. All of it is checked here, before anything starts."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from holdfast.errors.tree import InputError
from holdfast.logger import get_logger
from holdfast.rendezvous.addresses import bracketed, is_loopback
from holdfast.rendezvous.decide import Settings
from holdfast.rendezvous.hosting import agent_serves
from holdfast.rendezvous.meeting_place import EmbeddedPlace, EtcdPlace
from holdfast.rendezvous.records import NO_RANK
from holdfast.rendezvous.static import parse_endpoint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.rendezvous.meeting_place import MeetingPlace
    from holdfast.rendezvous.parameters import RendezvousParameters

EMBEDDED_PORT = 29400
"""Where the embedded store is served, if the endpoint does not say; torchrun's port, too."""

ETCD_PORT = 2379
"""Where etcd is, if the endpoint does not say."""

ETCD_PREFIX = "/holdfast/"

JOIN_TIMEOUT_S = 600.0
"""How long a node waits for enough others, where nobody says otherwise."""

LAST_CALL_S = 5.0
"""Shorter than torch's 30 s: a node that comes later is let in all the same."""

CLOSE_TIMEOUT_S = 30.0
"""How long the node that serves the store stays for the others to leave, where nobody says otherwise."""

KEEP_ALIVE_INTERVAL_S = 1.0
"""How often a node says that it is there, where nobody says otherwise."""

KEEP_ALIVE_ATTEMPTS = 3
"""A node that is not heard of for interval times attempts is lost: 3 s."""

ETCD_KEEP_ALIVE_ATTEMPTS = 5
"""With etcd 5 s: when it loses its leader, electing another takes up to 2 s, in which no lease can be renewed."""

EMBEDDED_KEYS = frozenset(("is_host", "store_type", "token", "token_file", "ca_cert", "ssl_cert", "ssl_cert_key"))
ETCD_KEYS = frozenset(
    ("user", "password", "protocol", "etcd_prefix", "ca_cert", "ssl_cert", "ssl_cert_key", "cacert", "cert", "key")
)
COMMON_KEYS = frozenset(
    (
        *("join_timeout", "last_call_timeout", "close_timeout", "keep_alive_interval", "keep_alive_max_attempt"),
        *("store_host", "rank", "heartbeat_timeout", "read_timeout", "timeout"),
    )
)
"""The last three are accepted, and mean nothing here."""

log = get_logger(__name__)


class ElasticSettings:
    """All settings of an elastic rendezvous."""

    __slots__ = ("agent_serves", "close_timeout_s", "keep_alive_s", "limits", "place", "rank", "ttl_s")

    def __init__(self, params: RendezvousParameters, environ: Mapping[str, str] = os.environ) -> None:
        is_etcd = params.backend == "etcd"
        for key in sorted(params.config.keys() - COMMON_KEYS - (ETCD_KEYS if is_etcd else EMBEDDED_KEYS)):
            log.warning("--rdzv-conf %s: the backend %s has no such setting", key, params.backend)
        self.keep_alive_s = _seconds(params, "keep_alive_interval", KEEP_ALIVE_INTERVAL_S)
        attempts = params.get_as_int(
            "keep_alive_max_attempt", ETCD_KEEP_ALIVE_ATTEMPTS if is_etcd else KEEP_ALIVE_ATTEMPTS
        )
        if attempts is None or attempts < 2:  # noqa: PLR2004 - one late message must not cost a node
            raise InputError(f"--rdzv-conf keep_alive_max_attempt={attempts}: 2 is the least")
        self.ttl_s = self.keep_alive_s * attempts
        self.close_timeout_s = _seconds(params, "close_timeout", CLOSE_TIMEOUT_S)
        last_call_s = _seconds(params, "last_call_timeout", LAST_CALL_S)
        self.limits = Settings(
            min_nodes=params.min_nodes,
            max_nodes=params.max_nodes,
            last_call_s=last_call_s,
            # Who asks for it wants to wait for a lost node to come back; by default nobody waits for the dead.
            recall_s=last_call_s if params.get("last_call_timeout") is not None else 0.0,
            join_timeout_s=_seconds(params, "join_timeout", JOIN_TIMEOUT_S),
        )
        self.rank = _rank(params, environ)
        self.agent_serves = agent_serves(params.get("store_host"))
        self.place = _etcd(params, self.ttl_s) if is_etcd else _embedded(params, self.ttl_s, environ)


def _seconds(params: RendezvousParameters, key: str, default: float) -> float:
    value = params.get(key, default)
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        raise InputError(f"--rdzv-conf {key}={value}: a number of seconds is needed, more than 0")
    return seconds


def _rank(params: RendezvousParameters, environ: Mapping[str, str]) -> int:
    """The rank that this node asks for: what it was told, or its place in Slurm's step.

    One that no node can have is no wish: torch takes any with these backends, and uses none.
    """
    rank = params.get_as_int("rank", None)
    slurm = environ.get("SLURM_PROCID", "")
    if rank is None and slurm.isdecimal():
        rank = int(slurm)
    return rank if rank is not None and 0 <= rank < params.max_nodes else NO_RANK


def _embedded(params: RendezvousParameters, ttl_s: float, environ: Mapping[str, str]) -> MeetingPlace:
    from holdfast.coordination.token import find_token  # noqa: PLC0415 - one engine is needed

    if not params.endpoint:
        raise InputError(
            f"--rdzv-backend {params.backend}: --rdzv-endpoint HOST:PORT is needed, the address of the node that "
            "serves the store, the same on all nodes"
        )
    host, port = parse_endpoint(params.endpoint, EMBEDDED_PORT)
    if port == 0:
        raise InputError(f"--rdzv-endpoint {params.endpoint!r}: several nodes have to agree on a port, from 1 on")
    store_type = params.get("store_type", "tcp")
    if store_type != "tcp":
        raise InputError(f"--rdzv-conf store_type={store_type}: only tcp is there; or use --rdzv-backend etcd")
    token = find_token(params.get("token"), params.get("token_file"), environ)
    if not token and not is_loopback(host):
        raise InputError(
            f"--rdzv-endpoint {bracketed(host, port)}: other machines need a token to be let in; set HOLDFAST_TOKEN to "
            "the same secret on all nodes, or give --rdzv-conf token_file=PATH"
        )
    ca, cert, key = (params.get(name) for name in ("ca_cert", "ssl_cert", "ssl_cert_key"))
    server_tls = client_tls = None
    if ca or cert or key:
        from holdfast.coordination.tls import client_context, server_context  # noqa: PLC0415 - only where asked for

        if not (ca and cert and key):
            raise InputError(
                "--rdzv-conf ca_cert, ssl_cert, ssl_cert_key: TLS needs all three on every node, as each proves itself"
            )
        server_tls, client_tls = server_context(cert, key, ca), client_context(ca, cert, key)
    return EmbeddedPlace(
        host,
        port,
        is_host=params.get_as_bool("is_host", None),
        token=token,
        server_tls=server_tls,
        client_tls=client_tls,
        answer_timeout_s=_answer_timeout_s(ttl_s),
        nodes_max=params.max_nodes,
    )


def _etcd(params: RendezvousParameters, ttl_s: float) -> MeetingPlace:
    if not params.endpoint:
        raise InputError(
            f"--rdzv-backend etcd: --rdzv-endpoint HOST:PORT is needed, such as etcd0:{ETCD_PORT}; several members "
            "with commas between"
        )
    endpoints = []
    for part in str(params.endpoint).split(","):
        scheme, separator, address = part.strip().rpartition("://")
        if separator and scheme not in ("http", "https"):
            raise InputError(f"--rdzv-endpoint {part!r}: write HOST:PORT, http://HOST:PORT or https://HOST:PORT")
        endpoints.append(parse_endpoint(address, ETCD_PORT))
    return EtcdPlace(
        endpoints,
        user=params.get("user"),
        password=params.get("password"),
        ca_cert=params.get("ca_cert") or params.get("cacert"),
        cert=params.get("ssl_cert") or params.get("cert"),
        cert_key=params.get("ssl_cert_key") or params.get("key"),
        prefix=str(params.get("etcd_prefix", ETCD_PREFIX)),
        answer_timeout_s=_answer_timeout_s(ttl_s),
    )


def _answer_timeout_s(ttl_s: float) -> float:
    """A lost answer must leave time for another try before workers have to stop."""
    return max(0.5, ttl_s / 3)
