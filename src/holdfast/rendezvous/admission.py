"""When new nodes are let into a running job. Pure.

Letting a node in costs every node a restart, and losing it again costs another one. So admission follows rules:

- Newcomers are batched. The first one waits a moment for others. The wait grows each time a generation is broken for
  newcomers before it has run steadily.
- A machine that is lost soon after it came is held back, longer each time. The first loss is free: machines fail once
  and recover. A machine that stays for `steady_s` has a clean slate. A killed agent still looks alive until its lease
  expires, so the length of a lease is always added.
- A machine that is held back is let in anyway when the job has too few nodes without it. If that machine is then lost
  for the `LOSSES_MAX`th time in a row, the job ends: it makes no progress.

Machines are identified by host name, because every agent has another node name.
"""

from __future__ import annotations

from holdfast.rendezvous.records import Arrivals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

BATCH_S = 0.2
"""How long the first newcomer waits for others."""

BATCH_MAX_S = 30.0
"""The longest wait of the first newcomer, after many generations in a row that were broken for newcomers."""

LOSSES_FREE = 1
"""A machine that was lost this many times in a row is let in again as if it were new."""

HOLD_BACK_S = 5.0
"""How long a machine must be present before it is let in after the next loss. Doubles with every further loss."""

HOLD_BACK_MAX_S = 600.0
"""The longest that a machine is held back."""

LOSSES_MAX = 10
"""A job that needs a machine ends when that machine was lost this many times in a row."""

HOSTS_MAX = 1_000
"""The number of machines whose losses are remembered."""


def batch_s(joins: int) -> float:
    """How long newcomers wait for others, after `joins` generations in a row that were broken for newcomers."""
    return min(BATCH_S * 2.0 ** min(joins, 32), BATCH_MAX_S)


def hold_back_s(losses: int, lease_s: float = 0.0) -> float:
    """How long a machine must be present before it is let in, after `losses` losses in a row."""
    doublings = min(losses - LOSSES_FREE - 1, 32)
    return 0.0 if doublings < 0 else min(HOLD_BACK_S * 2.0**doublings, HOLD_BACK_MAX_S) + lease_s


def admits_at(
    arrivals: Arrivals, newcomers: Mapping[str, str], since: Mapping[str, float], lease_s: float
) -> dict[str, float]:
    """When each of `newcomers` (hosts by node) may be let in, by node. The batch wait is extra: see `batch_s`."""
    losses = dict(arrivals.losses)
    return {node: since[node] + hold_back_s(losses.get(host, 0), lease_s) for node, host in newcomers.items()}


def remember(
    arrivals: Arrivals,
    gone: Iterable[tuple[str, float | None]],
    here: Mapping[str, float],
    *,
    has_joined: bool,
    ran_s: float,
    steady_s: float,
) -> Arrivals:
    """The record of arrivals after a generation that ran for `ran_s`.

    Args:
        arrivals: the record before that generation.
        gone: the machines that the generation lost, each with the seconds that it ran, None if unknown.
        here: its machines that are still present, each with the seconds that it has run.
        has_joined: whether the generation was broken for newcomers.
        ran_s: how long the generation ran.
        steady_s: a generation that ran this long, or a machine that stayed this long, is steady.
    """
    losses = {host: count for host, count in arrivals.losses if here.get(host, 0.0) < steady_s}
    for host, lived_s in gone:
        before = losses.get(host, 0)
        losses[host] = max(before, 1) if lived_s is None else 1 if lived_s >= steady_s else before + 1
    worst = sorted(losses.items(), key=lambda item: (-item[1], item[0]))[:HOSTS_MAX]
    joins = 0 if ran_s >= steady_s else arrivals.joins
    return Arrivals(joins + has_joined, tuple(worst))


def lost_too_often(arrivals: Arrivals, hosts: Iterable[str]) -> str:
    """The machine among `hosts` that was lost too often for the job to go on, or ""."""
    bad = {host for host, count in arrivals.losses if count >= LOSSES_MAX}
    return next((host for host in hosts if host in bad), "")
