"""A server that never ends its answer: it sends a greeting, and then a byte now and then."""

from __future__ import annotations

import contextlib
import socket
import threading

HOST = "127.0.0.1"


@contextlib.contextmanager
def dripping_server(greeting, byte, interval_s):
    """The port of a server that sends `greeting`, and `byte` every `interval_s`, until its peer hangs up."""
    over = threading.Event()

    def drip(connection):
        with connection, contextlib.suppress(OSError):
            connection.sendall(greeting)
            while not over.wait(interval_s):
                connection.sendall(byte)

    def serve(listener):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threads.append(threading.Thread(target=drip, args=[connection]))
                threads[-1].start()

    with socket.create_server((HOST, 0)) as listener:
        threads = [threading.Thread(target=serve, args=[listener])]
        threads[0].start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            over.set()
            for thread in threads:
                thread.join()
