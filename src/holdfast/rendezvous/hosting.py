"""The ports that the node of rank 0 holds for all workers: the store at MASTER_PORT, and one for JAX's coordinator.

The ports are bound before the node announces them, and stay bound until the round is over: no other program can take
them in between. The exception is a store that rank 0 serves: its port is only looked up.
"""

from __future__ import annotations

import _thread
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Callable, Iterable
    from typing import Any

    from holdfast.torchstore import TorchStoreServer
    from holdfast.torchstore.access import Access

AGENT, RANK0 = "agent", "rank0"
"""Who serves the workers' store: the agent, or the worker of rank 0."""

NO_SHARED_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
"""torch's variable that lets the worker of rank 0 serve the store."""

FEW_WORKERS = 64
"""Up to this many workers need no check of the limit of open files; most systems begin with 1,024."""


def agent_serves(store_host: str | None) -> bool:
    """Whether the agent serves the workers' store, by its settings."""
    if store_host not in (None, AGENT, RANK0):
        from holdfast.errors.tree import InputError

        raise InputError(f"--store-host {store_host!r}: write {AGENT} or {RANK0}")
    return store_host != RANK0 and os.environ.get(NO_SHARED_STORE) != "1"


class Hosting:
    """The ports of this node that the workers of a round use if it has rank 0.

    `store` is set if the agent serves the workers' store: it already listens, and answers once it is started. `access`
    says who may use it. Without a store, rank 0 opens `port`: it was free, but is not held.
    """

    __slots__ = ("_closing", "_coordinator", "_has_given_port", "coordinator_port", "port", "store")

    def __init__(self, address: str, port: int = 0, *, serves_store: bool, access: Access | None = None) -> None:
        self._closing = _thread.allocate_lock()
        self._has_given_port = port != 0
        self.store: TorchStoreServer | None = None
        if serves_store:
            self.store = _store_at(address, port)
            self.store.access = access
            self.port = self.store.port
        else:
            self.port = port or free_port(address)
        self._coordinator: socket | None = _held_port()
        self.coordinator_port: int = self._coordinator.getsockname()[1]

    def begin(self) -> None:
        """The round begins, so all workers of the last one have ended. Call this before the store answers.

        They may have connected to a port that is the same in all rounds, and must leave nothing in the new store.
        """
        if self.store is not None and self._has_given_port:
            self.store.turn_away_waiting()

    def restrict(self, addresses: Iterable[str], find_others: Callable[[], None] | None = None) -> None:
        """Let in only the machines of the job, at these addresses. Call this before the store answers.

        The store's thread calls `find_others` when a connection comes from an unknown address. `find_others` must not
        block; it arranges a call of `admit`. None if there are no more addresses.
        """
        store = self.store
        if store is not None:
            from holdfast.rendezvous.store_access import packed
            from holdfast.torchstore.access import Access

            store.access = (store.access or Access()).of_job(packed(addresses), find_others)

    def admit(self, addresses: Iterable[str]) -> None:
        """Let in the machines at these addresses, and no others. Any thread may call this at any time."""
        from holdfast.rendezvous.store_access import packed

        peers = packed(addresses)
        with self._closing:
            if self.store is not None:
                self.store.admit(peers)

    def expect(self, workers: int, nodes: int = 1) -> None:
        """Share the store among `workers` and `nodes`, and warn if it cannot serve them."""
        if self.store is None:
            return
        if nodes > 1:
            self.store.share(workers)
        if workers <= FEW_WORKERS:
            return
        from holdfast.torchstore.loop import CONNECTIONS_A_WORKER

        clients_max = self.store.clients_max()
        if workers * CONNECTIONS_A_WORKER > clients_max:
            from holdfast.logger import get_logger

            get_logger(__name__).warning(
                "the job has %s workers, and the store at MASTER_PORT can serve %s connections, of which torch opens "
                "%s or more for each worker: raise the hard limit of open files on this machine (ulimit -Hn), or let "
                "rank 0 serve the store (--store-host rank0)",
                workers,
                clients_max,
                CONNECTIONS_A_WORKER,
            )

    def close(self) -> None:
        """Close both ports. Any thread may call this at any time: an agent that ends, a member that seeks a place."""
        with self._closing:
            if self.store is not None:
                self.store.stop()
                self.store = None
            if self._coordinator is not None:
                self._coordinator.close()
                self._coordinator = None


def _store_at(address: str, port: int) -> TorchStoreServer:
    import _socket

    from holdfast.torchstore.server import TorchStoreServer

    try:
        return TorchStoreServer(address, port)
    except OSError as error:
        from errno import EADDRNOTAVAIL

        # The address is not local: a NAT or service address.
        if error.errno == EADDRNOTAVAIL:
            return TorchStoreServer("", port)
        from holdfast.errors.tree import InfrastructureError, InputError

        if error.errno in (_socket.EAI_NONAME, _socket.EAI_NODATA):
            raise InputError(
                f"--local-addr {address!r}: unknown host name; give a name that this machine can resolve, or an address"
            ) from error
        if not port:
            raise InfrastructureError(str(error.strerror)) from error
        what_to_do = "choose another port, or stop the program that uses it"
        raise InputError(f"--master-port {port}: {error.strerror}; {what_to_do}") from error


def _held_port() -> socket:
    """A held port that no other program gets. JAX's coordinator can still open it, because gRPC sets SO_REUSEPORT."""
    import _socket

    holder: Any = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    holder.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEPORT, 1)
    holder.bind(("", 0))
    return holder  # type: ignore[no-any-return]  # the type is only known to typeshed as `socket.socket`


def free_port(host: str) -> int:
    """A port of `host`, an address of this machine, that no program listens on right now."""
    import _socket

    family = _socket.AF_INET6 if ":" in host else _socket.AF_INET
    probe = _socket.socket(family, _socket.SOCK_STREAM)
    try:
        try:
            probe.bind((host, 0))
        except OSError:
            probe.bind(("", 0))  # the address is not local: a NAT or service address
        port: int = probe.getsockname()[1]
        return port
    finally:
        probe.close()
