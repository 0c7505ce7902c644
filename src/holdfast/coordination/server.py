"""The embedded engine's server: the agent at the rendezvous endpoint runs it, so that there is nothing to install."""

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
"""How long a client may take to prove itself."""

UNPROVEN_MAX = 4_096
"""How many connections may be without proof at a time. Beyond it one of the newcomers is dropped, or one of another
stage if more are in that: an honest client is among the unproven for a moment only."""

TLS_UNPROVEN_MAX = 1_024
"""How many of them may have begun with TLS, which takes about 40 KiB each."""

REFUSALS_PAUSE_S = 10.0
"""How often at most a line says that connections were refused."""

DESCRIPTORS_SPARE = 128
"""How many descriptors are left to the rest of the process (but a quarter of all at most). Where connections would need
them, the oldest without proof is dropped."""

ACCEPT_MAX = 16
"""How many connections are accepted before those that are there are served again."""

HANDSHAKES_MAX = 4
"""How many steps of TLS handshakes are made before members are served again. One takes 0.3 ms, and accepting takes a
quarter of that: a flood is accepted faster than it comes, so nobody waits in the kernel's queue behind it."""

LATER_MESSAGES_MAX = 3
"""How many of these steps go to handshakes that have begun before first messages are looked at. The rest is left to
first messages, so that neither can keep the other waiting."""

BACKLOG = 4_096
"""How many connections the kernel may hold until they are accepted. It takes less where the system says so."""

ACCEPT_PAUSE_S = 0.1
"""How long nothing is accepted when that failed, since the process ran out of descriptors for example."""

log = get_logger(__name__)


class EmbeddedServer:
    """Serves a key space to `EmbeddedStore`s that know the same token.

    Clients that are slow, silent, malformed or do not read cost the others nothing: each is bounded, and dropped when
    it is beyond its bounds.

    Args:
        keyspace: what to serve; a new one unless given.
        token: what clients must know.
        tls: for connections that are encrypted; None for plain text.
        users: who else of this machine may connect where it listens on loopback: there, only the user who serves it and
            root may. None for all users.
    """

    def __init__(
        self,
        keyspace: KeySpace | None = None,
        *,
        token: bytes = b"",
        tls: ServerTls | None = None,
        users: Users = frozenset(),
    ) -> None:
        self.keyspace = KeySpace() if keyspace is None else keyspace
        self.connections = 0
        self._token = token
        self._tls = tls
        self._users = users
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
        """Where it listens: the address that it was given, and the port that it got."""
        assert self._address is not None, "the server was not started"
        return self._address

    async def start(self, host: str, port: int) -> None:
        """Listen on exactly this address; port 0 is any that is free. OSError if that cannot be."""
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
        """Stop listening and end all connections; returns when nothing is left of them. Leases keep their time."""
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
            except OSError:  # no descriptor or no memory left, or a network that is down
                self._accept_later()
                return
            if self._local_users is None or self._is_admitted(arrived, address, self._local_users):
                self._receive(arrived, source_of(address[0]))
            else:
                arrived.close()

    def _accept_later(self) -> None:
        """Whoever is here without proof for longest goes, and then there may be a descriptor."""
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
        """Whether it comes from a user who may be here. Who may not is told why."""
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
        """From an accepted socket to a connection that greets."""
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

    # What connections say of themselves

    def begun(self, connection: ServerConnection) -> None:
        """It has begun with TLS, and costs more now."""
        self._unproven.advance(connection, Stage.BEGUN)
        if self._unproven.count(Stage.BEGUN, Stage.CONTINUED) > TLS_UNPROVEN_MAX:
            self._drop_one_of(Stage.BEGUN, Stage.CONTINUED)

    def take_turn(self, connection: ServerConnection, data: bytes) -> None:
        """Have it go on with its handshake when it is its turn. Members do not wait for a crowd at the door."""
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

    def proven(self, connection: ServerConnection) -> None:
        self._forget(connection)
        self.connections += 1

    def refused(self, source: str, why: str) -> None:
        """It did not keep to the protocol, or has another token."""
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
