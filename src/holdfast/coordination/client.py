"""The embedded engine's client."""

from __future__ import annotations

import asyncio
import socket
from typing import TypeVar

from holdfast.coordination.client_connection import ClientConnection, EmbeddedWatch, failure
from holdfast.coordination.errors import StoreRefusedError, StoreReplacedError, StoreUnavailableError
from holdfast.coordination.loopback import is_loopback
from holdfast.coordination.model import check
from holdfast.coordination.queued_watch import BACKLOG_MAX
from holdfast.coordination.store import CoordinationStore, Watch
from holdfast.coordination.tcp import reach, resolve
from holdfast.coordination.wire import (
    Failed,
    Found,
    Get,
    GetPrefix,
    Grant,
    Granted,
    KeepAlive,
    Kept,
    Listed,
    Revoke,
    Revoked,
    Transact,
    Transacted,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ssl

    from holdfast.coordination.local_users import Users
    from holdfast.coordination.model import Changes, Entry, Lease, Outcome, Snapshot, Transaction
    from holdfast.coordination.wire import Request

_A = TypeVar("_A")

CONNECT_TIMEOUT_S = 5.0
"""How long it may take to reach the server and to prove ourselves."""

ANSWER_TIMEOUT_S = 3.0
"""How long an answer may take."""


class EmbeddedStore(CoordinationStore):
    """A client of an `EmbeddedServer`. It connects when it is first used, and again after a loss.

    It uses one store: the one that it reaches first. If another one is served there later, or one that refuses what
    the first one accepted, every request raises `StoreReplacedError`. Anybody on the way can refuse, so the caller has
    to decide when to believe that (`is_proven`); the next request tries again.

    Args:
        host: where the server is.
        port: where the server is.
        token: what the server must know, too.
        tls: a context for the client's side, without which nothing is said. None for plain text, unless the server
            speaks TLS.
        source: the address of this machine to connect from.
        users: whose server it may be if `host` is loopback, beside ours and root's. None for all users'.
        connect_timeout_s: how long it may take to reach the server and to prove ourselves.
        answer_timeout_s: how long an answer may take. Beyond it the connection is taken for dead, with all that waits
            on it.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        token: bytes = b"",
        tls: ssl.SSLContext | None = None,
        source: str | None = None,
        users: Users = frozenset(),
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> None:
        self._host = host
        self._port = port
        self._place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._token = token
        self._tls = tls
        self._source = source
        self._users = users if is_loopback(host) else None
        self._connect_timeout_s = connect_timeout_s
        self._answer_timeout_s = answer_timeout_s
        self._connection: ClientConnection | None = None
        self._connecting: asyncio.Task[ClientConnection] | None = None
        self._is_closed = False
        self._known_store = b""

    async def get(self, key: str) -> Entry | None:
        return (await self._ask(Get(key), Found)).entry

    async def get_prefix(self, prefix: str) -> Snapshot:
        return (await self._ask(GetPrefix(prefix), Listed)).snapshot

    async def transact(self, transaction: Transaction) -> Outcome:
        check(transaction)
        return (await self._ask(Transact(transaction), Transacted)).outcome

    async def grant(self, ttl_s: float) -> Lease:
        return (await self._ask(Grant(ttl_s), Granted)).lease

    async def keep_alive(self, lease_id: int) -> float:
        return (await self._ask(KeepAlive(lease_id), Kept)).ttl_s

    async def revoke(self, lease_id: int) -> None:
        await self._ask(Revoke(lease_id), Revoked)

    def watch(self, prefix: str, from_revision: int) -> Watch:
        watch = _LateWatch(self, prefix, from_revision)
        if self._connection is not None and self._connection.is_usable:
            watch.start(self._connection)
        return watch

    def local_address(self) -> str | None:
        return None if self._connection is None else self._connection.local_address()

    async def close(self) -> None:
        self._is_closed = True
        if self._connecting is not None and not self._connecting.done():
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
        if self._connection is not None:
            self._connection.close()
            await asyncio.wait([self._connection.ended])

    # Connecting

    async def connected(self) -> ClientConnection:
        """The connection there is, or a new one. Several callers wait for the same one."""
        if self._is_closed:
            raise StoreUnavailableError("the store was closed")
        if self._connection is not None and self._connection.is_usable:
            return self._connection
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
            self._connecting.add_done_callback(_look_at)
        connecting = self._connecting
        try:
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            if connecting.cancelled() and not _is_cancelled():  # by `close`
                raise StoreUnavailableError("the store was closed") from None
            raise

    async def _connect(self) -> ClientConnection:
        if self._connection is not None:
            await self._connection.ended  # the old one's socket is closed before there is a new one
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                self._connection = await self._reach_and_prove()
        except StoreRefusedError as error:
            if self._known_store:
                raise StoreReplacedError(f"{error} (it let this node in before)", is_proven=False) from None
            raise
        except ConnectionRefusedError:
            raise StoreUnavailableError(f"no store is running at {self._place}", is_gone=True) from None
        except TimeoutError:
            raise StoreUnavailableError(
                f"the store at {self._place} does not answer ({self._connect_timeout_s:g} s)"
            ) from None
        except (OSError, UnicodeError) as error:  # a name may be none that can be looked up
            origin = f" from {self._source}" if self._source else ""
            raise StoreUnavailableError(f"the store at {self._place} cannot be reached{origin}: {error}") from None
        return self._connection

    async def _reach_and_prove(self) -> ClientConnection:
        family = socket.AF_UNSPEC
        if self._source is not None:
            family = socket.AF_INET6 if ":" in self._source else socket.AF_INET
        found = await resolve(self._host, self._port, family)
        reached = await reach(found, self._source, self._connect_timeout_s)
        tls = None if self._tls is None else (self._tls, self._host)
        connection = ClientConnection(
            self._place, self._token, self._answer_timeout_s, self._known_store, tls, lambda: self._why_not(reached)
        )
        try:
            await asyncio.get_running_loop().create_connection(lambda: connection, sock=reached)
            await connection.proven
        except BaseException:
            connection.close()
            if connection.is_made:
                await connection.ended
            reached.close()
            raise
        self._known_store = connection.store
        return connection

    def _why_not(self, reached: socket.socket) -> str:
        if self._users is None:
            return ""
        from holdfast.coordination.local_users import why_not_served_by

        return why_not_served_by(reached, self._users)

    # Asking

    async def _ask(self, request: Request, kind: type[_A]) -> _A:
        connection = await self.connected()
        answer = await connection.ask(request)
        if isinstance(answer, kind):
            return answer
        if isinstance(answer, Failed):
            raise failure(answer)
        raise StoreUnavailableError(f"the store at {self._place} sent answers that match no request")


class _LateWatch(EmbeddedWatch):
    """A watch that begins when there is a connection."""

    def __init__(self, store: EmbeddedStore, prefix: str, from_revision: int) -> None:
        super().__init__(BACKLOG_MAX)
        self._store = store
        self._prefix = prefix
        self._from_revision = from_revision
        self._is_started = False

    def start(self, connection: ClientConnection) -> None:
        self._is_started = True
        connection.open_watch(self, self._prefix, self._from_revision)

    async def __anext__(self) -> Changes:
        if not self._is_started and self._is_wanted:
            connection = await self._store.connected()
            if not self._is_started and self._is_wanted:
                self.start(connection)
        return await super().__anext__()


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _look_at(task: asyncio.Task[ClientConnection]) -> None:
    """Retrieve the task's exception, so that asyncio does not log it if the task's waiters were cancelled."""
    if not task.cancelled():
        task.exception()
