"""A health check that really listens: HTTP 200 while the agent makes progress, 503 when it does not."""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading
    from collections.abc import Callable
    from http.server import HTTPServer

REQUEST_TIMEOUT_S = 2.0
"""How long one client may take to ask; others wait meanwhile."""


class HealthCheckServer:
    """Answers every GET: 200 if `alive_callback`, the Unix time of the last progress, is at most `timeout` s old.

    Listens on `host` (all addresses of this machine: it is asked from outside) and `port` (0: a free one, see `port`
    after `start`). The body is a JSON object with `healthy`, `last_progress_age_s` and `timeout_s`.
    """

    def __init__(self, alive_callback: Callable[[], float], port: int, timeout: float, host: str = "") -> None:
        self._alive_callback = alive_callback
        self.port = port
        self._timeout = timeout
        self._host = host
        self._server: HTTPServer | None = None
        self._thread: threading.Thread | None = None
        self._wake: tuple[int, int] = (-1, -1)

    @property
    def alive_callback(self) -> Callable[[], float]:
        return self._alive_callback

    @alive_callback.setter
    def alive_callback(self, callback: Callable[[], float]) -> None:
        self._alive_callback = callback

    def start(self) -> None:
        """Begin to answer. OSError if the port is taken."""
        if self._thread is not None:
            return
        import os  # noqa: PLC0415 - all of this only for those who ask for a health check
        import threading  # noqa: PLC0415
        from http.server import HTTPServer  # noqa: PLC0415

        self._server = HTTPServer((self._host, self.port), self._make_handler())
        self._server.timeout = 0  # a client that left between the wake-up and the accept holds nobody
        self.port = self._server.server_port
        self._wake = os.pipe()
        self._thread = threading.Thread(target=self._serve, name="health check", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop answering; returns when nothing is left of it."""
        if self._thread is None or self._server is None:
            return
        import os  # noqa: PLC0415 - see start

        os.write(self._wake[1], b"x")
        self._thread.join()
        self._thread = None
        self._server.server_close()
        for fd in self._wake:
            os.close(fd)

    def answer(self) -> tuple[int, dict[str, object]]:
        """The status and the body of an answer given now."""
        age_s = max(0.0, time.time() - self._alive_callback())
        healthy = age_s <= self._timeout
        return (200 if healthy else 503), {
            "healthy": healthy,
            "last_progress_age_s": round(age_s, 3),
            "timeout_s": self._timeout,
        }

    def _serve(self) -> None:
        """Without `serve_forever`, which wakes up twice a second to see whether it should stop."""
        import select  # noqa: PLC0415 - see start

        assert self._server is not None
        while True:
            readable, _, _ = select.select([self._server.fileno(), self._wake[0]], [], [])
            if self._wake[0] in readable:
                return
            self._server.handle_request()

    def _make_handler(self) -> type:
        import json  # noqa: PLC0415 - see start
        from http.server import BaseHTTPRequestHandler  # noqa: PLC0415

        health = self

        class Handler(BaseHTTPRequestHandler):
            timeout = REQUEST_TIMEOUT_S

            def do_GET(self) -> None:
                status, body = health.answer()
                payload = json.dumps(body).encode() + b"\n"
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(payload)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(payload)

            do_HEAD = do_GET  # noqa: N815 - likewise

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - likewise
                """Probes come every few seconds, and are nobody's news."""

        return Handler


def create_healthcheck_server(alive_callback: Callable[[], float], port: int, timeout: float) -> HealthCheckServer:
    """The server that an agent makes if nobody gives it one."""
    return HealthCheckServer(alive_callback, port, timeout)
