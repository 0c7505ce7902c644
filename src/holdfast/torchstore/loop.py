"""The loop that serves all connections, in the thread that runs it. It wakes up only when there is something to do."""

from __future__ import annotations

import os
import time
from _socket import SHUT_RDWR, SOCK_STREAM, socket
from collections import deque
from contextlib import suppress
from errno import EMFILE, ENFILE
from select import EPOLLIN, epoll

from holdfast.logger import get_logger
from holdfast.torchstore.connection import Connection
from holdfast.torchstore.door import ADMITTED, REFUSED, UNDECIDED, Door
from holdfast.torchstore.keyspace import KeySpace
from holdfast.torchstore.telling import Teller
from holdfast.torchstore.wire import LimitError, ProtocolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.socket_owners import Address
    from holdfast.torchstore.access import Access

ACCEPT_MAX = 64
"""How many connections are accepted before the existing ones get their turn."""

ACCEPT_PAUSE_S = 0.5
"""How long new connections wait for a descriptor before they are refused."""

COMPLAIN_EVERY_S = 60.0
"""How often a warning says that clients were refused."""

DESCRIPTORS_SPARE = 64
"""How many descriptors are left for the rest of the process."""

CONNECTIONS_A_WORKER = 2
"""How many connections to the store torch opens for a worker, at least: its own, and the one of a process group."""

SPARE = 2
"""How many descriptors are kept in reserve, to refuse clients and to log that when there are no others."""

GREETING_MAX_S = 5.0
"""How long a client has to greet before its place may go to another. torch's client greets at once."""

_log = get_logger("torchstore")


class Loop:
    """Serves the admitted clients of `listener` from its own key space, until it is asked to end.

    Other threads call `admit` or set `is_over`, and then write to `wake`, an eventfd. All else belongs to the thread
    that calls `run`.
    """

    def __init__(
        self, listener: socket, wake: int, connections_max: int, access: Access, address_max: int | None = None
    ) -> None:
        """`address_max` is the most connections from one address."""
        self.is_over = False
        self._admitted: deque[frozenset[bytes]] = deque()
        self._listener = listener
        self._wake = wake
        self._connections_max = connections_max
        self._address_max = connections_max if address_max is None else address_max
        self._keyspace = KeySpace()
        self._teller = Teller()
        self._epoll = epoll()
        self._connections: dict[int, Connection] = {}
        self._addresses: dict[str, int] = {}
        self._busy: list[Connection] = []
        self._undecided: dict[int, tuple[socket, Address, float]] = {}
        self._accept_at: float | None = None
        self._turned_away = 0
        self._complain_at = 0.0
        self._spare: list[int] = []
        self._hold_spare()
        self._door = Door(listener, access, self._teller)
        self._epoll.register(wake, EPOLLIN)
        self._epoll.register(listener.fileno(), EPOLLIN)

    def admit(self, peers: frozenset[bytes]) -> None:
        """Have the loop's thread call `Door.admit`: the door must not change while a client is judged."""
        self._admitted.append(peers)

    def run(self) -> None:
        try:
            while self._turn():
                pass
        finally:
            for connection in self._connections.values():
                connection.hang_up()
            for connected, _, _ in self._undecided.values():
                with suppress(OSError):
                    connected.shutdown(SHUT_RDWR)
            self.close()

    def close(self) -> None:
        """Close all descriptors, except the listener and `wake`, which belong to the caller."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        for connected, _, _ in self._undecided.values():
            connected.close()
        self._undecided.clear()
        self._door.close()
        self._close_spare()
        self._epoll.close()

    def _turn(self) -> bool:
        """Wait, and serve all clients with something to do. Returns False if the loop should end."""
        connections = self._connections
        for fd, _ in self._epoll.poll(self._patience_s()):
            connection = connections.get(fd)
            if connection is not None:
                self._serve(connection)
            elif fd == self._wake:
                os.eventfd_read(self._wake)  # before the facts are read: what comes after this wakes us again
                if self.is_over:
                    return False
                self._decide()
            elif fd == self._listener.fileno():
                self._accept()
        if self._busy:
            busy, self._busy = self._busy, []
            for connection in busy:
                self._serve(connection, goes_on=True)
        if self._keyspace.woken:
            self._tell_woken()
        if self._accept_at is not None and time.monotonic() >= self._accept_at:
            self._accept_again()
            self._turn_away()
        return True

    def _patience_s(self) -> float | None:
        """How long to wait for events at most; None without a limit."""
        if self._busy:
            return 0.0
        return None if self._accept_at is None else max(0.0, self._accept_at - time.monotonic())

    def _serve(self, connection: Connection, *, goes_on: bool = False) -> None:
        try:
            if goes_on:
                connection.go_on()
            elif not connection.serve():
                self._end(connection)
            if connection.is_busy and connection not in self._busy:
                self._busy.append(connection)
        except ProtocolError as error:
            self._end_with(connection, error)
        except OSError:
            self._end(connection)  # most connections end like this
        except Exception:  # noqa: BLE001 - one client's end is not the others'
            _log.exception("bug in holdfast; closing the connection from %s", connection.name)
            self._end(connection)

    def _end_with(self, connection: Connection, error: ProtocolError) -> None:
        """End a connection. If the client may be honest, log why: its program sees only that the connection ended."""
        if isinstance(error, LimitError):
            self._teller.tell(
                str(error), "the workers' store drops a client at %s: %s", bracketed(connection.name), error
            )
        else:
            _log.debug("closing the connection from %s: %s", connection.name, error)
        self._end(connection)

    def _tell_woken(self) -> None:
        for peer in self._keyspace.woken:
            assert isinstance(peer, Connection)
            if peer.is_open:
                try:
                    peer.tell()
                except ProtocolError as error:
                    self._end_with(peer, error)
                except OSError:
                    self._end(peer)
        self._keyspace.woken.clear()

    def _end(self, connection: Connection) -> None:
        if connection.is_open:
            del self._connections[connection.fd]
            self._forget_address(connection.name)
            connection.close()
            if self._accept_at is not None:
                self._accept_again()

    # Arrivals

    def _accept(self) -> None:
        for _ in range(ACCEPT_MAX):
            if len(self._connections) + len(self._undecided) >= self._connections_max and not self._end_a_stranger():
                self._accept_later()
                return
            try:
                fd, name = self._listener._accept()  # type: ignore[attr-defined]  # noqa: SLF001 - below socket.accept
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in (EMFILE, ENFILE) or not self._end_a_stranger():
                    self._accept_later()
                return
            connected = socket(self._listener.family, SOCK_STREAM, 0, fd)
            connected.setblocking(False)
            if not self._judge(connected, name, time.monotonic()):
                return

    def _judge(self, connected: socket, name: Address, since: float) -> bool:
        """Let a client in, leave it waiting, or close its connection. Returns False if there is no room for it."""
        try:
            verdict = self._door.judge(connected, name)
        except OSError:  # the client is gone, or the kernel has no memory for an answer
            verdict = REFUSED
        except Exception:  # noqa: BLE001 - one client's end is not the others'
            _log.exception("bug in holdfast; closing the connection from %s", name)
            verdict = REFUSED
        if verdict is UNDECIDED:
            self._undecided[connected.fileno()] = (connected, name, since)
        elif verdict is not ADMITTED or not self._count_address(name):
            connected.close()
        else:
            try:
                connection = Connection(connected, name, since, self._keyspace, self._epoll)
            except OSError:  # the kernel has no memory left to watch it
                self._forget_address(name)
                connected.close()
                self._accept_later()
                return False
            self._connections[connection.fd] = connection
        return True

    def _decide(self) -> None:
        """Pass admitted addresses on to the door, and judge waiting clients again."""
        while self._admitted:
            self._door.admit(self._admitted.popleft())
        undecided, self._undecided = self._undecided, {}
        for connected, name, since in undecided.values():
            self._judge(connected, name, since)

    def _count_address(self, name: Address) -> bool:
        """Count a connection from this address. Returns False if there are too many."""
        count = self._addresses.get(name[0], 0)
        if count >= self._address_max:
            self._teller.tell(
                name[0],
                "the workers' store refuses clients: it has no room for more than %d connections from %s; raise the "
                "limit of open files where the agent is started (ulimit -n)",
                *(count, name[0]),
            )
            return False
        self._addresses[name[0]] = count + 1
        return True

    def _forget_address(self, name: Address) -> None:
        count = self._addresses[name[0]] - 1
        if count:
            self._addresses[name[0]] = count
        else:
            del self._addresses[name[0]]

    def _end_a_stranger(self) -> bool:
        """End the oldest connection that did not greet in time. Returns False if there is none."""
        latest = time.monotonic() - GREETING_MAX_S
        for fd, (connected, _, since) in self._undecided.items():
            if since <= latest:
                del self._undecided[fd]
                connected.close()
                return True
        for connection in self._connections.values():
            if not connection.is_greeted and connection.since <= latest:
                _log.debug("closing the idle connection from %s: others need its place", connection.name)
                self._end(connection)
                return True
        return False

    def _accept_later(self) -> None:
        """Let new connections wait in the kernel: those that cannot be accepted would wake the loop all the time."""
        if self._accept_at is None:
            self._epoll.unregister(self._listener.fileno())
        self._accept_at = time.monotonic() + ACCEPT_PAUSE_S

    def _accept_again(self) -> None:
        self._accept_at = None
        self._epoll.register(self._listener.fileno(), EPOLLIN)

    def _turn_away(self) -> None:
        """Accept clients that have waited, or close their connections: without an answer they wait for ever."""
        self._accept()
        if self._accept_at is None:
            return
        self._close_spare()
        for _ in range(ACCEPT_MAX):
            try:
                fd, _ = self._listener._accept()  # type: ignore[attr-defined]  # noqa: SLF001 - below socket.accept
            except BlockingIOError:
                self._accept_again()  # the next connection wakes the loop
                break
            except OSError:
                break
            os.close(fd)
            self._turned_away += 1
        if self._turned_away and time.monotonic() >= self._complain_at:
            self._complain()
        self._hold_spare()

    def _complain(self) -> None:
        """Log that clients are refused. Call this while descriptors are free: the first message imports modules."""
        self._complain_at = time.monotonic() + COMPLAIN_EVERY_S
        with suppress(OSError, ImportError):
            _log.warning(
                "the workers' store refuses clients (%d so far): %d are connected, and this process may not open more "
                "files; raise the limit where the agent is started (ulimit -n)",
                self._turned_away,
                len(self._connections),
            )

    def _hold_spare(self) -> None:
        with suppress(OSError):  # another thread has taken the last descriptors
            while len(self._spare) < SPARE:
                self._spare.append(os.dup(self._wake))

    def _close_spare(self) -> None:
        for fd in self._spare:
            os.close(fd)
        self._spare.clear()


def connections_max(descriptors_max: int) -> int:
    """How many connections a process with this limit of open files serves: some files are left for the rest of it."""
    return descriptors_max - min(DESCRIPTORS_SPARE, descriptors_max // 4)


def address_max(connections_max: int, workers: int) -> int:
    """The most connections from one address, in a job of `workers` on several machines.

    Each worker has room for `CONNECTIONS_A_WORKER`, whatever another machine does. One machine may have as many as all
    workers need: which machine runs most of them is not known here.
    """
    needed = workers * CONNECTIONS_A_WORKER
    return max(connections_max - needed, min(needed, connections_max))


def bracketed(name: Address) -> str:
    """An address and a port in the usual notation."""
    return f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}"
