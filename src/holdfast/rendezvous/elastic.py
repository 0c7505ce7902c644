"""Elastic rendezvous: the handler that an agent uses to meet other nodes in a store.

Everything here runs in the agent's thread, which may block. The node's session in the store has a thread of its own,
beyond the `Bridge`.
"""

from __future__ import annotations

import os
import time
from itertools import count
from typing import TYPE_CHECKING

from msgspec.structs import replace

from holdfast.coordination.errors import CoordinationError
from holdfast.logger import get_logger
from holdfast.rendezvous.bridge import Bridge
from holdfast.rendezvous.elastic_settings import answer_timeout_s
from holdfast.rendezvous.fencing import Fencing
from holdfast.rendezvous.handler import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousStoreInfo,
    RoundOver,
    StacksOccasion,
)
from holdfast.rendezvous.handover import Broke, Left, Stopped
from holdfast.rendezvous.last_will import LeaseWill
from holdfast.rendezvous.reasons import Reasons
from holdfast.rendezvous.records import End, EndKind, Keys, Node, differences
from holdfast.rendezvous.shared_store import SharedStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.errors import ProcessFailure
    from holdfast.processes.launch import LastWill
    from holdfast.rendezvous.elastic_settings import ElasticSettings
    from holdfast.rendezvous.handler import Meanwhile
    from holdfast.rendezvous.handover import Started
    from holdfast.rendezvous.records import StacksRequest
    from holdfast.settings import JobSettings

log = get_logger(__name__)

_handlers_made = count()
"""The number of handlers that this process has made."""


class ElasticRendezvous(RendezvousHandler):
    """Meets other nodes in a store. For one agent and one thread."""

    needs_polling = False
    counts_restarts = True

    def __init__(self, backend: str, run_id: str, settings: ElasticSettings, local_addr: str | None = None) -> None:
        self._backend = backend
        self._run_id = run_id
        self._settings = settings
        self._local_addr = local_addr
        self._node = Node(os.uname().nodename, "", 0, "default", 1, settings.rank)
        self._limits = settings.limits
        self._closing_reason = ""
        self._meanwhile: Meanwhile | None = None
        self._warned_of = ""
        self._has_announced = False
        self._saving_s = 0.0
        self._bridge: Bridge | None = None
        place, ttl_s = settings.place, settings.ttl_s
        who = f"--node-rank {settings.rank}" if settings.limits.has_given_ranks else ""
        self._reasons = Reasons(run_id, place.name, place.may_return, settings.limits.join_timeout_s, who)
        self._fencing = Fencing(lambda: LeaseWill(place.access(), answer_timeout_s(ttl_s), ttl_s))
        is_first = next(_handlers_made) == 0
        self._made_s = None if is_first else time.clock_gettime(time.CLOCK_BOOTTIME)

    def get_backend(self) -> str:
        return self._backend

    def get_run_id(self) -> str:
        return self._run_id

    @property
    def shares_stacks(self) -> bool:  # type: ignore[override]  # a plain attribute for other handlers
        return self._settings.place.has_trust

    @property
    def use_agent_store(self) -> bool:
        return self._settings.agent_serves

    def bring(self, settings: JobSettings) -> None:
        limits = self._settings.limits
        fingerprint = replace(
            self._node.fingerprint,
            min_nodes=limits.min_nodes,
            max_nodes=limits.max_nodes,
            max_restarts=settings.max_restarts,
        )
        workers = settings.nproc_per_node
        self._saving_s = settings.stop_grace + (settings.shutdown_timeout or 0.0)
        self._node = replace(self._node, role=settings.role, workers=workers, fingerprint=fingerprint)
        self._limits = replace(limits, max_restarts=settings.max_restarts, restarts=settings.restart_limits)

    def identify(self, program: str, arguments: str) -> None:
        if self._settings.limits.has_given_ranks:
            return  # such nodes may run different programs, as under torchrun
        fingerprint = replace(self._node.fingerprint, program=program, arguments=arguments)
        self._node = replace(self._node, fingerprint=fingerprint)

    def next_rendezvous(self) -> RendezvousInfo:
        bridge = self._bridge
        if bridge is None or not bridge.is_open:
            bridge = Bridge(self._settings, self._reasons, self._fencing, self._local_addr, self._made_s)
            self._bridge = bridge
        self._has_announced = False
        bridge.news.seek()
        self._reasons.raise_if_over(bridge.news)
        bridge.start(bridge.session.seek(self._node, self._limits))
        while (started := bridge.news.started) is None:
            bridge.wait(None)
            self._reasons.raise_if_over(bridge.news)
        if started.generation.job != self._warned_of:  # once per job
            self._warned_of = started.generation.job
            for difference in differences(self._node.fingerprint, started.generation.fingerprint):
                log.warning("run %r: %s", self._run_id, difference)
        return round_info(started, self._settings, bridge)

    def fileno(self) -> int:
        bridge = self._bridge
        return -1 if bridge is None or not bridge.is_open else bridge.news.fileno()

    def round_over(self) -> RoundOver | None:
        bridge = self._bridge
        match None if bridge is None or not bridge.is_open else bridge.news.tell_end():
            case Broke(error=error):
                return RoundOver(str(self._reasons.of_error(error)))
            case Stopped(reason=reason, may_finish=may_finish):
                return RoundOver(reason, may_finish=may_finish)
            case Left(reason=reason):
                return RoundOver(reason)
        return None

    def on_lease(self, fence: Callable[[float], None] | None) -> None:
        self._fencing.on_lease(fence)

    def last_will(self) -> LastWill | None:
        return self._fencing.last_will()

    def report_failure(self, rank: int, failure: ProcessFailure, others: int = 0, node_rank: int | None = None) -> None:
        from holdfast.rendezvous.failure_record import to_record

        bridge = self._bridge
        assert bridge is not None
        started = bridge.news.started
        node = "" if node_rank is None or started is None else started.generation.members[node_rank].node
        bridge.tell(bridge.session.fail, to_record(failure, rank=rank, node=node, others=others))

    def ask_for_stacks(self, request_id: str, reason: str, occasion: StacksOccasion = StacksOccasion.REQUEST) -> bool:
        bridge = self._bridge
        assert bridge is not None
        assert bridge.news.started is not None
        generation = bridge.news.started.generation.number
        return bridge.ask(bridge.session.ask_for_stacks(generation, request_id, reason, occasion))

    def stacks_gathered(self) -> None:
        assert self._bridge is not None
        self._bridge.ask(self._bridge.session.stacks_gathered())

    def stacks_wanted(self) -> StacksRequest | None:
        bridge = self._bridge
        return None if bridge is None or not bridge.is_open else bridge.news.take_stacks()

    def wait_for_end(self, timeout_s: float) -> bool:
        bridge = self._bridge
        assert bridge is not None
        deadline = time.monotonic() + timeout_s
        bridge.tell(bridge.session.succeed)
        while (over := bridge.news.tell_end()) is None:
            if time.monotonic() >= deadline:
                missing = ", ".join(missing_nodes(bridge)) or "other nodes"
                raise TimeoutError(f"not done after {timeout_s:g} s: {missing}")
            bridge.wait(deadline, self._meanwhile)
            if self._meanwhile is not None:
                self._meanwhile.look()
        return is_success(over)

    def do_meanwhile(self, meanwhile: Meanwhile) -> None:
        self._meanwhile = meanwhile

    def is_closed(self) -> bool:
        return self._bridge is not None and self._bridge.is_closed()

    def set_closed(self) -> None:
        if self._bridge is not None and self._bridge.is_open:
            end = End(EndKind.CLOSED, f"{self._node.host} closed the rendezvous")
            self._bridge.close_job(end, self._settings.close_timeout_s)

    def num_nodes_waiting(self) -> int:
        """Only the leader knows the number, and nothing depends on it: `round_over` says when nodes are let in."""
        bridge = self._bridge
        if bridge is None or not bridge.is_open:
            return 0
        try:
            return bridge.ask(bridge.session.count_waiting())
        except (CoordinationError, TimeoutError):
            return 0

    def explain(self, reason: str) -> None:
        self._closing_reason = reason

    def shutdown(self) -> bool:
        """Leave for good. This also ends a job that has not ended, unless the workers of this node are done."""
        bridge = self._bridge
        if bridge is None:
            return True
        try:
            if bridge.is_open and not bridge.is_closed() and not bridge.news.is_recorded:
                end = End(EndKind.CLOSED, self._closing_reason or f"{self._node.host} left")
                bridge.close_job(end, self._settings.close_timeout_s)
        except BaseException:
            bridge.leave(0.0)
            raise
        return bridge.leave(self._settings.close_timeout_s)

    def announce_leave(self, reason: str) -> None:
        if self._bridge is not None and self._bridge.is_open:
            self._has_announced = True
            self._bridge.tell(self._bridge.session.announce_leave, f"{self._node.host} leaves: {reason}")

    def leave(self) -> None:
        if self._bridge is not None:
            self._bridge.leave(0.0, self._saving_s if self._has_announced else 0.0)


def round_info(started: Started, settings: ElasticSettings, bridge: Bridge) -> RendezvousInfo:
    """A round that has started, as an agent knows rounds."""
    generation = started.generation
    return RendezvousInfo(
        SharedStore(bridge.blocking_store(), Keys(settings.group).values_of(generation.number)),
        started.rank,
        len(generation.members),
        RendezvousStoreInfo(*(settings.master or (generation.master_address, generation.master_port))),
        restart_count=generation.restarts,
        generation=generation.number,
        nodes=[(member.role, member.workers) for member in generation.members],
        coordinator_port=generation.coordinator_port,
        hosting=started.hosting,
        after=generation.after,
        max_restarts=generation.max_restarts,
        job=generation.job,
        lost=generation.lost,
    )


def missing_nodes(bridge: Bridge) -> list[str]:
    """The members of the round that are not done; none if the store does not answer."""
    started = bridge.news.started
    if started is None:
        return []
    try:
        return bridge.ask(bridge.session.missing(started.generation))
    except (CoordinationError, TimeoutError):
        return []


def is_success(over: Stopped | Left | Broke) -> bool:
    """Whether a node whose workers are done has succeeded. If not, the round is over for another reason."""
    if isinstance(over, Left) and over.end is not None:
        return over.end.kind is EndKind.SUCCEEDED
    if isinstance(over, Stopped) or not over.is_recorded:
        return False
    if isinstance(over, Broke) and not isinstance(over.error, CoordinationError):
        return False
    # The store has recorded that our workers succeeded: however the job ends, this node did not fail.
    why = over.reason if isinstance(over, Left) else str(over.error)
    log.warning(
        "the workers of this node are done, and that is recorded; the end of the job could not be read: %s", why
    )
    return True
