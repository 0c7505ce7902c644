"""Elastic rendezvous: the handler between an agent, which blocks, and a member of a group, which never does.

The member lives in a thread of its own with an event loop. Its messages go through a `Handover`, whose descriptor the
agent polls together with its other ones. The agent's requests run in the member's event loop.
"""

from __future__ import annotations

import asyncio
import os
import select
import threading
import time
from contextlib import aclosing, suppress
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from msgspec.structs import replace

from holdfast.coordination.blocking import BlockingStore, LoopThread
from holdfast.coordination.errors import CoordinationError, StoreRefusedError, StoreUnavailableError
from holdfast.coordination.mirror import Mirror, follow
from holdfast.coordination.model import Delete, Modified, Put, Transaction, absent
from holdfast.errors.tree import HoldfastError, InputError, PlatformError
from holdfast.logger import get_logger
from holdfast.processes.interruption import SignalWakeUp, Uninterrupted, handlers
from holdfast.rendezvous.addresses import own_addresses, told_to_others
from holdfast.rendezvous.elastic_settings import answer_timeout_s
from holdfast.rendezvous.errors import (
    JobFailedError,
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousGracefulExitError,
    RendezvousTimeoutError,
)
from holdfast.rendezvous.handler import RendezvousHandler, RendezvousInfo, RendezvousStoreInfo, RoundOver
from holdfast.rendezvous.handover import Broke, Handover, Left, StacksAsked, Started, Stopped
from holdfast.rendezvous.hosting import Hosting
from holdfast.rendezvous.last_will import LeaseWill
from holdfast.rendezvous.member import Member
from holdfast.rendezvous.member_addresses import addresses_of, interface_addresses
from holdfast.rendezvous.membership import RETRY_S, Membership
from holdfast.rendezvous.records import (
    TEXT_MAX_CHARACTERS,
    End,
    EndKind,
    Failure,
    Keys,
    Node,
    StacksRequest,
    differences,
    encode,
)
from holdfast.rendezvous.shared_store import SharedStore
from holdfast.waiting import poll_ms

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from holdfast.coordination.store import CoordinationStore
    from holdfast.errors import ProcessFailure
    from holdfast.processes.launch import LastWill
    from holdfast.rendezvous.decision import Leave, Stop
    from holdfast.rendezvous.elastic_settings import ElasticSettings
    from holdfast.rendezvous.handler import Meanwhile
    from holdfast.rendezvous.handover import Event
    from holdfast.rendezvous.records import Generation

SAY_AFTER_S = 2.0
"""How long a wait for other nodes lasts before it is logged."""

LEAVE_TIMEOUT_S = 5.0
"""How long giving back the lease may take; otherwise the lease expires."""

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
        self._place = settings.place
        self._local_addr = local_addr
        self._listens_on = ""
        self._keys = Keys(run_id)
        self._node = Node(os.uname().nodename, "", 0, "default", 1, settings.rank)
        self._limits = settings.limits
        self._closing_reason = ""
        self._thread: LoopThread | None = None
        self._store: CoordinationStore | None = None
        self._member: Member | None = None
        self._hosting: Hosting | None = None
        self._fence: Callable[[float], None] | None = None
        self._will: LeaseWill | None = None
        self._saying: asyncio.TimerHandle | None = None
        self._status = ""
        self._handover: Handover | None = None
        self._meanwhile: Meanwhile | None = None
        self._fence_lock = threading.Lock()
        self._warned_of = ""
        is_first = next(_handlers_made) == 0
        self._made_s = None if is_first else time.clock_gettime(time.CLOCK_BOOTTIME)

    # The interface

    def get_backend(self) -> str:
        return self._backend

    def get_run_id(self) -> str:
        return self._run_id

    @property
    def use_agent_store(self) -> bool:
        return self._settings.agent_serves

    def bring(
        self,
        role: str,
        local_world_size: int,
        max_restarts: int,
        restart_window_s: float = 0.0,
        restart_policy: str = "auto",
    ) -> None:
        limits = self._settings.limits
        fingerprint = replace(
            self._node.fingerprint,
            min_nodes=limits.min_nodes,
            max_nodes=limits.max_nodes,
            max_restarts=max_restarts,
        )
        self._node = replace(self._node, role=role, workers=local_world_size, fingerprint=fingerprint)
        self._limits = replace(
            self._settings.limits,
            max_restarts=max_restarts,
            restart_window_s=restart_window_s,
            restart_policy=restart_policy,
        )

    def identify(self, program: str, arguments: str) -> None:
        fingerprint = replace(self._node.fingerprint, program=program, arguments=arguments)
        self._node = replace(self._node, fingerprint=fingerprint)

    def next_rendezvous(self) -> RendezvousInfo:
        if self._thread is None:
            self._handover = Handover()
            self._thread = LoopThread(on_death=self._die)
            self._thread.loop.set_exception_handler(_log_uncaught)
        handover = self._news()
        handover.seek()
        self._raise_if_over(handover)
        with suppress(StoreUnavailableError):  # the thread has died, and reports that itself
            self._thread.start(self._seek())
        while handover.started is None:
            self._wait_for_news(None)
            self._raise_if_over(handover)
        self._warn_of_differences(handover.started.generation)
        return self._info()

    def fileno(self) -> int:
        return -1 if self._handover is None else self._handover.fileno()

    def round_over(self) -> RoundOver | None:
        match None if self._handover is None else self._handover.tell_end():
            case Broke(error=error):
                return RoundOver(str(self._explained(error)))
            case Stopped(reason=reason, may_finish=may_finish):
                return RoundOver(reason, may_finish=may_finish)
            case Left(reason=reason):
                return RoundOver(reason)
        return None

    def on_lease(self, fence: Callable[[float], None] | None) -> None:
        with self._fence_lock:  # a concurrent renewal must not be overwritten by this older fence
            self._fence = fence
            if fence is not None and self._member is not None:
                fence(self._member.membership.fence_at)

    def last_will(self) -> LastWill | None:
        if self._will is None and self._member is not None:
            ttl_s = self._settings.ttl_s
            self._will = LeaseWill(self._place.access(), answer_timeout_s(ttl_s), ttl_s)
            self._will.name_lease(self._member.membership.me.lease)
        return self._will

    def report_failure(self, rank: int, failure: ProcessFailure, others: int = 0, node_rank: int | None = None) -> None:
        from holdfast.errors.summary import gist
        from holdfast.rendezvous.restarts import hopeless

        assert self._member is not None
        node = self._member.membership.me.node
        generation = self._current()
        if node_rank is not None and generation is not None:
            node = generation.members[node_rank].node
        told = Failure(
            node=node,
            host=failure.host,
            rank=rank,
            local_rank=failure.local_rank,
            pid=failure.pid,
            exit_code=failure.exitcode,
            message=gist(failure)[-TEXT_MAX_CHARACTERS:],
            timestamp=failure.timestamp,
            error_file=failure.error_file if failure.has_error_file() else "",
            traceback=failure.message[-TEXT_MAX_CHARACTERS:],
            kind=failure.kind,
            where=failure.where,
            exception=failure.exception,
            log_file=failure.log_file,
            max_rss_kib=failure.max_rss_kib,
            ran_s=failure.ran_s,
            others=others,
            hopeless=hopeless(failure),
        )
        self._tell(self._member.fail, told)

    def ask_for_stacks(self, request_id: str, reason: str) -> bool:
        generation = self._current()
        assert generation is not None
        assert self._thread is not None
        return self._thread.call(self._ask_for_stacks(generation.number, request_id, reason), LEAVE_TIMEOUT_S)

    def stacks_gathered(self) -> None:
        assert self._store is not None
        assert self._thread is not None
        self._thread.call(self._store.transact(Transaction((), (Delete(self._keys.stacks),))), LEAVE_TIMEOUT_S)

    def stacks_wanted(self) -> StacksRequest | None:
        wanted = None if self._handover is None else self._handover.take_stacks()
        if wanted is None or self._member is None or wanted.node == self._member.membership.me.node:
            return None
        return wanted

    def wait_for_end(self, timeout_s: float) -> bool:
        assert self._member is not None
        deadline = time.monotonic() + timeout_s
        self._tell(self._member.succeed)
        while (over := self._news().tell_end()) is None:
            if time.monotonic() >= deadline:
                raise TimeoutError(f"not done after {timeout_s:g} s: {', '.join(self._missing()) or 'other nodes'}")
            self._wait_for_news(deadline, self._meanwhile)
            if self._meanwhile is not None:
                self._meanwhile.look()
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

    def do_meanwhile(self, meanwhile: Meanwhile) -> None:
        self._meanwhile = meanwhile

    def is_closed(self) -> bool:
        member = self._member
        view = None if member is None else member.membership.view
        return view is not None and view.end is not None

    def set_closed(self) -> None:
        self._close(f"{self._node.host} closed the rendezvous")

    def num_nodes_waiting(self) -> int:
        """Only the leader knows the number, and nothing depends on it: `round_over` says when nodes are let in."""
        if self._thread is None or self._member is None:
            return 0
        try:
            return self._thread.call(self._count_waiting(self._member.membership), LEAVE_TIMEOUT_S)
        except (CoordinationError, TimeoutError):
            return 0

    def explain(self, reason: str) -> None:
        self._closing_reason = reason

    def shutdown(self) -> bool:
        """Leave for good. This also ends a job that has not ended, unless the workers of this node are done."""
        member = self._member
        try:
            if member is not None and not self.is_closed() and not member.membership.me.is_done_published:
                self._close(self._closing_reason or f"{self._node.host} left")
        except BaseException:
            self._leave(0.0)
            raise
        return self._leave(self._settings.close_timeout_s)

    def announce_leave(self, reason: str) -> None:
        if self._member is not None and self._thread is not None:
            self._tell(self._member.announce_leave, f"{self._node.host} leaves: {reason}")

    def leave(self) -> None:
        self._leave(0.0)

    # In the agent's thread

    def _raise_if_over(self, handover: Handover) -> None:
        handover.take_in()
        if handover.broke is not None:
            raise self._explained(handover.broke.error)
        if handover.left is not None:
            raise self._reason_for_leaving(handover.left)

    def _news(self) -> Handover:
        assert self._handover is not None
        return self._handover

    def _current(self) -> Generation | None:
        """The generation of this agent's round, if it has one."""
        started = None if self._handover is None else self._handover.started
        return None if started is None else started.generation

    def _wait_for_news(self, deadline: float | None, meanwhile: Meanwhile | None = None) -> None:
        """Wait for a message from the member, for something to do, or for the deadline. A signal raises."""
        poll = select.poll()
        poll.register(self._news(), select.POLLIN)
        waits_s = [] if deadline is None else [deadline - time.monotonic()]
        if meanwhile is not None:
            meanwhile.register(poll)
            look_in_s = meanwhile.wait_s()
            waits_s += [] if look_in_s is None else [look_in_s]
        with Uninterrupted(), SignalWakeUp() as signals:
            if signals.fd is not None:
                poll.register(signals.fd, select.POLLIN)
            handlers.raise_pending(sections=1)
            poll.poll(poll_ms(min(waits_s, default=None)))

    def _tell(self, method: Callable[..., None], *args: Any) -> None:
        """Have the member do something. A dead member ignores it: `Broke` is in the queue, or will be."""
        assert self._thread is not None
        self._thread.tell(method, *args)

    def _info(self) -> RendezvousInfo:
        started = self._news().started
        assert started is not None
        assert self._store is not None
        assert self._thread is not None
        generation = started.generation
        store = SharedStore(BlockingStore(self._store, self._thread), self._keys.values_of(generation.number))
        return RendezvousInfo(
            store,
            started.rank,
            len(generation.members),
            RendezvousStoreInfo(generation.master_address, generation.master_port),
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

    def _warn_of_differences(self, generation: Generation) -> None:
        """Log, once per job, the settings in which this node differs from the node that began the job."""
        if generation.job == self._warned_of:
            return
        self._warned_of = generation.job
        for difference in differences(self._node.fingerprint, generation.fingerprint):
            log.warning("run %r: %s", self._run_id, difference)

    def _reason_for_leaving(self, left: Left) -> Exception:
        end = left.end
        if end is None:
            return self._reason_without_end(left)
        if end.kind is EndKind.SUCCEEDED and self._has_taken_part():
            return RendezvousGracefulExitError(end.reason)
        if not self._has_taken_part():
            return RendezvousClosedError(
                f"run {self._run_id!r} has ended before ({end.kind}: {end.reason}); give another --rdzv-id"
            )
        if end.failure is not None:
            return JobFailedError(end.reason, end.failure, end.victims, end.ruling)
        return RendezvousClosedError(end.reason)

    def _reason_without_end(self, left: Left) -> Exception:
        hint = "" if self._place.may_return else "; a job that meets in etcd (--rdzv-backend etcd) survives that"
        if left.is_refused:
            return InputError(f"--rdzv-id {self._run_id!r}: this node is not let in: {left.reason}")
        if left.store_is_gone and self._member is not None and self._member.replaced:
            return RendezvousConnectionError(f"{self._member.replaced}; this job ended with the old one{hint}")
        if left.store_is_gone:
            return RendezvousConnectionError(
                f"{self._place.name} is gone with the node that served it, and the job with it{hint}"
            )
        why = f": {self._member.trouble}" if self._member is not None and self._member.trouble else ""
        if left.is_cut_off:
            patience_s = self._settings.limits.join_timeout_s
            return RendezvousConnectionError(f"{self._place.name} could not be reached for {patience_s:g} s{why}{hint}")
        return RendezvousTimeoutError(f"{left.reason} (run {self._run_id!r}, {self._place.name}){why}")

    def _explained(self, error: BaseException) -> Exception:
        if isinstance(error, StoreRefusedError):
            return RendezvousConnectionError(str(error))
        if isinstance(error, CoordinationError):
            return RendezvousConnectionError(f"{self._place.name}: {error}")
        if isinstance(error, HoldfastError):
            return error
        explained = PlatformError(f"holdfast has a bug: {type(error).__name__}: {error}")
        explained.__cause__ = error
        return explained

    def _has_taken_part(self) -> bool:
        return self._member is not None and self._member.membership.has_joined

    def _missing(self) -> list[str]:
        """The members of the generation that are not done; none if the store does not answer."""
        generation = self._current()
        assert self._store is not None
        assert self._thread is not None
        if generation is None:
            return []
        try:
            done = self._thread.call(self._store.get_prefix(self._keys.done), LEAVE_TIMEOUT_S)
        except (CoordinationError, TimeoutError):
            return []
        nodes = {entry.key.rpartition("/")[2] for entry in done.entries}
        return [
            f"{member.host} (rank {rank})" for rank, member in enumerate(generation.members) if member.node not in nodes
        ]

    def _close(self, reason: str) -> None:
        """End the job for all nodes, and wait until that is written."""
        member, handover = self._member, self._handover
        if self._thread is None or member is None or handover is None:
            return
        end = End(EndKind.CLOSED, reason)
        deadline = time.monotonic() + self._settings.close_timeout_s
        self._tell(member.close, end)
        while True:
            handover.tell_end()
            if handover.broke is not None:
                self._close_without_member(handover.broke, end)
            if handover.broke is not None or handover.left is not None or time.monotonic() >= deadline:
                return
            self._wait_for_news(deadline)

    def _close_without_member(self, broke: Broke, end: End) -> None:
        """Write the end of the job after a bug has stopped the member: without it, the other nodes would wait."""
        if self._store is None or self._thread is None or isinstance(broke.error, (CoordinationError, HoldfastError)):
            return
        put = Put(self._keys.end, encode(end))
        with suppress(CoordinationError, TimeoutError):
            self._thread.call(self._store.transact(Transaction((absent(self._keys.end),), (put,))), LEAVE_TIMEOUT_S)

    def _leave(self, patience_s: float) -> bool:
        """Give back the lease and close the store. The host of the store first waits for the other nodes to leave."""
        thread, self._thread = self._thread, None
        if thread is None:
            return True
        self._fence = None
        try:
            thread.call(self._end(patience_s), patience_s + LEAVE_TIMEOUT_S)
        except (CoordinationError, TimeoutError, OSError) as error:
            log.info("left %s without a farewell: %s", self._place.name, error)
            return False
        finally:
            has_ended = thread.close()
            self._let_go()
            handover, self._handover = self._handover, None
            if has_ended and handover is not None:  # a live thread might still write to the descriptor
                handover.close()
            if has_ended and self._will is not None:  # as above
                self._will.close()
            self._will = None
        return True

    # In the member's thread

    async def _seek(self) -> None:
        try:
            await self._seek_a_place()
        except Exception as error:  # noqa: BLE001 - the agent waits for an answer, so every error must reach it
            if self._member is None:
                self.break_down(error)
            else:
                self._member.break_down(error)

    async def _seek_a_place(self) -> None:
        loop = asyncio.get_running_loop()
        if self._store is None:
            self._store = await self._place.open()
            self._look_for_an_end()
        if self._member is None:
            address = await self._find_address(self._store, loop)
            self._node = replace(self._node, address=address, addresses=interface_addresses())
            self._listens_on = (own_addresses(address) or [address])[0]
            membership = Membership(
                self._keys,
                self._limits,
                os.urandom(8).hex(),
                ttl_s=self._settings.ttl_s,
                keep_alive_s=self._settings.keep_alive_s,
                store_may_return=self._place.may_return,
            )
            self._member = Member(membership, self._store, self)
        # Fresh ports for each round: leftovers of the last round must not be mistaken for this one.
        self._let_go()
        self._hosting = Hosting(
            self._listens_on, serves_store=self._settings.agent_serves, access=self._settings.access
        )
        self._node = replace(self._node, port=self._hosting.port, coordinator_port=self._hosting.coordinator_port)
        self._member.seek(self._node)

    def _look_for_an_end(self) -> None:
        """If this node serves a new store, check whether the job has already ended, and its old store with it.

        Raises:
            RendezvousClosedError: the job has ended.
        """
        if not self._place.is_host:
            return
        from holdfast.rendezvous.ended_runs import RECENT_S, find_end, is_late, seconds_ago

        note = find_end(self._run_id, self._place.name)
        if note is None:
            return
        if is_late(note, made_s=self._made_s):
            raise RendezvousClosedError(
                f"run {self._run_id!r} has ended before this agent could join it ({note.kind}: {note.reason})"
            )
        if seconds_ago(note) < RECENT_S:
            log.warning(
                "run %r ended here %.0f s ago (%s); this agent begins it anew",
                *(self._run_id, seconds_ago(note), note.kind),
            )

    def _note_end(self) -> None:
        view = None if self._member is None else self._member.membership.view
        if self._place.is_host and view is not None and view.end is not None:
            from holdfast.rendezvous.ended_runs import note_end

            note_end(self._run_id, self._place.name, view.end)

    async def _find_address(self, store: CoordinationStore, loop: asyncio.AbstractEventLoop) -> str:
        """The address of this node for other nodes: the configured one, or our end of the connection to the store."""
        patience_s = self._settings.limits.join_timeout_s
        began = loop.time()
        said = False
        while True:
            try:
                await store.get(self._keys.end)
            except StoreUnavailableError as error:
                if loop.time() >= began + patience_s:
                    raise RendezvousTimeoutError(
                        f"{self._place.name} could not be reached for {patience_s:g} s: {error}"
                    ) from None
                if not said and loop.time() >= began + SAY_AFTER_S:
                    said = True
                    log.warning("%s is not there yet: %s; still trying", self._place.name, error)
                await asyncio.sleep(RETRY_S)
                if error.is_gone:
                    await self._place.look_again()
                    self._look_for_an_end()
            else:
                address = self._local_addr or store.local_address() or self._node.host
                return told_to_others(address, self._place.hosts)

    async def _ask_for_stacks(self, generation: int, request_id: str, reason: str) -> bool:
        assert self._store is not None
        assert self._member is not None
        me, view = self._member.membership.me, self._member.membership.view
        if view is None or view.generation is None or view.generation.number != generation:
            return False
        # One request at a time: two nodes that wait for each other would not answer. The request is bound to the lease,
        # so it disappears with a node that is lost.
        guards = (Modified(self._keys.generation, view.generation_revision), absent(self._keys.broken))
        put = Put(self._keys.stacks, encode(StacksRequest(generation, request_id, me.node, reason)), me.lease)
        transaction = Transaction((*guards, absent(self._keys.end), absent(self._keys.stacks)), (put,))
        return (await self._store.transact(transaction)).succeeded

    async def _count_waiting(self, membership: Membership) -> int:
        view = membership.view
        if view is None or view.generation is None or not view.is_whole:
            return 0
        return len(view.nodes.keys() - {each.node for each in view.generation.members})

    async def _end(self, patience_s: float) -> None:
        self._hush()
        self._let_go()
        try:
            try:
                if self._member is not None:
                    await self._member.end()
            finally:  # even if our own lease could not be given back: other nodes may still have to read the end
                if self._store is not None and self._place.is_host and patience_s > 0:
                    with suppress(asyncio.TimeoutError):
                        await asyncio.wait_for(self._others_left(self._store), patience_s)
        finally:
            self._note_end()
            if self._store is not None:
                await self._store.close()
            await self._place.close()

    async def _die(self, error: BaseException) -> None:
        """Report that a bug ended the event loop. Nothing gives back the lease: it expires."""
        self.break_down(error)
        if self._store is not None:
            await self._store.close()
        await self._place.close()

    async def _others_left(self, store: CoordinationStore) -> None:
        while True:
            nodes = Mirror()
            try:
                async with aclosing(follow(store, self._keys.nodes)) as news:
                    async for item in news:
                        nodes.apply(item)
                        if not nodes.entries:
                            return
            except StoreUnavailableError:  # a busy machine may lose even its loopback connection
                pass
            await asyncio.sleep(RETRY_S)

    # Called by the member, in its thread

    def start(self, generation: Generation) -> None:
        assert self._member is not None
        rank = generation.rank_of(self._member.membership.me.node)
        assert rank is not None
        if rank > 0:
            self._let_go()
        elif self._hosting is not None:
            find_others = partial(self._find_others, generation, self._hosting)
            self._hosting.restrict([member.address for member in generation.members], find_others)
        self._hush()
        self._say(Started(generation, rank, self._hosting))

    def stop(self, reason: Stop) -> None:
        assert self._member is not None
        self._say(Stopped(self._member.membership.me.running, reason.reason, reason.may_finish))

    def leave_group(self, reason: Leave) -> None:
        assert self._member is not None
        me = self._member.membership.me
        is_cut_off = me.cut_off_since is not None
        self._say(
            Left(
                reason.end,
                reason.reason,
                me.store_is_gone,
                is_cut_off,
                me.is_done_published,
                is_refused=reason.is_refused,
            )
        )

    def fence(self, fence_at: float) -> None:
        if self._will is not None and self._member is not None:
            self._will.name_lease(self._member.membership.me.lease)
        with self._fence_lock:
            if self._fence is not None:
                self._fence(fence_at)

    def stacks(self, request: StacksRequest) -> None:
        self._say(StacksAsked(request))

    def status(self, text: str) -> None:
        """Log the status if the wait takes long."""
        self._status = text
        if not text:
            self._hush()
        elif self._saying is None:
            self._saying = asyncio.get_running_loop().call_later(SAY_AFTER_S, self._say_status)

    def break_down(self, error: BaseException) -> None:
        is_recorded = self._member is not None and self._member.membership.me.is_done_published
        self._say(Broke(error, is_recorded))

    def _find_others(self, generation: Generation, hosting: Hosting) -> None:
        """Admit all addresses of members, after a connection from an unknown one. Runs in the thread of that store."""
        thread = self._thread
        if thread is not None:
            with suppress(StoreUnavailableError):  # this agent leaves, and closes the workers' store
                thread.start(self._admit(generation, hosting))

    async def _admit(self, generation: Generation, hosting: Hosting) -> None:
        """Let the members of a generation use the workers' store from all their addresses."""
        assert self._store is not None
        assert self._member is not None
        while hosting.store is not None:
            try:
                nodes = await self._store.get_prefix(self._keys.nodes)
                hosting.admit(await addresses_of(generation.members, nodes.entries))
            except CoordinationError:
                await asyncio.sleep(RETRY_S)
            except Exception as error:  # noqa: BLE001 - a worker waits for this, so every error must be reported
                self._member.break_down(error)
                return
            else:
                return

    def _let_go(self) -> None:
        hosting, self._hosting = self._hosting, None
        if hosting is not None:
            hosting.close()

    def _say(self, event: Event) -> None:
        handover = self._handover
        if handover is not None:  # an agent that has left no longer listens
            handover.tell(event)

    def _say_status(self) -> None:
        log.warning("run %r: %s", self._run_id, self._status)

    def _hush(self) -> None:
        if self._saying is not None:
            self._saying.cancel()
            self._saying = None


def _log_uncaught(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an exception in a callback or task that nothing awaits.

    It does not end the job: a peer may have caused it, and the member handles its own exceptions.
    """
    log.error("holdfast has a bug, and goes on: %s", context.get("message"), cause=context.get("exception"))
