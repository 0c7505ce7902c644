"""The loop that serves all connections, in the thread that runs it. It wakes up only when there is something to do."""

from __future__ import annotations

import os
import time
from _socket import SOCK_STREAM, socket
from contextlib import suppress
from errno import EMFILE, ENFILE
from select import EPOLLIN, epoll

from holdfast.logger import get_logger
from holdfast.torchstore.connection import Connection
from holdfast.torchstore.keyspace import KeySpace
from holdfast.torchstore.wire import ProtocolError

ACCEPT_MAX = 64
"""How many connections are accepted at once, before those that are there get their turn."""

ACCEPT_PAUSE_S = 0.5
"""How long arrivals wait for a descriptor before they are turned away."""

COMPLAIN_EVERY_S = 60.0
"""How often a line says that clients were turned away."""

DESCRIPTORS_SPARE = 64
"""How many descriptors are left to the rest of the process."""

SPARE = 2
"""How many descriptors are held, so that clients can be turned away, and that can be said, when there are no others."""

GREETING_MAX_S = 5.0
"""How long a client has time to greet, before its place may be given to another. torch's greets at once."""

_log = get_logger("torchstore")


class Loop:
    """Serves whoever connects to `listener` from a key space of its own, until `wake`, an eventfd, is written to."""

    def __init__(self, listener: socket, wake: int, connections_max: int) -> None:
        self._listener = listener
        self._wake = wake
        self._connections_max = connections_max
        self._keyspace = KeySpace()
        self._epoll = epoll()
        self._connections: dict[int, Connection] = {}
        self._accept_at: float | None = None
        self._turned_away = 0
        self._complain_at = 0.0
        self._spare: list[int] = []
        self._hold_spare()
        self._epoll.register(wake, EPOLLIN)
        self._epoll.register(listener.fileno(), EPOLLIN)

    def run(self) -> None:
        try:
            while self._turn():
                pass
        finally:
            for connection in self._connections.values():
                connection.hang_up()
            self.close()

    def close(self) -> None:
        """Give back all descriptors. The listener and `wake` are their owner's."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._close_spare()
        self._epoll.close()

    def _turn(self) -> bool:
        """Wait, and serve all who have something. False if this is to end."""
        timeout_s = None if self._accept_at is None else max(0.0, self._accept_at - time.monotonic())
        connections = self._connections
        for fd, _ in self._epoll.poll(timeout_s):
            connection = connections.get(fd)
            if connection is not None:
                self._serve(connection)
            elif fd == self._wake:
                return False
            elif fd == self._listener.fileno():
                self._accept()
        if self._keyspace.woken:
            self._tell_woken()
        if self._accept_at is not None and time.monotonic() >= self._accept_at:
            self._accept_again()
            self._turn_away()
        return True

    def _serve(self, connection: Connection) -> None:
        try:
            if not connection.serve():
                self._end(connection)
        except ProtocolError as error:
            _log.debug("the connection from %s ends: %s", connection.name, error)
            self._end(connection)
        except OSError:
            self._end(connection)  # it is broken, which is how most end
        except Exception:  # noqa: BLE001 - one client's end is not the others'
            _log.exception("the connection from %s ends, by a mistake of ours", connection.name)
            self._end(connection)

    def _tell_woken(self) -> None:
        for peer in self._keyspace.woken:
            assert isinstance(peer, Connection)
            if peer.is_open:
                try:
                    peer.tell()
                except OSError:
                    self._end(peer)
        self._keyspace.woken.clear()

    def _end(self, connection: Connection) -> None:
        if connection.is_open:
            del self._connections[connection.fd]
            connection.close()
            if self._accept_at is not None:
                self._accept_again()

    # Arrivals

    def _accept(self) -> None:
        for _ in range(ACCEPT_MAX):
            if len(self._connections) >= self._connections_max and not self._end_a_stranger():
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
            try:
                self._connections[fd] = Connection(connected, name, time.monotonic(), self._keyspace, self._epoll)
            except OSError:  # the kernel has no memory left to watch it
                connected.close()
                self._accept_later()
                return

    def _end_a_stranger(self) -> bool:
        """End the oldest connection that did not show in time that it speaks the protocol. False if there is none."""
        latest = time.monotonic() - GREETING_MAX_S
        for connection in self._connections.values():
            if not connection.is_greeted and connection.since <= latest:
                _log.debug("the connection from %s ends: it was silent, and others need its place", connection.name)
                self._end(connection)
                return True
        return False

    def _accept_later(self) -> None:
        """Let arrivals wait in the kernel: who cannot be accepted would wake us up all the time."""
        if self._accept_at is None:
            self._epoll.unregister(self._listener.fileno())
        self._accept_at = time.monotonic() + ACCEPT_PAUSE_S

    def _accept_again(self) -> None:
        self._accept_at = None
        self._epoll.register(self._listener.fileno(), EPOLLIN)

    def _turn_away(self) -> None:
        """Serve those who have waited, or hang up on them: a client that hears nothing waits for ever."""
        self._accept()
        if self._accept_at is None:
            return
        self._close_spare()
        for _ in range(ACCEPT_MAX):
            try:
                fd, _ = self._listener._accept()  # type: ignore[attr-defined]  # noqa: SLF001 - below socket.accept
            except BlockingIOError:
                self._accept_again()  # the next arrival wakes us up
                break
            except OSError:
                break
            os.close(fd)
            self._turned_away += 1
        if self._turned_away and time.monotonic() >= self._complain_at:
            self._complain()
        self._hold_spare()

    def _complain(self) -> None:
        """While there are descriptors: the first message imports what messages need, for which files are opened."""
        self._complain_at = time.monotonic() + COMPLAIN_EVERY_S
        with suppress(OSError, ImportError):
            _log.warning(
                "the workers' store turns clients away (%d so far): %d are connected, and this process may not open "
                "more files; raise the limit where the agent is started (ulimit -n)",
                self._turned_away,
                len(self._connections),
            )

    def _hold_spare(self) -> None:
        with suppress(OSError):  # another thread has taken what there was
            while len(self._spare) < SPARE:
                self._spare.append(os.dup(self._wake))

    def _close_spare(self) -> None:
        for fd in self._spare:
            os.close(fd)
        self._spare.clear()


def connections_max(descriptors_max: int) -> int:
    """How many connections a process serves that may open so many files: a part is left to the rest of it."""
    return descriptors_max - min(DESCRIPTORS_SPARE, descriptors_max // 4)
