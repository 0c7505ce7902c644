"""The store's server: it listens from its construction on, and answers from `start` to `stop`."""

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
"""How many connections may wait to be accepted. The kernel caps it at net.core.somaxconn."""

PROBE_AFTER_S = 30
"""TCP keepalive: the idle time before the first probe, and the interval between probes."""

PROBES_MAX = 4
"""TCP keepalive: how many probes may go unanswered before the connection ends."""


DESCRIPTORS_WANTED = 65_536
"""The limit of open files while the store serves, if the system allows it. Each client needs one."""


class TorchStoreServer:
    """A store for the TCPStore clients of one group of workers, with a key space of its own.

    It listens on exactly `host`, an address or name of this machine. Clients that connect before `start` wait. Port 0
    means any free port. Raises OSError if it cannot listen there.

    `access` says who may use it, and can be set until `start`. By default, that is this process's user, root, and
    everybody on other machines.
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
        """Whether it answers clients."""
        return self._thread is not None

    def fileno(self) -> int:
        """Readable when a client has connected before `start`."""
        assert self._listener is not None, "the server was stopped"
        return self._listener.fileno()

    def has_clients(self) -> bool:
        """Whether a client waits to be accepted."""
        import select

        poll = select.poll()  # not select(), which cannot handle descriptors above 1023
        poll.register(self, select.POLLIN)
        return bool(poll.poll(0))

    def turn_away_waiting(self) -> None:
        """Close the connections of clients that wait to be accepted. Call this before `start`."""
        assert self._listener is not None, "the server was stopped"
        while True:
            try:
                fd, _ = self._listener._accept()  # type: ignore[attr-defined]  # noqa: SLF001 - below socket.accept
            except OSError:
                return
            os.close(fd)

    def clients_max(self) -> int:
        """How many clients it can serve at a time, after raising the limit of open files as far as possible."""
        from holdfast import descriptors
        from holdfast.torchstore.loop import connections_max

        return connections_max(descriptors.allow(DESCRIPTORS_WANTED))

    def share(self, workers: int) -> None:
        """Call before `start`: `workers` on several machines share the store, and no machine may use it up."""
        self._shared_by = workers

    def admit(self, peers: frozenset[bytes]) -> None:
        """Set the addresses of the job, and decide about waiting clients. Call this between `start` and `stop`."""
        assert self._loop is not None, "the server was not started"
        self._loop.admit(peers)
        os.eventfd_write(self._wake, 1)

    def start(self) -> None:
        """Start to answer, in a thread of its own that no signal interrupts."""
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
        before = leave_to_main_thread()  # a thread inherits the signal mask of the thread that starts it
        try:
            self._thread.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def stop(self) -> None:
        """Close all connections and free the port. Nothing of the server is left when this returns."""
        if self._thread is not None:
            assert self._loop is not None
            self._loop.is_over = True
            os.eventfd_write(self._wake, 1)
            self._thread.join()
            self._thread = None
        if self._listener is not None and os.getpid() == self._owner_pid:  # a forked process has a copy, not the server
            from _socket import SHUT_RDWR

            self._listener.shutdown(SHUT_RDWR)  # close() is not enough while a newly forked child has a copy
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
    name = host.encode() if host.isascii() else host  # bytes avoid the import of the idna codec, which takes 8 ms
    try:
        found = tcp.getaddrinfo(name or None, port, tcp.AF_UNSPEC, tcp.SOCK_STREAM, 0, tcp.AI_PASSIVE)
    except OSError as error:
        failure, found = error, []
    for family, kind, protocol, _, address in found:
        listener = tcp.socket(family, kind, protocol)
        try:
            listener.setsockopt(tcp.SOL_SOCKET, tcp.SO_REUSEADDR, 1)
            # On Linux, accepted connections inherit these options.
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
    """Close the copies in a forked child: they would keep clients waiting, and the port taken, after our end."""
    for server in list(_serving):
        server._thread = None  # noqa: SLF001 - it does not run here
        server._close()  # noqa: SLF001 - a function of this module


os.register_at_fork(after_in_child=_close_in_child)
