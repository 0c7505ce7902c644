"""The store's place on the network: it listens from the beginning, and answers from `start` to `stop`."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from threading import Thread
    from typing import Self

    from holdfast.torchstore.access import Access
    from holdfast.torchstore.loop import Loop

BACKLOG = 4096
"""How many connections may wait to be accepted; the kernel allows net.core.somaxconn at the most."""

PROBE_AFTER_S = 30
"""How long a connection is silent until the kernel asks whether its peer is there, and how often it asks again."""

PROBES_MAX = 4
"""How many of these questions remain without an answer before the connection ends."""


DESCRIPTORS_WANTED = 65_536
"""How many files the process may have open while it serves, if the system allows it. Each client is one of them."""


class TorchStoreServer:
    """A store for the TCPStore clients of one group of workers, with a key space of its own.

    It listens on exactly `host`, an address or name of this machine, from its construction on; who connects before
    `start` waits. Port 0 is any that is free. OSError if it cannot listen there.

    `access` says who may use it, until `start`; without it that is every user whose processes run as this one, root,
    and everybody on other machines.
    """

    def __init__(self, host: str, port: int = 0, access: Access | None = None) -> None:
        self.access = access
        self._shared_by = 0
        self._listener: socket | None = _listen(host, port)
        self._port: int = self._listener.getsockname()[1]
        self._owner_pid = os.getpid()
        self._thread: Thread | None = None
        self._wake = -1
        self._loop: Loop | None = None

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._port

    @property
    def is_started(self) -> bool:
        """Whether it answers those who connect."""
        return self._thread is not None

    def fileno(self) -> int:
        """Readable when somebody has connected, and the server was not started yet."""
        assert self._listener is not None, "the server was stopped"
        return self._listener.fileno()

    def has_clients(self) -> bool:
        """Whether somebody waits to be answered."""
        import select

        return bool(select.select([self], [], [], 0)[0])

    def clients_max(self) -> int:
        """How many clients it can serve at a time, with the limit of open files raised as far as it goes."""
        from holdfast import descriptors
        from holdfast.torchstore.loop import connections_max

        return connections_max(descriptors.allow(DESCRIPTORS_WANTED))

    def share(self, workers: int) -> None:
        """Before `start`: the store is for so many workers on several machines, and no machine may take all of it."""
        self._shared_by = workers

    def admit(self, peers: frozenset[bytes]) -> None:
        """These addresses are all that belong to the job; who came from others waits no longer. Not after `stop`."""
        assert self._loop is not None, "the server was not started"
        self._loop.admit(peers)
        os.eventfd_write(self._wake, 1)

    def start(self) -> None:
        """Begin to answer, in a thread of its own, which no signal interrupts."""
        import signal
        from threading import Thread

        from holdfast.signals import leave_to_main_thread
        from holdfast.torchstore.access import Access
        from holdfast.torchstore.loop import Loop, address_max

        assert self._thread is None, "the server was already started"
        assert self._listener is not None, "the server was stopped"
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        clients_max = self.clients_max()
        self._loop = Loop(
            *(self._listener, self._wake, clients_max, self.access or Access()),
            address_max=address_max(clients_max, self._shared_by) if self._shared_by else None,
        )
        self._thread = Thread(target=self._loop.run, name="holdfast-torchstore", daemon=True)
        _serving.add(self)
        before = leave_to_main_thread()  # a thread has the mask of the one that starts it
        try:
            self._thread.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def stop(self) -> None:
        """End all connections and free the port. When it returns, nothing of the server is left."""
        if self._thread is not None:
            assert self._loop is not None
            self._loop.is_over = True
            os.eventfd_write(self._wake, 1)
            self._thread.join()
            self._thread = None
        if self._listener is not None and os.getpid() == self._owner_pid:  # a forked process has a copy, not the server
            from _socket import SHUT_RDWR

            self._listener.shutdown(SHUT_RDWR)  # to close is not enough while a child that was just forked has it
        self._close()

    def _close(self) -> None:
        _serving.discard(self)
        if self._loop is not None:
            self._loop.close()
            self._loop = None
        if self._wake >= 0:
            os.close(self._wake)
            self._wake = -1
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _listen(host: str, port: int) -> socket:
    import _socket as tcp

    failure: OSError | None = None
    name = host.encode() if host.isascii() else host  # bytes need no codec for names of the world's scripts: 8 ms
    try:
        found = tcp.getaddrinfo(name or None, port, tcp.AF_UNSPEC, tcp.SOCK_STREAM, 0, tcp.AI_PASSIVE)
    except OSError as error:
        failure, found = error, []
    for family, kind, protocol, _, address in found:
        listener = tcp.socket(family, kind, protocol)
        try:
            listener.setsockopt(tcp.SOL_SOCKET, tcp.SO_REUSEADDR, 1)
            # On Linux, accepted connections have these of the socket that they came to.
            listener.setsockopt(tcp.IPPROTO_TCP, tcp.TCP_NODELAY, 1)
            listener.setsockopt(tcp.SOL_SOCKET, tcp.SO_KEEPALIVE, 1)
            listener.setsockopt(tcp.IPPROTO_TCP, tcp.TCP_KEEPIDLE, PROBE_AFTER_S)
            listener.setsockopt(tcp.IPPROTO_TCP, tcp.TCP_KEEPINTVL, PROBE_AFTER_S)
            listener.setsockopt(tcp.IPPROTO_TCP, tcp.TCP_KEEPCNT, PROBES_MAX)
            if address[0] == "::":
                listener.setsockopt(tcp.IPPROTO_IPV6, tcp.IPV6_V6ONLY, 0)
            listener.bind(address)
            listener.listen(BACKLOG)
            listener.setblocking(False)
        except OSError as error:
            listener.close()
            failure = error
        else:
            return listener
    assert failure is not None, "a name is resolved to an address, or it is an error"
    raise OSError(failure.errno, f"the store cannot listen on {host or 'any address'}, port {port}: {failure.strerror}")


_serving: set[TorchStoreServer] = set()


def _close_in_child() -> None:
    """A child that keeps our sockets would keep our clients waiting, and our port taken, after our end."""
    for server in list(_serving):
        server._thread = None  # noqa: SLF001 - it does not run here
        server._close()  # noqa: SLF001 - a function of this module


os.register_at_fork(after_in_child=_close_in_child)
