"""One node's session in a store: from opening the store to giving back the lease.

Everything here runs in the member's thread, on its event loop. The agent's thread gets events through `tell`.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from holdfast.coordination.errors import CoordinationError, StoreReplacedError, StoreUnavailableError
from holdfast.coordination.mirror import Mirror, follow
from holdfast.coordination.model import Delete, Modified, Put, Transaction, absent
from holdfast.logger import get_logger
from holdfast.rendezvous.addresses import own_addresses, told_to_others
from holdfast.rendezvous.errors import RendezvousClosedError, RendezvousStateError, RendezvousTimeoutError
from holdfast.rendezvous.group_listener import SAY_AFTER_S, GroupListener
from holdfast.rendezvous.handler import StacksOccasion
from holdfast.rendezvous.handover import Broke, Reached
from holdfast.rendezvous.member import Member
from holdfast.rendezvous.member_addresses import interface_addresses
from holdfast.rendezvous.membership import RETRY_S, Membership
from holdfast.rendezvous.records import Keys, Node, StacksRequest, decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from holdfast.coordination.store import CoordinationStore
    from holdfast.rendezvous.decision import Me, Settings
    from holdfast.rendezvous.elastic_settings import ElasticSettings
    from holdfast.rendezvous.fencing import Fencing
    from holdfast.rendezvous.handover import Event
    from holdfast.rendezvous.reasons import Reasons
    from holdfast.rendezvous.records import End, Failure, Generation

log = get_logger(__name__)


class Session:
    """A node in a group, with its store. `store` is set once the store is open."""

    def __init__(
        self,
        settings: ElasticSettings,
        reasons: Reasons,
        fencing: Fencing,
        *,
        tell: Callable[[Event], None],
        start_in_loop: Callable[[Coroutine[Any, Any, None]], object],
        local_addr: str | None = None,
        made_s: float | None = None,
    ) -> None:
        """`made_s` is when the agent began, on the boot clock, if it is not the first one in its process."""
        self.store: CoordinationStore | None = None
        self._settings = settings
        self._place = settings.place
        self._reasons = reasons
        self._run_id = reasons.run_id
        self._keys = Keys(settings.group)
        self._fencing = fencing
        self._tell = tell
        self._start_in_loop = start_in_loop
        self._local_addr = local_addr
        self._made_s = made_s
        self._membership: Membership | None = None
        self._listener: GroupListener | None = None
        self._address = ""
        self._addresses: tuple[str, ...] = ()
        self._listens_on = ""

    # Words of the agent. Before the node takes part, nobody hears them.

    async def seek(self, node: Node, limits: Settings) -> None:
        """Seek a place in the next round. Every error is told."""
        try:
            await self._seek_a_place(node, limits)
        except Exception as error:  # noqa: BLE001 - the agent waits for an answer, so every error must reach it
            if self._listener is None:
                self._tell(Broke(error))
            else:
                self._listener.member.break_down(error)

    def fail(self, failure: Failure) -> None:
        """A worker failed: of this node, unless the failure names another one."""
        if self._listener is not None and self._membership is not None:
            node = failure.node or self._membership.me.node
            self._listener.member.fail(replace(failure, node=node))

    def succeed(self) -> None:
        if self._listener is not None:
            self._listener.member.succeed()

    def announce_leave(self, reason: str) -> None:
        if self._listener is not None:
            self._listener.member.announce_leave(reason)

    def close_job(self, end: End) -> None:
        if self._listener is not None:
            self._listener.member.close(end)

    # Questions of the agent

    async def ask_for_stacks(
        self, generation: int, request_id: str, reason: str, occasion: StacksOccasion = StacksOccasion.REQUEST
    ) -> bool:
        """Ask the other nodes for their stacks; False if another node has asked before, or the round is over."""
        membership, store = self._membership, self.store
        assert membership is not None
        assert store is not None
        me, view = membership.me, membership.view
        if view is None or view.generation is None or view.generation.number != generation:
            return False
        # One request at a time: two nodes that wait for each other would not answer. The request is bound to the lease,
        # so it disappears with a node that is lost.
        guards = (Modified(self._keys.generation, view.generation_revision), absent(self._keys.broken))
        request = StacksRequest(generation, request_id, me.node, reason, occasion)
        put = Put(self._keys.stacks, encode(request), me.lease)
        transaction = Transaction((*guards, absent(self._keys.end), absent(self._keys.stacks)), (put,))
        return (await store.transact(transaction)).succeeded

    async def stacks_gathered(self) -> None:
        assert self.store is not None
        await self.store.transact(Transaction((), (Delete(self._keys.stacks),)))

    async def count_waiting(self) -> int:
        """How many nodes wait to be let in, if this node leads; 0 if it does not."""
        view = None if self._membership is None else self._membership.view
        if view is None or view.generation is None or not view.is_whole:
            return 0
        return len(view.nodes.keys() - {each.node for each in view.generation.members})

    async def missing(self, generation: Generation) -> list[str]:
        """The members of a generation that are not done."""
        assert self.store is not None
        done = await self.store.get_prefix(self._keys.done)
        nodes = {entry.key.rpartition("/")[2] for entry in done.entries}
        return [
            f"{member.host} (rank {rank})" for rank, member in enumerate(generation.members) if member.node not in nodes
        ]

    async def write_end(self, end: End) -> None:
        """Write the end of the job without the member: after a bug in it, the other nodes would wait."""
        if self.store is not None:
            await self.store.transact(Transaction((absent(self._keys.end),), (Put(self._keys.end, encode(end)),)))

    # The course of a session

    async def _seek_a_place(self, node: Node, limits: Settings) -> None:
        if self._listener is None:
            store, self._address = await self._reach(node.host)
            self._addresses = interface_addresses()
            self._listens_on = (own_addresses(self._address) or [self._address])[0]
            self._listener = self._take_part(store, limits)
        listener, membership = self._listener, self._membership
        assert membership is not None
        offer = replace(node, address=self._address, addresses=self._addresses)
        listener.member.seek(self._with_ports(listener, offer))
        self._fencing.begin(membership.me.lease, membership.fence_at)

    def _with_ports(self, listener: GroupListener, offer: Node) -> Node:
        """The offer with the ports that this node holds if it can become the master."""
        master = self._settings.master
        if master is not None and offer.rank != 0:
            return offer
        ports = listener.offer_ports(
            self._listens_on,
            0 if master is None else master[1],
            serves_store=self._settings.agent_serves,
            access=self._settings.access,
        )
        return replace(offer, port=ports.port, coordinator_port=ports.coordinator_port)

    def _take_part(self, store: CoordinationStore, limits: Settings) -> GroupListener:
        membership = self._membership = Membership(
            self._keys,
            limits,
            os.urandom(8).hex(),
            ttl_s=self._settings.ttl_s,
            keep_alive_s=self._settings.keep_alive_s,
            store_may_return=self._place.may_return,
        )
        listener = GroupListener(
            self._run_id,
            self._keys,
            membership,
            store,
            tell=self._tell,
            start_in_loop=self._start_in_loop,
            fencing=self._fencing,
            shares_stacks=self._place.has_trust,
        )
        listener.member = Member(membership, store, listener)
        self._tell(Reached())
        return listener

    def _look_for_an_end(self) -> None:
        """If this node serves a new store, check whether the job has already ended, and its old store with it.

        Raises:
            RendezvousClosedError: the job has ended.
        """
        if not self._place.is_host or self._place.is_of_one_job:
            return
        from holdfast.rendezvous.ended_runs import RECENT_S, find_end, is_late, seconds_ago

        note = find_end(self._run_id, self._place.name)
        if note is None:
            return
        if is_late(note, made_s=self._made_s):
            raise RendezvousClosedError(
                f"run {self._run_id!r} ended before this agent could join it ({note.kind}: {note.reason})"
            )
        if seconds_ago(note) < RECENT_S:
            log.warning(
                "run %r ended here %.0f s ago (%s); starting it again",
                *(self._run_id, seconds_ago(note), note.kind),
            )

    async def _reach(self, host: str) -> tuple[CoordinationStore, str]:
        """A store that answers, and the address of this node for other nodes.

        The address is the configured one, or our end of the connection to the store.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        has_said = False
        while True:
            store = self.store = self.store or await self._open()
            try:
                end = await store.get(self._keys.end)
            except StoreUnavailableError as error:
                has_said = await self._wait_for_store(error, began, has_said=has_said)
                continue
            if end is None or not self._place.is_of_one_job:
                return store, self._address_of(store, host)
            # The store of the job before, which its node serves until all have left. Ours comes after it.
            if loop.time() >= began + self._settings.limits.join_timeout_s:
                raise RendezvousTimeoutError(f"{self._place.name} still serves a job that has ended")
            await self._drop_store()
            await asyncio.sleep(RETRY_S)

    async def _wait_for_store(self, error: StoreUnavailableError, began: float, *, has_said: bool) -> bool:
        """Wait for a store that does not answer. Returns whether a line has said so.

        Raises:
            RendezvousTimeoutError: it has not answered for the join timeout.
        """
        waited_s = asyncio.get_running_loop().time() - began
        is_too_late = waited_s >= self._settings.limits.join_timeout_s
        if not has_said and (is_too_late or waited_s >= SAY_AFTER_S):
            await self._place.look_who_listens()
        if is_too_late:
            raise RendezvousTimeoutError(f"{self._reasons.unreachable(str(error))}{self._place.advice}") from None
        if not has_said and waited_s >= SAY_AFTER_S:
            has_said = True
            log.warning("run %r: %s; still trying%s", self._run_id, error, self._place.advice)
        if isinstance(error, StoreReplacedError):  # nobody has taken part in the old one here
            await self._drop_store()
        await asyncio.sleep(RETRY_S)
        if error.is_gone:
            await self._place.look_again()
            self._look_for_an_end()
        return has_said

    async def _drop_store(self) -> None:
        store, self.store = self.store, None
        if store is not None:
            await store.close()

    async def _open(self) -> CoordinationStore:
        store = self.store = await self._place.open()
        self._look_for_an_end()
        return store

    def _address_of(self, store: CoordinationStore, host: str) -> str:
        master = self._settings.master
        if master is not None and self._place.is_host:
            return master[0]  # as all nodes were told it
        return told_to_others(self._local_addr or store.local_address() or host, self._place.hosts)

    async def end(self, patience_s: float, saving_s: float = 0.0) -> None:
        """Give back the lease, and close the store. Its host first waits for the other nodes to leave.

        If it has told them that it leaves, it also waits until their workers, which may be saving, have ended.
        """
        if self.store is not None and self._membership is not None and self._place.is_host and saving_s > 0:
            await _wait_for_savers(self.store, self._keys, self._membership.me, saving_s)
        self.let_go()
        try:
            try:
                if self._listener is not None:
                    self._listener.hush()
                    await self._listener.member.end()
            finally:  # even if our own lease could not be given back: other nodes may still have to read the end
                if self.store is not None and self._place.is_host and patience_s > 0:
                    with suppress(asyncio.TimeoutError):
                        await asyncio.wait_for(_others_left(self.store, self._keys.nodes), patience_s)
        finally:
            self._note_end()
            await self._close_store()

    async def die(self, error: BaseException) -> None:
        """Tell that a bug ended the event loop. Nothing gives back the lease: it expires."""
        if self._listener is None:
            self._tell(Broke(error))
        else:
            self._listener.break_down(error)
        await self._close_store()

    def let_go(self) -> None:
        """Close the ports of the round."""
        if self._listener is not None:
            self._listener.let_go()

    async def _close_store(self) -> None:
        if self.store is not None:
            await self.store.close()
        await self._place.close()

    def _note_end(self) -> None:
        view = None if self._membership is None else self._membership.view
        if self._place.is_host and not self._place.is_of_one_job and view is not None and view.end is not None:
            from holdfast.rendezvous.ended_runs import note_end

            note_end(self._run_id, self._place.name, view.end)


async def _others_left(store: CoordinationStore, nodes_prefix: str) -> None:
    """Wait until no node is registered in the store."""
    while True:
        nodes = Mirror()
        try:
            async with aclosing(follow(store, nodes_prefix)) as news:
                async for item in news:
                    nodes.apply(item)
                    if not nodes.entries:
                        return
        except (StoreUnavailableError, ValueError):  # a busy machine; or more records than an answer holds
            pass
        await asyncio.sleep(RETRY_S)


async def _wait_for_savers(store: CoordinationStore, keys: Keys, me: Me, patience_s: float) -> None:
    """Wait until the workers of the other members have ended, or their nodes have left."""
    if me.last is None:
        return
    others = [member.node for member in me.last.members if member.node != me.node]
    with suppress(asyncio.TimeoutError, CoordinationError, RendezvousStateError, ValueError):
        async with asyncio.timeout(patience_s):
            await _have_stopped(store, keys, others, me.last.number)


async def _have_stopped(store: CoordinationStore, keys: Keys, nodes: list[str], generation: int) -> None:
    """Wait until these nodes have said that their workers of the generation have ended, or have left."""
    records = Mirror()
    async with aclosing(follow(store, keys.nodes)) as news:
        async for item in news:
            records.apply(item)
            there = [records.entries[keys.node(node)] for node in nodes if keys.node(node) in records.entries]
            if all(decode(entry, Node).stopped >= generation for entry in there):
                return
