"""A flood of TLS handshakes from many networks, as a program.

Its arguments are the server's IPv6 address and port. It comes from the networks fd9a:0:N:7::/64, which have to be
routed to it, with one connection of each. It says `flooding` when so many are there that the server drops some, goes on
until its standard input ends, and says then how many connections it made. There is a limit to that, and to the time.
"""

from __future__ import annotations

import select
import socket
import sys
import time

from holdfast.coordination.tls import own_client_context
from holdfast.coordination.tls_session import TlsSession

SOURCES = 60_000
OPEN_MAX = 6_000
CONNECTIONS_MAX = 200_000
TIME_MAX_S = 100.0
IPV6_FREEBIND = 78
"""The option of Linux to use an address that no interface has. Python does not name it."""


class Flood:
    def __init__(self, address):
        session = TlsSession(own_client_context())
        session.receive(b"")
        self._hello = session.to_send()
        self._address = address
        self._poll = select.epoll()
        self._poll.register(0, select.EPOLLIN)
        self._open = {}
        self._greeted = set()
        self.made = self.dropped = 0

    def connect(self):
        stranger = socket.socket(socket.AF_INET6)
        stranger.setblocking(False)
        stranger.setsockopt(socket.IPPROTO_IPV6, IPV6_FREEBIND, 1)
        stranger.bind((f"fd9a:0:{self.made % SOURCES:x}:7::1", 0))
        stranger.connect_ex(self._address)
        self._open[stranger.fileno()] = stranger
        self._poll.register(stranger, select.EPOLLIN)
        self.made += 1

    def go_on(self):
        """Whether there is more to do."""
        for _ in range(min(50, OPEN_MAX - len(self._open), CONNECTIONS_MAX - self.made)):
            self.connect()
        for descriptor, _ in self._poll.poll(0.01, 500):
            if descriptor == 0:
                return False
            self._hear(self._open[descriptor])
        return self.made < CONNECTIONS_MAX

    def _hear(self, stranger):
        try:
            if not stranger.recv(4096):
                raise ConnectionResetError
            if stranger not in self._greeted:
                self._greeted.add(stranger)
                stranger.send(self._hello)
        except BlockingIOError:
            return
        except OSError:
            self.dropped += 1
            self._greeted.discard(stranger)
            del self._open[stranger.fileno()]
            stranger.close()


def main():
    flood, is_told = Flood((sys.argv[1], int(sys.argv[2]))), False
    end = time.monotonic() + TIME_MAX_S
    while time.monotonic() < end and flood.go_on():
        if flood.dropped > 1_000 and not is_told:
            is_told = True
            print("flooding", flush=True)
    print(flood.made, flush=True)


if __name__ == "__main__":
    main()
