"""The server of the embedded engine. The agent at the rendezvous endpoint runs it, so users install nothing."""

from __future__ import annotations

import asyncio
import resource
import socket
import sys
from contextlib import suppress

from holdfast.coordination.keyspace import KeySpace
from holdfast.coordination.loopback import is_loopback
from holdfast.coordination.server_connection import Common, ServerConnection
from holdfast.coordination.service import Service
from holdfast.coordination.tcp import resolve, set_options
from holdfast.coordination.unproven import Stage, Turns, Unproven, source_of
from holdfast.coordination.wire import THE_CONNECTION, Failed, Reason, encode, frame
from holdfast.logger import get_logger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.coordination.local_users import LocalUsers, Users
    from holdfast.coordination.tls import ServerTls
    from holdfast.socket_owners import Address

HANDSHAKE_TIMEOUT_S = 5.0
"""The timeout of a client's handshake."""

UNPROVEN_MAX = 4_096
"""The maximum number of connections that have not proved themselves. If there are more, the server drops one from the
stage that has the most. An honest client is unproven for a moment only."""

TLS_UNPROVEN_MAX = 1_024
"""The maximum number of unproven connections that have begun TLS. Each of them takes about 40 KiB."""

REFUSALS_PAUSE_S = 10.0
"""The minimum time between two warnings about refused connections."""

DESCRIPTORS_SPARE = 128
"""How many descriptors are reserved for the rest of the process, but at most a quarter of all. If connections would
need these, the server drops an unproven connection."""

ACCEPT_MAX = 16
"""How many connections the server accepts before it serves the existing ones again."""

HANDSHAKES_MAX = 4
"""How many steps of handshakes the server takes before it serves members again. A step with TLS takes 0.3 ms, and
accepting a connection takes a quarter of that. So the server accepts a flood faster than it arrives, and nobody waits
behind it in the kernel's queue."""

LATER_MESSAGES_MAX = 3
"""How many of these steps are for handshakes that have begun. The rest are for first messages, so that neither kind can
starve the other."""

BACKLOG = 4_096
"""The length of the kernel's queue of connections to accept. The system may limit it further."""

ACCEPT_PAUSE_S = 0.1
"""How long the server waits after it failed to accept a connection: the process may have run out of descriptors."""

log = get_logger(__name__)


class EmbeddedServer:
    """Serves a key space to `EmbeddedStore`s that know the same token.

    Slow, silent or malformed clients, and those that do not read, cost the others nothing: each client has limits, and
    the server drops a client that exceeds them.

    Args:
        keyspace: the key space to serve; a new one by default.
        token: the token that clients must know.
        tls: encrypts the connections; None for plain text.
        members_max: the maximum number of connected clients that have proved themselves; None for no limit. It matters
            without a token, because every client can prove itself then.
        users: the other users of this machine who may connect if the server listens on loopback. Its own user and root
            always may. None for all users.
    """

    def __init__(
        self,
        keyspace: KeySpace | None = None,
        *,
        token: bytes = b"",
        tls: ServerTls | None = None,
        users: Users = frozenset(),
        members_max: int | None = None,
    ) -> None:
        self.keyspace = KeySpace() if keyspace is None else keyspace
        self.connections = 0
        self._token = token
        self._tls = tls
        self._users = users
        self._members_max = sys.maxsize if members_max is None else members_max
        self._local_users: LocalUsers | None = None
        self._listener: socket.socket | None = None
        self._address: tuple[str, int] | None = None
        self._service: Service | None = None
        self._common = Common()
        self._unproven: Unproven[ServerConnection] = Unproven()
        self._first_messages: Turns[ServerConnection] = Turns(newest_first=True)
        self._later_messages: Turns[ServerConnection] = Turns()
        self._is_turn_due = False
        self._refusals = 0
        self._refusals_told_at = float("-inf")
        self._open_max = sys.maxsize
        self._arrivals: dict[ServerConnection, asyncio.Task[object]] = {}
        self._open: set[ServerConnection] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._has_ended = asyncio.Event()

    @property
    def address(self) -> tuple[str, int]:
        """The address and the port that the server listens on."""
        assert self._address is not None, "the server was not started"
        return self._address

    async def start(self, host: str, port: int) -> None:
        """Listen on this address. Port 0 means any free port. Raises OSError if the address cannot be used."""
        loop = asyncio.get_running_loop()
        self._listener = await _listen(host, port)
        self._address = self._listener.getsockname()[:2]
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if descriptors != resource.RLIM_INFINITY:
            self._open_max = descriptors - min(DESCRIPTORS_SPARE, descriptors // 4)
        self._service = Service(self.keyspace, loop)
        if self._users is not None and is_loopback(self._address[0]):
            self._look_at_users(self._listener, self._users)
        loop.add_reader(self._listener, self._accept)

    async def close(self) -> None:
        """Stop listening and end all connections. Returns when all have ended. Leases keep their deadlines."""
        if self._listener is None or self._service is None:
            return
        asyncio.get_running_loop().remove_reader(self._listener)
        self._listener.close()
        self._listener = None
        if self._local_users is not None:
            self._local_users.close()
        for timer in (self._timer, self._pause):
            if timer is not None:
                timer.cancel()
        for connection in list(self._open):
            self._drop(connection)
        while self._open:
            self._has_ended.clear()
            await self._has_ended.wait()
        self._service.stop()

    # Arrivals

    def _accept(self) -> None:
        assert self._listener is not None
        for _ in range(ACCEPT_MAX):
            try:
                arrived, address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # no descriptors or memory left, or the network is down
                self._accept_later()
                return
            if self._local_users is None or self._is_admitted(arrived, address, self._local_users):
                self._receive(arrived, source_of(address[0]))
            else:
                arrived.close()

    def _accept_later(self) -> None:
        """Pause, and drop an unproven connection to free a descriptor."""
        assert self._listener is not None
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._listener)
        self._pause = loop.call_later(ACCEPT_PAUSE_S, loop.add_reader, self._listener, self._accept)
        self._drop_one_of()

    def _look_at_users(self, listener: socket.socket, users: frozenset[int]) -> None:
        from holdfast.coordination.local_users import LocalUsers

        self._local_users = LocalUsers(listener, users)
        if not self._local_users.can_tell:
            log.warning(
                "the kernel does not tell whose connections come to the store at %s: nothing but a token keeps other "
                "users of this machine out",
                "{}:{}".format(*self.address),
            )

    def _is_admitted(self, arrived: socket.socket, address: Address, local_users: LocalUsers) -> bool:
        """Whether the connection's user may connect. A user who may not gets an error that says why."""
        from holdfast.coordination.local_users import two_users

        try:
            user = local_users.stranger(arrived, address)
            if user is None:
                return True
            why = two_users(server=local_users.user, client=user)
        except LookupError as error:
            why = str(error)
        except OSError:
            return False
        self.refused(source_of(address[0]), why)
        with suppress(OSError):
            arrived.setblocking(False)
            arrived.send(frame(THE_CONNECTION, encode(Failed(Reason.REFUSED, why))))
        return False

    def _receive(self, arrived: socket.socket, source: str) -> None:
        """Turn an accepted socket into a connection, which then sends the greeting."""
        assert self._service is not None
        loop = asyncio.get_running_loop()
        arrived.setblocking(False)
        with suppress(OSError):  # it may be gone already
            set_options(arrived)
        connection = ServerConnection(self._service, self._token, self._tls, self._common, source, self)
        arrival = loop.create_task(loop.connect_accepted_socket(lambda: connection, arrived))
        arrival.add_done_callback(lambda _: self._has_arrived(connection, arrived))
        self._open.add(connection)
        self._arrivals[connection] = arrival
        self._unproven.add(connection, source, loop.time() + HANDSHAKE_TIMEOUT_S)
        if len(self._unproven) > UNPROVEN_MAX or len(self._open) > self._open_max:
            self._drop_one_of()
        if self._timer is None:
            self._timer = loop.call_later(HANDSHAKE_TIMEOUT_S, self._drop_the_late)

    def _has_arrived(self, connection: ServerConnection, arrived: socket.socket) -> None:
        arrival = self._arrivals.pop(connection)
        if arrival.cancelled() or arrival.exception() is not None:  # dropped before
            arrived.close()
            self.ended(connection)

    def _drop_the_late(self) -> None:
        loop = asyncio.get_running_loop()
        for connection in self._unproven.late(loop.time()):
            self._drop(connection)
        deadline = self._unproven.next_deadline()
        self._timer = None if deadline is None else loop.call_at(deadline, self._drop_the_late)

    def _drop_one_of(self, *stages: Stage) -> None:
        connection = self._unproven.surplus(*stages)
        if connection is not None:
            self._drop(connection)

    def _drop(self, connection: ServerConnection) -> None:
        self._forget(connection)
        connection.drop()
        arrival = self._arrivals.get(connection)
        if arrival is not None:
            arrival.cancel()

    def _forget(self, connection: ServerConnection) -> None:
        self._unproven.remove(connection)
        self._first_messages.remove(connection, connection.source)
        self._later_messages.remove(connection, connection.source)

    # Called by the connections

    def begun(self, connection: ServerConnection) -> None:
        """The connection has begun TLS, and needs more memory from now on."""
        self._unproven.advance(connection, Stage.BEGUN)
        if self._unproven.count(Stage.BEGUN, Stage.CONTINUED) > TLS_UNPROVEN_MAX:
            self._drop_one_of(Stage.BEGUN, Stage.CONTINUED)

    def take_turn(self, connection: ServerConnection, data: bytes) -> None:
        """Continue the connection's handshake when its turn comes. Turns keep a crowd from delaying members."""
        if connection.has_begun:
            self._unproven.advance(connection, Stage.CONTINUED)
            self._later_messages.add(connection, connection.source, data)
        else:
            self._first_messages.add(connection, connection.source, data)
        self._set_turn()

    def _set_turn(self) -> None:
        if (self._later_messages or self._first_messages) and not self._is_turn_due:
            self._is_turn_due = True
            asyncio.get_running_loop().call_soon(self._shake_hands)

    def _shake_hands(self) -> None:
        self._is_turn_due = False
        for number in range(HANDSHAKES_MAX):
            is_for_later = number < LATER_MESSAGES_MAX or not self._first_messages
            turns = self._later_messages if self._later_messages and is_for_later else self._first_messages
            if turns:  # a step may push others out
                connection, data = turns.take()
                connection.shake_hands(data)
        self._set_turn()

    def has_room(self) -> bool:
        """Whether the server accepts one more client that has proved itself."""
        return self.connections < self._members_max

    def proven(self, connection: ServerConnection) -> None:
        self._forget(connection)
        self.connections += 1

    def refused(self, source: str, why: str) -> None:
        """Count a client that broke the protocol or has another token, and warn about it now and then."""
        self._refusals += 1
        now = asyncio.get_running_loop().time()
        if now >= self._refusals_told_at + REFUSALS_PAUSE_S:
            self._refusals_told_at = now
            others = f" (and {self._refusals - 1} before it)" if self._refusals > 1 else ""
            log.warning("the store refused a connection from %s: %s%s", source, why, others)
            self._refusals = 0

    def ended(self, connection: ServerConnection) -> None:
        if connection in self._open:
            self._open.discard(connection)
            self._forget(connection)
            self.connections -= connection.is_proven
            self._has_ended.set()


async def _listen(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = (await resolve(host, port))[0]
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
