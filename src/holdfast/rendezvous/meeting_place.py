"""Where nodes meet: a store that one of the agents serves, or etcd."""

from __future__ import annotations

import errno
import os
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from holdfast import descriptors
from holdfast.coordination.loopback import is_loopback
from holdfast.logger import get_logger
from holdfast.rendezvous.addresses import bracketed, own_addresses

if TYPE_CHECKING:
    import ssl

    from holdfast.coordination.last_will import EmbeddedAccess, EtcdAccess
    from holdfast.coordination.local_users import Users
    from holdfast.coordination.server import EmbeddedServer
    from holdfast.coordination.store import CoordinationStore

CONNECTIONS_A_NODE = 2
"""How many connections the host counts on for each node: one that is, and one that is about to take its place."""

DESCRIPTORS_BESIDE = 256
"""How many descriptors the host counts on for all else."""

log = get_logger(__name__)


class MeetingPlace(ABC):
    """A store, and what this node has to do with it."""

    name: str
    """For people: what is there, and where."""

    hosts: tuple[str, ...]
    """The machines that serve it, as they were written."""

    may_return: bool
    """Whether a store that is gone may come back. If not, its loss is the end of the job."""

    is_host = False
    """Whether this node serves the store: once opened."""

    prefix = ""
    """What the store puts before every key."""

    @abstractmethod
    async def open(self) -> CoordinationStore:
        """The store, connected or not. Serves it first, if that is this node's part."""

    @abstractmethod
    def access(self) -> EmbeddedAccess | EtcdAccess:
        """How another process reaches the store, as a plain record."""

    async def look_again(self) -> None:  # noqa: B027 - by default nothing
        """Nobody serves there. Perhaps this node can, now."""

    async def close(self) -> None:  # noqa: B027 - by default nothing
        """Let go of it, the store that `open` returned excepted."""


class EmbeddedPlace(MeetingPlace):
    """The store that the agent at an endpoint serves. Its loss is the loss of the job."""

    may_return = False

    def __init__(
        self,
        host: str,
        port: int,
        *,
        is_host: bool | None,
        token: bytes,
        answer_timeout_s: float,
        nodes_max: int,
        tls_files: tuple[str, str, str] | None = None,
        users: Users = frozenset(),
    ) -> None:
        """Without `is_host`, the agent serves whose address `host` is; of several on one machine, the first.

        `tls_files` are the CA, the certificate and its key, if the user gives them. Without, the host makes a
        certificate; only where all nodes are on one machine nothing is encrypted. There, `users` may take part beside
        the one who runs this node and root; None for all.

        Raises:
            InputError: one of the files cannot be used.
        """
        self.name = f"the store at {bracketed(host, port)}"
        self.hosts = (host,)
        self._host = host
        self._port = port
        self._wants_to_be_host = is_host
        self._token = token
        self._tls_files = tls_files
        self._users = users
        self._is_local = is_loopback(host)
        self._client_tls = self._make_client_tls()
        self._answer_timeout_s = answer_timeout_s
        self._nodes_max = nodes_max
        self._server: EmbeddedServer | None = None

    async def open(self) -> CoordinationStore:
        from holdfast.coordination.client import EmbeddedStore

        if self._wants_to_be_host is not False:
            await self._serve()
        return EmbeddedStore(
            self._host,
            self._port,
            token=self._token,
            tls=self._client_tls,
            users=self._users,
            answer_timeout_s=self._answer_timeout_s,
        )

    def access(self) -> EmbeddedAccess:
        from holdfast.coordination.last_will import EmbeddedAccess

        tls = self._tls_files
        if tls is not None:
            tls = (os.path.abspath(tls[0]), os.path.abspath(tls[1]), os.path.abspath(tls[2]))
        return EmbeddedAccess(self._host, self._port, self._token, tls, self._is_local, self._users)

    def _make_client_tls(self) -> ssl.SSLContext | None:
        from holdfast.coordination.tls import for_client

        return for_client(self._tls_files, is_local=self._is_local)

    async def look_again(self) -> None:
        # Who held the port may have been a passer-by: any port that the kernel gives out can be in use for a moment.
        if self._server is None and self._wants_to_be_host is not False:
            await self._serve()

    async def _serve(self) -> None:
        from holdfast.coordination.server import EmbeddedServer
        from holdfast.coordination.tls import for_server

        addresses = own_addresses(self._host)
        if not addresses and self._wants_to_be_host:
            addresses = [""]  # an address that is translated on its way here, such as a Kubernetes service's
        for address in addresses:
            # The server leaves a part of what there is to the rest of the process.
            descriptors.allow(2 * CONNECTIONS_A_NODE * self._nodes_max + DESCRIPTORS_BESIDE)
            tls = for_server(self._tls_files, is_local=self._is_local)
            server = EmbeddedServer(token=self._token, tls=tls, users=self._users)
            try:
                await server.start(address, self._port)
            except OSError as error:
                if error.errno == errno.EADDRINUSE and not self._wants_to_be_host:
                    log.info("%s is served by another process of this machine", self.name)
                    return
                from holdfast.errors.tree import InputError

                raise InputError(
                    f"--rdzv-endpoint {bracketed(self._host, self._port)}: cannot listen there: {error.strerror}"
                ) from error
            self._server = server
            self.is_host = True
            return

    async def close(self) -> None:
        if self._server is not None:
            await self._server.close()
            self._server = None


class EtcdPlace(MeetingPlace):
    """A cluster of etcd, which outlives any machine of the job and any one of its own."""

    may_return = True

    def __init__(self, access: EtcdAccess, answer_timeout_s: float) -> None:
        self.name = f"etcd at {', '.join(bracketed(*endpoint) for endpoint in access.endpoints)}"
        self.hosts = tuple(host for host, _ in access.endpoints)
        self.prefix = access.prefix
        self._access = access
        self._answer_timeout_s = answer_timeout_s

    async def open(self) -> CoordinationStore:
        return self._access.open(self._answer_timeout_s)

    def access(self) -> EtcdAccess:
        return self._access
