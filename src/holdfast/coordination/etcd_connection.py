"""Connections to the members of an etcd cluster.

One member is in use: all transactions and watches go there. A request that is safe to repeat is also sent to other
members while its answer is overdue. That matters when etcd loses its leader: a healthy follower forwards requests to
the old leader for up to a second, and they get no answer.

Every request requires a member that has a leader: one that is cut off from the others refuses it at once.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import contextmanager, suppress

from holdfast.coordination import etcd_messages as messages
from holdfast.coordination.errors import BadAnswerError, CoordinationError, StoreUnavailableError
from holdfast.coordination.etcd_errors import (
    FROM_ETCD,
    InsecureError,
    NoLeaderError,
    NoPasswordsError,
    NotDoneError,
    NotPermittedError,
    OldTokenError,
    OtherClusterError,
    SilentError,
    as_ours,
    most_telling,
)
from holdfast.coordination.etcd_member import Member, name_of, open_channel
from holdfast.coordination.etcd_race import Race
from holdfast.coordination.etcd_rpc import load_grpc
from holdfast.coordination.etcd_security import check_password
from holdfast.errors.tree import InputError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
    from typing import Any

    from holdfast.coordination.etcd_member import Endpoint
    from holdfast.coordination.etcd_security import TlsFiles

OVERDUE_SHARE = 1 / 12
"""The share of a request's timeout after which its answer is overdue, and another member is asked, too."""

SILENCE_SHARE = 1 / 4
"""The share in which a member whose answer is overdue must give a sign of life."""

PAUSE_SHARE = 1 / 16
"""The pause, as a share, before asking members again that cannot serve, such as during an election."""

NEEDS_LEADER = ("hasleader", "true")
"""The metadata of a request that a member without a leader must refuse."""


class EtcdConnection:
    """The connections to a cluster. Every timeout is a share of `answer_timeout_s`, which depends on the lease."""

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        credentials: tuple[str, str] | None,
        tls_files: TlsFiles | None,
        answer_timeout_s: float,
    ) -> None:
        """Without `tls_files` everything is sent in plain text, and a password only to this machine itself."""
        if not endpoints:
            raise InputError("etcd: no endpoint; give at least one HOST:PORT")
        if credentials is not None and tls_files is None:
            check_password(endpoints)
        self._grpc = load_grpc()
        self.end_of_stream = self._grpc.aio.EOF
        """The value that a stream returns after a member has ended it."""

        self.answer_timeout_s = answer_timeout_s
        self.term = 0
        """The highest election term that any member has answered with."""

        self._overdue_s = answer_timeout_s * OVERDUE_SHARE
        self._silence_s = answer_timeout_s * SILENCE_SHARE
        self._pause_s = answer_timeout_s * PAUSE_SHARE
        self._endpoints = list(dict.fromkeys(endpoints))
        self._credentials = credentials
        self._tls_files = tls_files
        self._cluster_id: int | None = None
        self._first = 0
        self._members: dict[Endpoint, Member] = {}
        self._member: Member | None = None
        self._token: str | None = None
        self._has_authenticated = False
        self._connecting = asyncio.Lock()
        self._background: set[asyncio.Task[None]] = set()
        self._is_closed = False

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The metadata of every request. A token is valid for all members."""
        return (NEEDS_LEADER,) if self._token is None else (NEEDS_LEADER, ("token", self._token))

    async def request(self, call: Callable[[Member], Awaitable[Any]], *, may_repeat: bool = False) -> Any:
        """The answer to a request, which `call` sends to a member.

        With `may_repeat` the request is safe to repeat: other members are asked, too, when one is slow. Otherwise it is
        repeated only if certainly nothing was done.

        Raises:
            CoordinationError: the request failed, or there was no answer.
            TooLargeError: the request is larger than etcd accepts.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.answer_timeout_s
        if may_repeat:
            member, answer = await self._race(lambda member: self._ask(member, call), deadline)
            self._heard(member)
            return answer
        while True:
            try:
                return await self._ask_in_use(call, deadline)
            except NotDoneError:
                if loop.time() + self._pause_s > deadline:
                    raise
                await asyncio.sleep(self._pause_s)

    async def _ask_in_use(self, call: Callable[[Member], Awaitable[Any]], deadline: float) -> Any:
        member = await self._usable(deadline)
        try:
            return await self._ask(member, call)
        except OtherClusterError as error:
            # The member was replaced while no request was under way. The other members may be unchanged.
            raise StoreUnavailableError(str(error)) from None

    async def member(self) -> Member:
        """The member in use, or the first usable one.

        Raises:
            StoreUnavailableError: no member is usable.
            StoreRefusedError: no member is usable, and one that could serve refuses us.
        """
        return await self._usable(asyncio.get_running_loop().time() + self.answer_timeout_s)

    async def _usable(self, deadline: float) -> Member:
        try:
            async with asyncio.timeout_at(deadline):
                await self._connecting.acquire()
        except TimeoutError:
            raise self._no_answer() from None
        try:
            self._check_open()
            while self._member is None or not self._member.can_serve:
                member, _ = await self._race(self._greet, deadline)
                self._use(member)
            return self._member
        finally:
            self._connecting.release()

    async def _race(self, ask: Callable[[Member], Coroutine[Any, Any, Any]], deadline: float) -> tuple[Member, Any]:
        """The first answer, and the member that gave it. The member in use is asked first.

        The next member is asked when an answer is overdue or an error has come, round and round. Members that were
        asked before may still answer. If all have failed, and none with `NotDoneError`, raises the most telling error.
        """
        loop = asyncio.get_running_loop()
        race = Race()
        try:
            while True:
                for endpoint in self._endpoints[self._first :] + self._endpoints[: self._first]:
                    self._check_open()
                    race.start(endpoint, self._attempt(endpoint, ask))
                    if await race.has_answer(min(loop.time() + self._overdue_s, deadline)):
                        return race.answer
                if race.is_lost(len(self._endpoints)):
                    raise most_telling(race.errors.values())
                if await race.has_answer(min(loop.time() + self._pause_s, deadline), in_spite_of_errors=True):
                    return race.answer
                if loop.time() >= deadline:
                    # Requests end at this moment, too: whether their errors came first says nothing.
                    telling = [error for error in race.errors.values() if not isinstance(error, SilentError)]
                    raise most_telling(telling) if telling else self._no_answer()
        finally:
            race.close()

    async def _attempt(self, endpoint: Endpoint, ask: Callable[[Member], Awaitable[Any]]) -> tuple[Member, Any]:
        member = self._members.get(endpoint)
        if member is None:
            member = self._members[endpoint] = Member(
                endpoint, open_channel(self._grpc, endpoint, self._tls_files, self.answer_timeout_s)
            )
        return member, await ask(member)

    def _heard(self, member: Member) -> None:
        """Note that a member has answered. If the member in use could not serve, check whether it has a leader now."""
        if self._member is None:
            self._use(member)
        elif self._member is not member and not self._member.can_serve:
            self._check_on(self._member, others_can_serve=True)

    def _use(self, member: Member) -> None:
        """Use this member from now on, unless its connection was closed meanwhile."""
        if self._members.get(member.endpoint) is not member:
            return
        member.can_serve = True
        if self._member is not None and self._member is not member:
            self.let_go_of(self._member)
        self._member = member
        self._first = self._endpoints.index(member.endpoint)

    async def _ask(self, member: Member, call: Callable[[Member], Awaitable[Any]]) -> Any:
        if self._credentials is not None and not self._has_authenticated:
            await self._authenticate(member)
        try:
            return await self._ask_once(member, call)
        except OldTokenError:
            if self._credentials is None:
                raise
            await self._authenticate(member)
            return await self._ask_once(member, call)

    async def _ask_once(self, member: Member, call: Callable[[Member], Awaitable[Any]]) -> Any:
        with self.errors_of(member), self.supervised(member):
            answer = await call(member)
        self.recognise(answer.header, member)
        return answer

    def recognise(self, header: Any, member: Member) -> None:
        """Check that an answer comes from the cluster that this connection began with.

        Raises:
            OtherClusterError: it does not.
        """
        if self._cluster_id is None:
            self._cluster_id = header.cluster_id
        elif header.cluster_id != self._cluster_id:
            self.let_go_of(member)
            raise OtherClusterError(
                f"etcd at {member.name} belongs to the cluster {header.cluster_id:x}, and this job started in "
                f"{self._cluster_id:x}: etcd was replaced or restored, or the endpoints name two clusters; name the "
                "members of one, and start the job again with another --rdzv-id"
            )
        member.has_answered = member.can_serve = True
        self.term = max(self.term, header.raft_term)

    @contextmanager
    def errors_of(self, member: Member) -> Iterator[None]:
        """Convert gRPC's errors into ours.

        Closes the connection to a member if it broke, or if the member sends malformed answers. A slow member is kept.
        """
        ours: CoordinationError
        try:
            yield
        except BadAnswerError as error:
            ours, is_heard = error, False
        except self._grpc.aio.AioRpcError as error:
            code, details = error.code().name, error.details() or "no details"
            is_plain = self._tls_files is None and self._cluster_id is None
            ours = as_ours(code, details, member.name, is_plain=is_plain)
            is_heard = details.startswith(FROM_ETCD) or code == "DEADLINE_EXCEEDED"
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # The request was cancelled, not this task: another request failed, and the connection was closed.
            ours, is_heard = member.given_up(), False
        except self._grpc.aio.UsageError:  # the connection was closed before the request was sent
            ours, is_heard = member.given_up(), False
        else:
            return
        if isinstance(ours, InsecureError) and self._cluster_id is not None:
            ours = StoreUnavailableError(str(ours))  # it was secure before: the network or etcd is at fault, not we
        self._failed(member, ours, is_heard=is_heard)
        raise ours

    def _failed(self, member: Member, error: CoordinationError, *, is_heard: bool) -> None:
        """Handle an error of a member. `is_heard` if the error shows that the connection works."""
        if isinstance(error, NoLeaderError):
            member.can_serve = False
        if isinstance(error, BadAnswerError):
            member.fault = str(error)
        if isinstance(error, StoreUnavailableError) and not is_heard:
            self.let_go_of(member)

    @contextmanager
    def supervised(self, member: Member) -> Iterator[None]:
        """If this takes longer than an answer should, check whether the member is alive, and drop it if not.

        A follower that lost its leader is alive, and is kept. A member that was stopped or cut off is dropped.
        """
        timer = asyncio.get_running_loop().call_later(self._overdue_s, self._check_on, member)
        try:
            yield
        finally:
            timer.cancel()

    def _check_on(self, member: Member, *, others_can_serve: bool = False) -> None:
        if member.has_answered and not member.is_checked and not self._is_closed:
            member.is_checked = True
            _start(self._background, self._wait_for_sign_of_life(member, others_can_serve=others_can_serve))

    async def _wait_for_sign_of_life(self, member: Member, *, others_can_serve: bool) -> None:
        try:
            async with asyncio.timeout(self._silence_s):
                with self.errors_of(member):
                    await member.methods.status(messages.StatusRequest(), metadata=self.metadata)
            member.can_serve = True
        except TimeoutError:
            self.let_go_of(member)
        except NoLeaderError:
            if others_can_serve:
                self.let_go_of(member)
        except CoordinationError:
            pass  # it did answer, or the connection broke and was closed
        finally:
            member.is_checked = False

    def let_go_of(self, member: Member) -> None:
        """Close the connection to a member. All its requests and watches fail."""
        if self._member is member:
            self._member = None
            self._first = (self._endpoints.index(member.endpoint) + 1) % len(self._endpoints)
        if self._members.get(member.endpoint) is member:
            del self._members[member.endpoint]
            _start(self._background, member.channel.close())

    async def close(self) -> None:
        self._is_closed = True
        for member in list(self._members.values()):
            self.let_go_of(member)
        while self._background:
            await asyncio.wait(self._background)

    def local_address(self) -> str | None:
        """The local address of the route to the member in use, or to the next one."""
        host, port = self._endpoints[self._first] if self._member is None else self._member.endpoint
        try:
            for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM):
                with socket.socket(family, kind, protocol) as probe:
                    probe.connect(address)  # sends nothing
                    return str(probe.getsockname()[0])
        except OSError:
            pass
        return None

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreUnavailableError("the store was closed")

    def _no_answer(self) -> StoreUnavailableError:
        names = ", ".join(map(name_of, self._endpoints))
        return StoreUnavailableError(f"etcd at {names} does not answer within {self.answer_timeout_s:.1f} s")

    async def _greet(self, member: Member) -> None:
        """Check that a member is usable: that it has a leader, and belongs to the right cluster."""

        async def ask(member: Member) -> Any:
            return await member.methods.status(
                messages.StatusRequest(), timeout=self.answer_timeout_s, metadata=self.metadata
            )

        with suppress(NotPermittedError):
            answer = await self._ask(member, ask)
            if answer.isLearner:
                member.can_serve = False
                raise NoLeaderError(f"etcd at {member.name} is a learner, which cannot serve jobs yet")

    async def _authenticate(self, member: Member) -> None:
        assert self._credentials is not None
        name, password = self._credentials
        request = messages.AuthenticateRequest(name=name, password=password)

        async def ask(member: Member) -> Any:
            return await member.methods.authenticate(request, timeout=self.answer_timeout_s, metadata=(NEEDS_LEADER,))

        try:
            self._token = (await self._ask_once(member, ask)).token
        except NoPasswordsError:
            self._token = None
        self._has_authenticated = True


def _start(tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
    """Run `work` in the background, as one of these tasks until it ends."""
    task = asyncio.get_running_loop().create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
