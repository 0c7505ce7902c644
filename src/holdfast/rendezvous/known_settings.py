"""The settings that ``--rdzv-conf`` may hold, and the values that mean the same to every backend.

A job of one node uses few of them. It checks all of them anyway, so that a mistake shows up on one machine already.
"""

from __future__ import annotations

from holdfast.errors.tree import InputError
from holdfast.logger import get_logger
from holdfast.rendezvous.backends import BACKENDS, EMBEDDED, STATIC
from holdfast.rendezvous.restarts import STEADY_S

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.rendezvous.parameters import RendezvousParameters

JOIN_TIMEOUT_S = 600.0
"""The default of how long a node waits for enough others."""

LAST_CALL_S = 5.0
"""The default wait for more nodes. Shorter than torch's 30 s: a node that comes later is still let in."""

CLOSE_TIMEOUT_S = 30.0
"""The default of how long the node that serves the store waits for the others to leave."""

KEEP_ALIVE_INTERVAL_S = 1.0
"""The default interval between the keep-alives of a node."""

KEEP_ALIVE_INTERVAL_MIN_S = 0.01
"""More frequent keep-alives would only keep the store busy."""

KEEP_ALIVE_ATTEMPTS_MIN = 2
"""One late message must not cost a node."""

KEEP_ALIVE_KEYS = frozenset(("keep_alive_interval", "keep_alive_max_attempt"))
COMMON_KEYS = KEEP_ALIVE_KEYS | frozenset(
    (
        *("join_timeout", "last_call_timeout", "close_timeout"),
        "steady_time",
        *("store_users", "store_peers"),
        *("store_host", "rank", "heartbeat_timeout", "read_timeout", "timeout"),
    )
)
"""``heartbeat_timeout`` and ``read_timeout`` are accepted and ignored, and so is ``timeout`` by all but `STATIC`."""

KEYS = {backend.name: COMMON_KEYS | backend.own_keys for backend in (*BACKENDS.values(), STATIC)}
"""The settings of each backend. A single node without one accepts the settings of all."""

log = get_logger(__name__)


class Times:
    """The settings that are times, in seconds.

    Raises:
        InputError: a value is not a valid time.
    """

    __slots__ = ("attempts", "close_timeout_s", "join_timeout_s", "keep_alive_s", "last_call_s", "steady_s")

    def __init__(self, params: RendezvousParameters) -> None:
        self.keep_alive_s = _seconds(params, "keep_alive_interval", KEEP_ALIVE_INTERVAL_S, KEEP_ALIVE_INTERVAL_MIN_S)
        self.attempts = _attempts(params)
        self.close_timeout_s = _seconds(params, "close_timeout", CLOSE_TIMEOUT_S)
        self.last_call_s = _seconds(params, "last_call_timeout", LAST_CALL_S)
        # torch's static backend calls it `timeout`.
        default_s = _seconds(params, "timeout", JOIN_TIMEOUT_S) if params.backend == STATIC.name else JOIN_TIMEOUT_S
        self.join_timeout_s = _seconds(params, "join_timeout", default_s)
        self.steady_s = _seconds(params, "steady_time", STEADY_S)

    def lease_s(self) -> float:
        """How long a node counts as alive after its last sign of life.

        Raises:
            InputError: no store grants such a lease.
        """
        from holdfast.coordination.keyspace import TTL_MAX_S, TTL_MIN_S

        interval_s, attempts = self.keep_alive_s, self.attempts
        if not TTL_MIN_S / interval_s <= attempts <= TTL_MAX_S / interval_s:
            raise InputError(
                f"--rdzv-conf keep_alive_interval={interval_s:g},keep_alive_max_attempt={attempts}: the lease lasts "
                f"interval times attempts, which must be {TTL_MIN_S:g} to {TTL_MAX_S:g} s"
            )
        return min(max(interval_s * attempts, TTL_MIN_S), TTL_MAX_S)


def check_unused(params: RendezvousParameters) -> None:
    """Check all settings, for nodes that meet nobody and use few of them.

    Raises:
        InputError: no backend accepts a value.
    """
    warn_of_unknown(params)
    times = Times(params)
    if params.config.keys() & KEEP_ALIVE_KEYS:
        times.lease_s()
    params.get_as_bool("is_host")


def warn_of_unknown(params: RendezvousParameters) -> None:
    """Warn about settings that the backend does not know. torchrun accepts any, so they do not end the job."""
    every = frozenset().union(*KEYS.values())
    is_anything = params.backend == STATIC.name and params.max_nodes == 1
    known = every if is_anything else KEYS.get(params.backend, every)
    for key in sorted(params.config.keys() - known):
        if known is not every:
            said = f"the backend {params.backend} has no such setting"
        else:
            said = "no backend has such a setting"
        log.warning("--rdzv-conf %s: %s%s", key, said, _advice(key, known))


def _advice(key: str, known: frozenset[str]) -> str:
    others = [backend for backend, keys in KEYS.items() if key in keys]
    if others:
        return f"; the backend {others[0]} has it"
    from difflib import get_close_matches

    nearest = get_close_matches(key.lower().replace("-", "_"), sorted(known), n=1)
    return f"; did you mean {nearest[0]}?" if nearest else ""


def _seconds(params: RendezvousParameters, key: str, default: float, least_s: float = 0.0) -> float:
    value = params.get(key, default)
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        raise InputError(f"--rdzv-conf {key}={value}: write a number of seconds") from None
    except OverflowError:
        seconds = float("inf")
    if not 0 < seconds < float("inf"):
        raise InputError(f"--rdzv-conf {key}={value}: must be more than 0 seconds")
    if seconds < least_s:
        raise InputError(f"--rdzv-conf {key}={value}: must be at least {least_s:g} s")
    return seconds


def _attempts(params: RendezvousParameters) -> int:
    default = BACKENDS.get(params.backend, EMBEDDED).keep_alive_attempts
    attempts = params.get_as_int("keep_alive_max_attempt", default)
    if attempts is None:
        return default
    if attempts < KEEP_ALIVE_ATTEMPTS_MIN:
        raise InputError(f"--rdzv-conf keep_alive_max_attempt={attempts}: must be at least {KEEP_ALIVE_ATTEMPTS_MIN}")
    return attempts
