"""A health check over HTTP: 200 while the agent makes progress, 503 when it does not."""

from __future__ import annotations

import time

from holdfast.agent.environment import TORCHELASTIC_HEALTH_CHECK_PORT
from holdfast.logger import get_logger

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    import threading
    from collections.abc import Callable

HEALTH_CHECK_TIMEOUT_S = 60
"""The longest time since the last progress for the health check to report the agent as healthy."""

PORT_MAX = (1 << 16) - 1
PORT_MAX_DIGITS = 5

REQUEST_TIMEOUT_S = 2.0
"""How long one client has to send its request after it connects."""

REQUEST_MAX_BYTES = 8 << 10
"""The longest request."""

CLIENTS_MAX = 64
"""How many clients can be connected at a time. Beyond that the oldest is dropped: honest clients send at once."""

log = get_logger(__name__)


class HealthCheckServer:
    """Answers every GET: 200 if `alive_callback`, the Unix time of the last progress, is at most `timeout` s old, and
    503 otherwise, also if the callback fails.

    Listens on `host` (by default all addresses of this machine, because checks come from outside) and `port` (0 for a
    free one; see `port` after `start`). The body is a JSON object with `healthy`, `last_progress_age_s` and
    `timeout_s`.

    Slow, silent or many clients do not delay the answers to others.
    """

    def __init__(self, alive_callback: Callable[[], float], port: int, timeout: float, host: str = "") -> None:
        self._alive_callback = alive_callback
        self.port = port
        self._timeout = timeout
        self._host = host
        self._listener: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._wake: tuple[int, int] = (-1, -1)
        self._has_told = False

    @property
    def alive_callback(self) -> Callable[[], float]:
        """The function that returns the time of the last progress, in Unix seconds."""
        return self._alive_callback

    @alive_callback.setter
    def alive_callback(self, callback: Callable[[], float]) -> None:
        self._alive_callback = callback

    def start(self) -> None:
        """Start the server. Raises OSError if the port is taken."""
        if self._thread is not None:
            return
        import os
        import socket
        import threading

        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        self._listener = socket.create_server((self._host, self.port), family=family, backlog=CLIENTS_MAX)
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]
        self._wake = os.pipe()
        self._thread = threading.Thread(target=self._serve, name="health check", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the server, and return when its thread has ended."""
        if self._thread is None or self._listener is None:
            return
        import os

        os.write(self._wake[1], b"x")
        self._thread.join()
        self._thread = None
        self._listener.close()
        for fd in self._wake:
            os.close(fd)

    def answer(self) -> tuple[int, dict[str, object]]:
        """The status and body of an answer given now. If the callback fails, the age is None, and that is unhealthy."""
        try:
            age_s = round(max(0.0, time.time() - self._alive_callback()), 3)
        except Exception as error:  # noqa: BLE001 - it is the user's, and must not end the thread that answers
            self._tell_of(error)
            age_s = None
        healthy = age_s is not None and age_s <= self._timeout
        return (200 if healthy else 503), {
            "healthy": healthy,
            "last_progress_age_s": age_s,
            "timeout_s": self._timeout,
        }

    def _tell_of(self, error: Exception) -> None:
        if not self._has_told:
            self._has_told = True
            log.warning("the health check is unhealthy: its callback failed: %r", error)

    def _serve(self) -> None:
        """Serve all clients in one thread, which sleeps while there are none."""
        import selectors
        from contextlib import suppress

        assert self._listener is not None
        clients: dict[socket.socket, _Client] = {}  # oldest first
        with selectors.DefaultSelector() as selector:

            def drop(connection: socket.socket) -> None:
                del clients[connection]
                selector.unregister(connection)
                connection.close()

            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._wake[0], selectors.EVENT_READ)
            is_over = False
            while not is_over:
                oldest = next(iter(clients.values()), None)
                for key, _ in selector.select(None if oldest is None else max(0.0, oldest.deadline - time.monotonic())):
                    if key.fileobj == self._wake[0]:
                        is_over = True
                    elif key.fileobj is self._listener:
                        with suppress(OSError):  # the client may have left between the wake-up and the accept
                            arrived = self._listener.accept()[0]
                            arrived.setblocking(False)
                            clients[arrived] = _Client(arrived)
                            selector.register(arrived, selectors.EVENT_READ)
                    elif (client := clients.get(key.fileobj)) is not None and client.read():  # type: ignore[call-overload]  # typeshed: fileobj may be an int
                        self._tell(client)
                        drop(client.connection)
                now = time.monotonic()
                for client in list(clients.values()):
                    if client.deadline <= now or len(clients) > CLIENTS_MAX:
                        drop(client.connection)
            for connection in list(clients):
                drop(connection)

    def _tell(self, client: _Client) -> None:
        """Send the answer without waiting: it fits into a socket's buffer. A client that does not read gets none."""
        import json
        from contextlib import suppress

        status, body = (501, {}) if client.method not in (b"GET", b"HEAD") else self.answer()
        payload = json.dumps(body).encode() + b"\n"
        head = (
            f"HTTP/1.0 {status} {_REASONS[status]}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(payload)}\r\nConnection: close\r\n\r\n"
        ).encode()
        with suppress(OSError):
            client.connection.send(head if client.method == b"HEAD" else head + payload)


class _Client:
    """A connected client."""

    __slots__ = ("_data", "connection", "deadline")

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.deadline = time.monotonic() + REQUEST_TIMEOUT_S
        self._data = b""

    def read(self) -> bool:
        """Read the data that has arrived. True once there is nothing more to wait for."""
        try:
            data = self.connection.recv(REQUEST_MAX_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            return True
        self._data += data
        return not data or len(self._data) >= REQUEST_MAX_BYTES or b"\n\n" in self._data.replace(b"\r", b"")

    @property
    def method(self) -> bytes:
        return self._data.partition(b" ")[0]


_REASONS = {200: "OK", 503: "Service Unavailable", 501: "Not Implemented"}


def create_healthcheck_server(
    alive_callback: Callable[[], float], port: int, timeout: float, host: str = ""
) -> HealthCheckServer:
    """The server that an agent makes by default."""
    return HealthCheckServer(alive_callback, port, timeout, host)


def open_health_check(text: str, alive_callback: Callable[[], float]) -> HealthCheckServer | None:
    """The health check at ``PORT`` or ``HOST:PORT``, started. None, with a warning, if that is not a port.

    Raises:
        InputError: it cannot listen there.
    """
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or len(port) > PORT_MAX_DIGITS or int(port) > PORT_MAX:
        log.warning("no health check: %s=%r is not a port number", TORCHELASTIC_HEALTH_CHECK_PORT, text)
        return None
    server = create_healthcheck_server(alive_callback, int(port), HEALTH_CHECK_TIMEOUT_S, host.strip("[]"))
    try:
        server.start()
    except OSError as error:
        from holdfast.errors.tree import InputError

        raise InputError(
            f"{TORCHELASTIC_HEALTH_CHECK_PORT}={text}: cannot listen there: {error.strerror or error}"
        ) from error
    return server
