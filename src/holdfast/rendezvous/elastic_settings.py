"""What ``--rdzv-conf`` means to nodes that come and go. All of it is checked here, before anything starts."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from urllib.parse import quote

from holdfast.coordination.loopback import is_loopback
from holdfast.errors.tree import InputError
from holdfast.logger import get_logger
from holdfast.rendezvous.addresses import bracketed
from holdfast.rendezvous.decide import Settings
from holdfast.rendezvous.hosting import agent_serves
from holdfast.rendezvous.meeting_place import EmbeddedPlace, EtcdPlace
from holdfast.rendezvous.records import NO_RANK
from holdfast.rendezvous.restarts import STEADY_S
from holdfast.rendezvous.static import parse_endpoint
from holdfast.rendezvous.store_access import access_from

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.rendezvous.meeting_place import MeetingPlace
    from holdfast.rendezvous.parameters import RendezvousParameters

EMBEDDED_PORT = 29400
"""Where the embedded store is served, if the endpoint does not say; torchrun's port, too."""

ETCD_PORT = 2379
"""Where etcd is, if the endpoint does not say."""

ETCD_PREFIX = "/holdfast/"

RUN_ID_MAX_BYTES = 512
"""How long a run id may be, as it stands in keys of the store: those have 1,024 bytes at most."""

JOIN_TIMEOUT_S = 600.0
"""How long a node waits for enough others, where nobody says otherwise."""

LAST_CALL_S = 5.0
"""Shorter than torch's 30 s: a node that comes later is let in all the same."""

CLOSE_TIMEOUT_S = 30.0
"""How long the node that serves the store stays for the others to leave, where nobody says otherwise."""

KEEP_ALIVE_INTERVAL_S = 1.0
"""How often a node says that it is there, where nobody says otherwise."""

KEEP_ALIVE_INTERVAL_MIN_S = 0.01
"""More often than that would only keep the store busy."""

KEEP_ALIVE_ATTEMPTS_MIN = 2
"""One late message must not cost a node."""

KEEP_ALIVE_ATTEMPTS = 3
"""A node that is not heard of for interval times attempts is lost: 3 s."""

ETCD_KEEP_ALIVE_ATTEMPTS = 8
"""With etcd 8 s. When etcd loses its leader, no lease can be renewed until it has another one. That takes 1 to 2 s, and
as long again if the votes are split; 2.4 s was the longest of 20 that were measured. The last renewal may be 1 s old by
then, and workers are stopped at three quarters of the lease, so 6 s hold two elections and 1 s to spare.
"""

SLURM_RANK_MAX_DIGITS = 9
"""A longer number is no place in Slurm's step."""

EMBEDDED_KEYS = frozenset(("is_host", "store_type", "token", "token_file", "ca_cert", "ssl_cert", "ssl_cert_key"))
ETCD_KEYS = frozenset(
    ("user", "password", "protocol", "etcd_prefix", "ca_cert", "ssl_cert", "ssl_cert_key", "cacert", "cert", "key")
)
COMMON_KEYS = frozenset(
    (
        *("join_timeout", "last_call_timeout", "close_timeout", "keep_alive_interval", "keep_alive_max_attempt"),
        "steady_time",
        *("store_users", "store_peers"),
        *("store_host", "rank", "heartbeat_timeout", "read_timeout", "timeout"),
    )
)
"""The last three are accepted, and mean nothing here."""

log = get_logger(__name__)


class ElasticSettings:
    """All settings of an elastic rendezvous."""

    __slots__ = ("access", "agent_serves", "close_timeout_s", "keep_alive_s", "limits", "place", "rank", "ttl_s")

    def __init__(self, params: RendezvousParameters, environ: Mapping[str, str] = os.environ) -> None:
        is_etcd = params.backend == "etcd"
        for key in sorted(params.config.keys() - COMMON_KEYS - (ETCD_KEYS if is_etcd else EMBEDDED_KEYS)):
            log.warning("--rdzv-conf %s: the backend %s has no such setting", key, params.backend)
        if len(quote(params.run_id, safe="", errors="backslashreplace")) > RUN_ID_MAX_BYTES:
            raise InputError(
                f"--rdzv-id {params.run_id[:40]!r}...: it has {len(params.run_id)} characters; give a shorter one, of "
                f"{RUN_ID_MAX_BYTES} bytes at most (a character that needs quoting takes 3 or more)"
            )
        self.keep_alive_s = _seconds(params, "keep_alive_interval", KEEP_ALIVE_INTERVAL_S, KEEP_ALIVE_INTERVAL_MIN_S)
        attempts = _attempts(params, ETCD_KEEP_ALIVE_ATTEMPTS if is_etcd else KEEP_ALIVE_ATTEMPTS)
        self.ttl_s = _lease_s(self.keep_alive_s, attempts)
        self.close_timeout_s = _seconds(params, "close_timeout", CLOSE_TIMEOUT_S)
        last_call_s = _seconds(params, "last_call_timeout", LAST_CALL_S)
        self.limits = Settings(
            min_nodes=params.min_nodes,
            max_nodes=params.max_nodes,
            last_call_s=last_call_s,
            # Who asks for it wants to wait for a lost node to come back; by default nobody waits for the dead.
            recall_s=last_call_s if params.get("last_call_timeout") is not None else 0.0,
            join_timeout_s=_seconds(params, "join_timeout", JOIN_TIMEOUT_S),
            steady_s=_seconds(params, "steady_time", STEADY_S),
        )
        self.rank = _rank(params, environ)
        self.agent_serves = agent_serves(params.get("store_host"))
        self.access = access_from(params)
        self.place = _etcd(params, self.ttl_s) if is_etcd else _embedded(params, self.ttl_s, environ)


def _seconds(params: RendezvousParameters, key: str, default: float, least_s: float = 0.0) -> float:
    value = params.get(key, default)
    try:
        seconds = float(value)
    except (TypeError, ValueError, OverflowError):
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        raise InputError(f"--rdzv-conf {key}={value}: a number of seconds is needed, more than 0")
    if seconds < least_s:
        raise InputError(f"--rdzv-conf {key}={value}: {least_s:g} s is the least")
    return seconds


def _attempts(params: RendezvousParameters, default: int) -> int:
    attempts = params.get_as_int("keep_alive_max_attempt", default)
    if attempts is None:
        return default
    if attempts < KEEP_ALIVE_ATTEMPTS_MIN:
        raise InputError(f"--rdzv-conf keep_alive_max_attempt={attempts}: {KEEP_ALIVE_ATTEMPTS_MIN} is the least")
    return attempts


def _lease_s(interval_s: float, attempts: int) -> float:
    """How long a node is counted as there after it was last heard of."""
    from holdfast.coordination.keyspace import TTL_MAX_S, TTL_MIN_S  # noqa: PLC0415 - only where nodes meet

    if not TTL_MIN_S / interval_s <= attempts <= TTL_MAX_S / interval_s:
        raise InputError(
            f"--rdzv-conf keep_alive_interval={interval_s:g},keep_alive_max_attempt={attempts}: the interval times the "
            f"attempts is how long a lease holds, and that can be {TTL_MIN_S:g} to {TTL_MAX_S:g} s"
        )
    return min(max(interval_s * attempts, TTL_MIN_S), TTL_MAX_S)


def _rank(params: RendezvousParameters, environ: Mapping[str, str]) -> int:
    """The rank that this node asks for: what it was told, or its place in Slurm's step.

    One that no node can have is no wish: torch takes any with these backends, and uses none.
    """
    rank = params.get_as_int("rank", None)
    slurm = environ.get("SLURM_PROCID", "")
    if rank is None and slurm.isdecimal() and len(slurm) <= SLURM_RANK_MAX_DIGITS:
        rank = int(slurm)
    return rank if rank is not None and 0 <= rank < params.max_nodes else NO_RANK


def _embedded(params: RendezvousParameters, ttl_s: float, environ: Mapping[str, str]) -> MeetingPlace:
    from holdfast.coordination.token import check_strength, find_token  # noqa: PLC0415 - one engine is needed

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
    if not is_loopback(host):
        check_strength(token, f"--rdzv-endpoint {bracketed(host, port)}")
    ca, cert, key = (params.get(name) for name in ("ca_cert", "ssl_cert", "ssl_cert_key"))
    if (ca or cert or key) and not (ca and cert and key):
        raise InputError(
            "--rdzv-conf ca_cert, ssl_cert, ssl_cert_key: TLS needs all three on every node, as each proves itself"
        )
    return EmbeddedPlace(
        host,
        port,
        is_host=params.get_as_bool("is_host", None),
        token=token,
        answer_timeout_s=answer_timeout_s(ttl_s),
        nodes_max=params.max_nodes,
        tls_files=(ca, cert, key) if ca and cert and key else None,
    )


def _etcd(params: RendezvousParameters, ttl_s: float) -> MeetingPlace:
    from holdfast.rendezvous.etcd_settings import etcd_access  # noqa: PLC0415 - one engine is needed

    return EtcdPlace(etcd_access(params), answer_timeout_s(ttl_s))


def answer_timeout_s(ttl_s: float) -> float:
    """A lost answer must leave time for another try before workers have to stop."""
    return max(0.5, ttl_s / 3)
