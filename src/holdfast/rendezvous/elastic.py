"""Nodes that come and go: the handler between an agent, which waits, and a member of a group, which never does.

The member lives in a thread of its own with an event loop. It leaves word here and writes to an eventfd; the agent
waits for that together with all else that it waits for.
"""

from __future__ import annotations

import asyncio
import os
import select
import time
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from holdfast.coordination.blocking import BlockingStore, LoopThread
from holdfast.coordination.errors import CoordinationError, StoreRefusedError, StoreUnavailableError
from holdfast.coordination.mirror import Mirror, follow
from holdfast.coordination.model import Delete, Modified, Put, Transaction, absent
from holdfast.logger import get_logger
from holdfast.processes.interruption import SignalWakeUp, Uninterrupted, handlers
from holdfast.processes.keeper import poll_ms
from holdfast.rendezvous.addresses import own_addresses, told_to_others
from holdfast.rendezvous.errors import (
    JobFailedError,
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousGracefulExitError,
    RendezvousTimeoutError,
)
from holdfast.rendezvous.handler import RendezvousHandler, RendezvousInfo, RendezvousStoreInfo, RoundOver
from holdfast.rendezvous.hosting import Hosting
from holdfast.rendezvous.member import Member
from holdfast.rendezvous.membership import RETRY_S, Membership
from holdfast.rendezvous.records import (
    TEXT_MAX_CHARACTERS,
    End,
    EndKind,
    Failure,
    Keys,
    Node,
    StacksRequest,
    encode,
)
from holdfast.rendezvous.shared_store import SharedStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from holdfast.coordination.store import CoordinationStore
    from holdfast.errors import ProcessFailure
    from holdfast.rendezvous.decide import Leave, Stop
    from holdfast.rendezvous.elastic_settings import ElasticSettings
    from holdfast.rendezvous.records import Generation

SAY_AFTER_S = 2.0
"""How long a wait for other nodes goes on before people are told of it."""

LEAVE_TIMEOUT_S = 5.0
"""How long giving back the lease may take; it runs out by itself otherwise."""

log = get_logger(__name__)


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
        self._wanted: StacksRequest | None = None
        self._closing_reason = ""
        self._thread: LoopThread | None = None
        self._store: CoordinationStore | None = None
        self._member: Member | None = None
        self._hosting: Hosting | None = None
        self._fence: Callable[[float], None] | None = None
        self._saying: asyncio.TimerHandle | None = None
        self._status = ""
        # What the member says, for the agent to read after `_news` became readable.
        self._news = -1
        self._generation: Generation | None = None
        self._rank = -1
        self._has_started = False
        self._stop: Stop | None = None
        self._left: Leave | None = None
        self._error: Exception | None = None

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
        self._node = replace(self._node, role=role, workers=local_world_size)
        self._limits = replace(
            self._settings.limits,
            max_restarts=max_restarts,
            restart_window_s=restart_window_s,
            restart_policy=restart_policy,
        )

    def next_rendezvous(self) -> RendezvousInfo:
        if self._thread is None:
            self._news = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            self._thread = LoopThread()
        self._has_started = False
        self._thread.start(self._seek())
        while True:
            if self._error is not None:
                raise self._explained(self._error)
            if self._left is not None:
                raise self._reason_for_leaving(self._left)
            if self._has_started:
                return self._info()
            self._wait_for_news(None)

    def fileno(self) -> int:
        return self._news

    def round_over(self) -> RoundOver | None:
        self._drain()
        if self._error is not None:
            return RoundOver(str(self._explained(self._error)))
        stop = self._stop
        return None if stop is None else RoundOver(stop.reason, may_finish=stop.may_finish)

    def on_lease(self, fence: Callable[[float], None] | None) -> None:
        self._fence = fence
        if fence is not None and self._member is not None:
            fence(self._member.membership.fence_at)

    def report_failure(self, rank: int, failure: ProcessFailure, others: int = 0, node_rank: int | None = None) -> None:
        from holdfast.errors.summary import gist  # noqa: PLC0415 - only of a failure
        from holdfast.rendezvous.restarts import hopeless  # noqa: PLC0415 - likewise

        assert self._member is not None
        node = self._member.membership.me.node
        if node_rank is not None and self._generation is not None:
            node = self._generation.members[node_rank].node
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
        generation = self._generation
        assert self._store is not None
        assert self._thread is not None
        assert self._member is not None
        assert generation is not None
        me, view = self._member.membership.me, self._member.membership.view
        if view is None or view.generation is None or view.generation.number != generation.number:
            return False
        # One at a time: two nodes that wait for each other would not answer. One that is lost does not ask any more.
        guards = (Modified(self._keys.generation, view.generation_revision), absent(self._keys.broken))
        put = Put(self._keys.stacks, encode(StacksRequest(generation.number, request_id, me.node, reason)), me.lease)
        transaction = Transaction((*guards, absent(self._keys.end), absent(self._keys.stacks)), (put,))
        return self._thread.call(self._store.transact(transaction), LEAVE_TIMEOUT_S).succeeded

    def stacks_gathered(self) -> None:
        assert self._store is not None
        assert self._thread is not None
        self._thread.call(self._store.transact(Transaction((), (Delete(self._keys.stacks),))), LEAVE_TIMEOUT_S)

    def stacks_wanted(self) -> StacksRequest | None:
        wanted, self._wanted = self._wanted, None
        generation, member = self._generation, self._member
        if wanted is None or generation is None or member is None or wanted.generation != generation.number:
            return None
        return None if wanted.node == member.membership.me.node else wanted

    def wait_for_end(self, timeout_s: float) -> bool:
        assert self._member is not None
        deadline = time.monotonic() + timeout_s
        self._tell(self._member.succeed)
        while self._left is None and self._stop is None and self._error is None:
            if time.monotonic() >= deadline:
                raise TimeoutError(f"not done after {timeout_s:g} s: {', '.join(self._missing()) or 'other nodes'}")
            self._wait_for_news(deadline)
        end = None if self._left is None else self._left.end
        return end is not None and end.kind is EndKind.SUCCEEDED

    def is_closed(self) -> bool:
        member = self._member
        view = None if member is None else member.membership.view
        return view is not None and view.end is not None

    def set_closed(self) -> None:
        self._close(f"{self._node.host} closed the rendezvous")

    def num_nodes_waiting(self) -> int:
        """Known to the leader only, and to no purpose: nodes are let in when `round_over` says so."""
        member = self._member
        view = None if member is None else member.membership.view
        if view is None or view.generation is None or not view.is_whole:
            return 0
        return len(view.nodes.keys() - {each.node for each in view.generation.members})

    def explain(self, reason: str) -> None:
        self._closing_reason = reason

    def shutdown(self) -> bool:
        """Leave for good. A job that has not ended ends with that, unless the workers of this node are done."""
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

    def _wait_for_news(self, deadline: float | None) -> None:
        """Until the member has something to say, or the deadline; a signal raises."""
        poll = select.poll()
        poll.register(self._news, select.POLLIN)
        with Uninterrupted(), SignalWakeUp() as signals:
            if signals.fd is not None:
                poll.register(signals.fd, select.POLLIN)
            handlers.raise_pending(sections=1)
            poll.poll(None if deadline is None else poll_ms(deadline - time.monotonic()))
        self._drain()

    def _drain(self) -> None:
        if self._news >= 0:
            with suppress(BlockingIOError):
                os.eventfd_read(self._news)

    def _tell(self, method: Callable[..., None], *args: Any) -> None:
        assert self._thread is not None
        self._thread.loop.call_soon_threadsafe(method, *args)

    def _info(self) -> RendezvousInfo:
        generation = self._generation
        assert generation is not None
        assert self._store is not None
        assert self._thread is not None
        store = SharedStore(BlockingStore(self._store, self._thread), self._keys.values_of(generation.number))
        return RendezvousInfo(
            store,
            self._rank,
            len(generation.members),
            RendezvousStoreInfo(generation.master_address, generation.master_port),
            restart_count=generation.restarts,
            generation=generation.number,
            nodes=[(member.role, member.workers) for member in generation.members],
            coordinator_port=generation.coordinator_port,
            hosting=self._hosting,
            after=generation.after,
        )

    def _reason_for_leaving(self, left: Leave) -> Exception:
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

    def _reason_without_end(self, left: Leave) -> Exception:
        assert self._member is not None
        me = self._member.membership.me
        hint = "" if self._place.may_return else "; a job that meets in etcd (--rdzv-backend etcd) survives that"
        if me.store_is_gone:
            return RendezvousConnectionError(
                f"{self._place.name} is gone with the node that served it, and the job with it{hint}"
            )
        if me.cut_off_since is not None:
            patience_s = self._settings.limits.join_timeout_s
            return RendezvousConnectionError(f"{self._place.name} could not be reached for {patience_s:g} s{hint}")
        return RendezvousTimeoutError(f"{left.reason} (run {self._run_id!r}, {self._place.name})")

    def _explained(self, error: Exception) -> Exception:
        if isinstance(error, StoreRefusedError):
            return RendezvousConnectionError(str(error))
        if isinstance(error, CoordinationError):
            return RendezvousConnectionError(f"{self._place.name}: {error}")
        return error

    def _has_taken_part(self) -> bool:
        return self._member is not None and self._member.membership.has_joined

    def _missing(self) -> list[str]:
        """Who of the generation is not done, as far as the store can be asked."""
        generation = self._generation
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
        """End the job for all, and see that it is written."""
        member = self._member
        if self._thread is None or member is None or self._left is not None or self._error is not None:
            return
        self._tell(member.close, End(EndKind.CLOSED, reason))
        deadline = time.monotonic() + self._settings.close_timeout_s
        while self._left is None and self._error is None and time.monotonic() < deadline:
            self._wait_for_news(deadline)

    def _leave(self, patience_s: float) -> bool:
        """Give back the lease and let go of the store; its host first waits for the others to leave."""
        thread, self._thread = self._thread, None
        if thread is None:
            return True
        self._fence = None
        self._let_go()
        try:
            thread.call(self._end(patience_s), patience_s + LEAVE_TIMEOUT_S)
        except (CoordinationError, TimeoutError, OSError) as error:
            log.info("left %s without a farewell: %s", self._place.name, error)
            return False
        finally:
            thread.close()
            os.close(self._news)
            self._news = -1
        return True

    # In the member's thread

    async def _seek(self) -> None:
        try:
            await self._seek_a_place()
        except Exception as error:  # noqa: BLE001 - the agent waits for word, whatever happened here
            self.break_down(error)

    async def _seek_a_place(self) -> None:
        loop = asyncio.get_running_loop()
        if self._store is None:
            self._store = await self._place.open()
        if self._member is None:
            address = await self._find_address(self._store, loop)
            self._node = replace(self._node, address=address)
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
        # Fresh ports for each round: what is left of the last one must not be taken for this.
        self._let_go()
        self._hosting = Hosting(self._listens_on, serves_store=self._settings.agent_serves)
        self._node = replace(self._node, port=self._hosting.port, coordinator_port=self._hosting.coordinator_port)
        # Here, and not by the agent: the member may have stopped the last round after the agent was through with it.
        self._stop = None
        self._member.seek(self._node)

    async def _find_address(self, store: CoordinationStore, loop: asyncio.AbstractEventLoop) -> str:
        """The address that others reach this node at: what it was told, or where it reaches the store from."""
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
            else:
                address = self._local_addr or store.local_address() or self._node.host
                return told_to_others(address, self._place.hosts)

    async def _end(self, patience_s: float) -> None:
        if self._saying is not None:
            self._saying.cancel()
        try:
            if self._member is not None:
                await self._member.end()
            if self._store is not None and self._place.is_host and patience_s > 0:
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._others_left(self._store), patience_s)
        finally:
            if self._store is not None:
                await self._store.close()
            await self._place.close()

    async def _others_left(self, store: CoordinationStore) -> None:
        nodes = Mirror()
        async with aclosing(follow(store, self._keys.nodes)) as news:
            async for item in news:
                nodes.apply(item)
                if not nodes.entries:
                    return

    # What the member says, from its thread

    def start(self, generation: Generation) -> None:
        assert self._member is not None
        rank = generation.rank_of(self._member.membership.me.node)
        assert rank is not None
        if rank > 0:
            self._let_go()
        self._generation, self._rank, self._has_started = generation, rank, True
        self._hush()
        self._wake()

    def stop(self, reason: Stop) -> None:
        self._stop = reason
        self._wake()

    def leave_group(self, reason: Leave) -> None:
        self._left = reason
        self._wake()

    def fence(self, fence_at: float) -> None:
        fence = self._fence
        if fence is not None:
            fence(fence_at)

    def stacks(self, request: StacksRequest) -> None:
        self._wanted = request
        self._wake()

    def status(self, text: str) -> None:
        """Say what is waited for, once it takes long."""
        self._status = text
        if not text:
            self._hush()
        elif self._saying is None:
            self._saying = asyncio.get_running_loop().call_later(SAY_AFTER_S, self._say)

    def break_down(self, error: Exception) -> None:
        self._error = error
        self._wake()

    def _let_go(self) -> None:
        hosting, self._hosting = self._hosting, None
        if hosting is not None:
            hosting.close()

    def _say(self) -> None:
        log.warning("run %r: %s", self._run_id, self._status)

    def _hush(self) -> None:
        if self._saying is not None:
            self._saying.cancel()
            self._saying = None

    def _wake(self) -> None:
        if self._news >= 0:
            os.eventfd_write(self._news, 1)
