"""The listener of a member: what happens to the node in its group, as events for the agent's thread.

It also holds the ports that the node offers for each round, because only a node of rank 0 keeps them.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from holdfast.coordination.errors import CoordinationError
from holdfast.logger import get_logger
from holdfast.rendezvous.handover import Broke, Ended, Left, Recorded, StacksAsked, Started, Stopped
from holdfast.rendezvous.hosting import Hosting
from holdfast.rendezvous.member_addresses import addresses_of
from holdfast.rendezvous.membership import RETRY_S

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from holdfast.coordination.store import CoordinationStore
    from holdfast.rendezvous.decision import Leave, Stop
    from holdfast.rendezvous.fencing import Fencing
    from holdfast.rendezvous.handover import Event
    from holdfast.rendezvous.member import Member
    from holdfast.rendezvous.membership import Membership
    from holdfast.rendezvous.records import End, Generation, Keys, StacksRequest
    from holdfast.torchstore.access import Access

SAY_AFTER_S = 2.0
"""How long a wait for other nodes lasts before it is logged."""

log = get_logger(__name__)


class GroupListener:
    """Tells the agent what its member says. Runs in the member's thread, like the member.

    `tell` hands an event over to the agent. `start_in_loop` starts a coroutine from any thread.
    """

    member: Member
    """The member that calls this listener. Set it before the first call."""

    def __init__(
        self,
        run_id: str,
        keys: Keys,
        membership: Membership,
        store: CoordinationStore,
        *,
        tell: Callable[[Event], None],
        start_in_loop: Callable[[Coroutine[Any, Any, None]], object],
        fencing: Fencing,
        shares_stacks: bool = True,
    ) -> None:
        self._run_id = run_id
        self._keys = keys
        self._membership = membership
        self._store = store
        self._tell = tell
        self._start_in_loop = start_in_loop
        self._fencing = fencing
        self._shares_stacks = shares_stacks
        self._hosting: Hosting | None = None
        self._status = ""
        self._saying: asyncio.TimerHandle | None = None

    # Calls of the member

    def start(self, generation: Generation) -> None:
        rank = generation.rank_of(self._membership.me.node)
        assert rank is not None
        if rank > 0:
            self.let_go()
        elif self._hosting is not None:
            find_others = partial(self._find_others, generation, self._hosting)
            self._hosting.begin()
            self._hosting.restrict([member.address for member in generation.members], find_others)
        self.hush()
        self._tell(Started(generation, rank, self._hosting))

    def stop(self, reason: Stop) -> None:
        self._tell(Stopped(self._membership.me.running, reason.reason, reason.may_finish))

    def recorded(self, generation: int) -> None:
        self._tell(Recorded(generation))

    def closed(self, end: End) -> None:
        self._tell(Ended(end))

    def leave_group(self, reason: Leave) -> None:
        me = self._membership.me
        self._tell(
            Left(
                reason.end,
                reason.reason,
                me.store_is_gone,
                me.cut_off_since is not None,
                me.is_done_published,
                is_refused=reason.is_refused,
                has_joined=self._membership.has_joined,
                trouble=self.member.trouble,
                replaced=self.member.replaced,
            )
        )

    def fence(self, fence_at: float) -> None:
        self._fencing.renewed(self._membership.me.lease, fence_at)

    def stacks(self, request: StacksRequest) -> None:
        if self._shares_stacks and request.node != self._membership.me.node:
            self._tell(StacksAsked(request))

    def status(self, text: str) -> None:
        """Log the status if the wait takes long."""
        self._status = text
        if not text:
            self.hush()
        elif self._saying is None:
            self._saying = asyncio.get_running_loop().call_later(SAY_AFTER_S, self._say_status)

    def break_down(self, error: BaseException) -> None:
        self._tell(Broke(error, self._membership.me.is_done_published))

    # Calls of the session

    def offer_ports(self, address: str, port: int = 0, *, serves_store: bool, access: Access | None) -> Hosting:
        """Hold fresh ports for the next round: leftovers of the last round must not be mistaken for this one.

        `port` is the one of the workers' store, or 0 for any.
        """
        self.let_go()
        self._hosting = Hosting(address, port, serves_store=serves_store, access=access)
        return self._hosting

    def let_go(self) -> None:
        """Close the ports of the round. The agent's thread may call this when the member's thread has ended."""
        hosting, self._hosting = self._hosting, None
        if hosting is not None:
            hosting.close()

    def hush(self) -> None:
        """Do not log the status any more."""
        if self._saying is not None:
            self._saying.cancel()
            self._saying = None

    def _say_status(self) -> None:
        log.warning("run %r: %s", self._run_id, self._status)

    # Who may use the workers' store

    def _find_others(self, generation: Generation, hosting: Hosting) -> None:
        """Admit all addresses of members, after a connection from an unknown one. Runs in the thread of that store."""
        self._start_in_loop(self._admit(generation, hosting))

    async def _admit(self, generation: Generation, hosting: Hosting) -> None:
        """Let the members of a generation use the workers' store from all their addresses."""
        while hosting.store is not None:
            try:
                nodes = await self._store.get_prefix(self._keys.nodes)
                hosting.admit(await addresses_of(generation.members, nodes.entries))
            except CoordinationError:
                await asyncio.sleep(RETRY_S)
            except Exception as error:  # noqa: BLE001 - a worker waits for this, so every error must be reported
                self.member.break_down(error)
                return
            else:
                return
