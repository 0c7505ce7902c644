"""Somebody on the way between a client and a server: passes on what they say, and writes it down."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class Recorder:
    """Listens from the `with` on. `heard` is what clients have said, of all connections."""

    def __init__(self, host, target):
        self._target = target
        self._server = socket.create_server((host, 0))
        self.endpoint = self._server.getsockname()
        self.heard = bytearray()
        self.beginnings = []
        """The first bytes of each connection."""

        self._sockets = [self._server]
        self._threads = [threading.Thread(target=self._accept)]

    def __enter__(self):
        self._threads[0].start()
        return self

    def __exit__(self, *_):
        for each in list(self._sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for each in self._sockets:
            each.close()

    def _accept(self):
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            self._sockets.append(client)
            onward = socket.create_connection(self._target)
            self._sockets.append(onward)
            for pump, ends in ((self._record, (client, onward)), (self._pass_on, (onward, client))):
                self._threads.append(threading.Thread(target=pump, args=ends))
                self._threads[-1].start()

    def _record(self, client, onward):
        is_first = True
        for data in _read(client):
            if is_first:
                self.beginnings.append(data[:24])
            is_first = False
            self.heard += data
            onward.sendall(data)
        with suppress(OSError):
            onward.shutdown(socket.SHUT_WR)

    def _pass_on(self, onward, client):
        with suppress(OSError):
            for data in _read(onward):
                client.sendall(data)
            client.shutdown(socket.SHUT_WR)


def _read(connection):
    with suppress(OSError):
        while data := connection.recv(1 << 16):
            yield data
