"""The embedded engine's server: the agent at the rendezvous endpoint runs it, so that there is nothing to install."""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
from contextlib import suppress

from holdfast.coordination.keyspace import KeySpace
from holdfast.coordination.server_connection import Encoded, ServerConnection
from holdfast.coordination.service import Service
from holdfast.coordination.tcp import set_options

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ssl

HANDSHAKE_TIMEOUT_S = 5.0
"""How long a client may take to prove itself."""

UNPROVEN_MAX = 4_096
"""How many connections may be without proof at a time, and never more than half of the descriptors that the process
may have. Beyond it the oldest is dropped: an honest client is among the unproven for a moment only."""

ACCEPT_MAX = 64
"""How many connections are accepted before those that are there are served again."""

BACKLOG = 4_096
"""How many connections the kernel may hold until they are accepted. It takes less where the system says so."""

ACCEPT_PAUSE_S = 1.0
"""How long nothing is accepted after the process ran out of descriptors."""


class EmbeddedServer:
    """Serves a key space to `EmbeddedStore`s that know the same token.

    Clients that are slow, silent, malformed or do not read cost the others nothing: each is bounded, and dropped when
    it is beyond its bounds.

    Args:
        keyspace: what to serve; a new one unless given.
        token: what clients must know.
        tls: a context for the server's side, or None for connections in plain text.
    """

    def __init__(
        self, keyspace: KeySpace | None = None, *, token: bytes = b"", tls: ssl.SSLContext | None = None
    ) -> None:
        self.keyspace = KeySpace() if keyspace is None else keyspace
        self.connections = 0
        self._token = token
        self._tls = tls
        self._listener: socket.socket | None = None
        self._service: Service | None = None
        self._encoded = Encoded()
        self._unproven: dict[ServerConnection, float] = {}
        self._unproven_max = UNPROVEN_MAX
        self._arrivals: dict[ServerConnection, asyncio.Task[None]] = {}
        self._open: set[ServerConnection] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._all_closed = asyncio.Event()

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens: the address that it was given, and the port that it got."""
        assert self._listener is not None, "the server was not started"
        host, port = self._listener.getsockname()[:2]
        return host, port

    async def start(self, host: str, port: int) -> None:
        """Listen on exactly this address; port 0 is any that is free. OSError if that cannot be."""
        loop = asyncio.get_running_loop()
        self._listener = await _listen(host, port)
        self._unproven_max = min(UNPROVEN_MAX, max(1, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2))
        self._service = Service(self.keyspace, loop)
        loop.add_reader(self._listener, self._accept)

    async def close(self) -> None:
        """Stop listening and end all connections; returns when nothing is left of them. Leases keep their time."""
        if self._listener is None or self._service is None:
            return
        asyncio.get_running_loop().remove_reader(self._listener)
        self._listener.close()
        for timer in (self._timer, self._pause):
            if timer is not None:
                timer.cancel()
        for connection in list(self._open):
            connection.drop()
        if self._open:
            self._all_closed.clear()
            await self._all_closed.wait()
        if self._arrivals:
            await asyncio.wait(self._arrivals.values())
        self._service.stop()

    # Arrivals

    def _accept(self) -> None:
        assert self._listener is not None
        for _ in range(ACCEPT_MAX):
            try:
                arrived, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    raise
                self._accept_later()
                return
            self._receive(arrived)

    def _accept_later(self) -> None:
        """There is no descriptor left. Whoever is here without proof goes, and then there may be one."""
        assert self._listener is not None
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._listener)
        self._pause = loop.call_later(ACCEPT_PAUSE_S, loop.add_reader, self._listener, self._accept)
        for connection in list(self._unproven):
            self._forget(connection)

    def _receive(self, arrived: socket.socket) -> None:
        assert self._service is not None
        loop = asyncio.get_running_loop()
        connection = ServerConnection(self._service, self._token, self._encoded, self._proven, self._ended)
        self._unproven[connection] = loop.time() + HANDSHAKE_TIMEOUT_S
        self._arrivals[connection] = loop.create_task(self._take_in(connection, arrived))
        if len(self._unproven) > self._unproven_max:
            self._forget(next(iter(self._unproven)))
        if self._timer is None:
            self._timer = loop.call_later(HANDSHAKE_TIMEOUT_S, self._drop_the_late)

    async def _take_in(self, connection: ServerConnection, arrived: socket.socket) -> None:
        """From an accepted socket to a connection that greets."""
        try:
            arrived.setblocking(False)
            with suppress(OSError):  # it may be gone already
                set_options(arrived)
            self._open.add(connection)
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                arrived,
                ssl=self._tls,
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S if self._tls else None,
            )
        except (OSError, asyncio.CancelledError):  # no TLS, or dropped before
            arrived.close()
            self._ended(connection)
        finally:
            del self._arrivals[connection]

    def _drop_the_late(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        now = loop.time()
        for connection, deadline in list(self._unproven.items()):
            if deadline > now:
                self._timer = loop.call_at(deadline, self._drop_the_late)
                return
            self._forget(connection)

    def _forget(self, connection: ServerConnection) -> None:
        """Drop a connection that has not proved itself."""
        self._unproven.pop(connection, None)
        arrival = self._arrivals.get(connection)
        connection.drop()
        if arrival is not None:
            arrival.cancel()

    def _proven(self, connection: ServerConnection) -> None:
        del self._unproven[connection]
        self.connections += 1

    def _ended(self, connection: ServerConnection) -> None:
        if connection not in self._open:
            return
        self._open.discard(connection)
        self._unproven.pop(connection, None)
        if connection.is_proven:
            self.connections -= 1
        if not self._open:
            self._all_closed.set()


async def _listen(host: str, port: int) -> socket.socket:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)  # "::" is all addresses
        listener.bind(address)
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener
