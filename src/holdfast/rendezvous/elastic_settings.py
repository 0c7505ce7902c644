"""The meaning of ``--rdzv-conf`` for elastic jobs. All settings are checked here, before anything starts.

The settings of one engine are checked by its own module: `embedded_settings`, `etcd_settings`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from urllib.parse import quote

from holdfast.errors.tree import InputError
from holdfast.rendezvous.backends import backend_named
from holdfast.rendezvous.decision import Settings
from holdfast.rendezvous.hosting import agent_serves
from holdfast.rendezvous.known_settings import Times, warn_of_unknown
from holdfast.rendezvous.records import NO_RANK
from holdfast.rendezvous.store_access import access_from

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.rendezvous.parameters import RendezvousParameters

RUN_ID_MAX_BYTES = 512
"""The length limit of a run id. It is part of the store's keys, which have at most 1,024 bytes."""

SLURM_RANK_MAX_DIGITS = 9
"""A number with more digits is not a rank in a Slurm step."""


class ElasticSettings:
    """All settings of an elastic rendezvous.

    `group` names the nodes that meet, among all that use the store. `master` is the host and port of the workers'
    master if this node was told it, and None if the nodes agree on it.
    """

    __slots__ = (
        *("access", "agent_serves", "close_timeout_s", "group"),
        *("keep_alive_s", "limits", "master", "place", "rank", "ttl_s"),
    )

    def __init__(self, params: RendezvousParameters, environ: Mapping[str, str] = os.environ) -> None:
        warn_of_unknown(params)
        if len(quote(params.run_id, safe="", errors="backslashreplace")) > RUN_ID_MAX_BYTES:
            raise InputError(
                f"--rdzv-id {params.run_id[:40]!r}...: it has {len(params.run_id)} characters; give a shorter one, of "
                f"{RUN_ID_MAX_BYTES} bytes at most (a character that needs quoting takes 3 or more)"
            )
        times = Times(params)
        backend = backend_named(params.backend)
        self.keep_alive_s = times.keep_alive_s
        self.ttl_s = times.lease_s()
        self.close_timeout_s = times.close_timeout_s
        self.limits = Settings(
            min_nodes=params.min_nodes,
            max_nodes=params.max_nodes,
            last_call_s=times.last_call_s,
            # A user who sets this wants to wait for a lost node to come back. By default, lost nodes are not waited
            # for.
            recall_s=times.last_call_s if params.get("last_call_timeout") is not None else 0.0,
            join_timeout_s=times.join_timeout_s,
            steady_s=times.steady_s,
            has_given_ranks=backend.has_given_ranks,
        )
        self.rank = _rank(params, environ)
        self.agent_serves = agent_serves(params.get("store_host"))
        self.access = access_from(params)
        self.place = backend.make_place(params, answer_timeout_s(self.ttl_s), self.access.users, environ)
        # The store of a static job is the job's own, so all of its nodes are in one group, whatever their run id.
        self.group = backend.name if backend.has_given_ranks else params.run_id
        self.master = backend.endpoints(params.endpoint)[0] if backend.has_given_ranks else None


def _rank(params: RendezvousParameters, environ: Mapping[str, str]) -> int:
    """The rank that this node asks for: the configured one, or its place in the Slurm step.

    A rank that no node can have is ignored: torch accepts any rank with these backends, and uses none.
    """
    rank = params.get_as_int("rank", None)
    slurm = environ.get("SLURM_PROCID", "")
    if rank is None and slurm.isdecimal() and len(slurm) <= SLURM_RANK_MAX_DIGITS:
        rank = int(slurm)
    return rank if rank is not None and 0 <= rank < params.max_nodes else NO_RANK


def answer_timeout_s(ttl_s: float) -> float:
    """How long to wait for an answer: short enough to retry a lost one before workers have to stop."""
    return max(0.5, ttl_s / 3)
