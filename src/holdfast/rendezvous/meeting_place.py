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

    from holdfast.coordination.access import Access, EmbeddedAccess, EtcdAccess
    from holdfast.coordination.local_users import Users
    from holdfast.coordination.server import EmbeddedServer
    from holdfast.coordination.store import CoordinationStore

CONNECTIONS_A_NODE = 2
"""The connections that the host plans for each node: the current one, and its replacement."""

CONNECTIONS_A_STRANGER = 4
"""The connections that the host accepts for each node without a token: a node that was killed leaves some behind."""

DESCRIPTORS_BESIDE = 256
"""The descriptors that the host plans for everything else."""

log = get_logger(__name__)


class MeetingPlace(ABC):
    """A store, and this node's role in it."""

    name: str
    """A description of the store and its address, for people."""

    hosts: tuple[str, ...]
    """The machines that serve the store, as the user wrote them."""

    may_return: bool
    """Whether a store that is gone may come back. If not, its loss ends the job."""

    is_host = False
    """Whether this node serves the store. Valid once the store is open."""

    prefix = ""
    """The prefix that the store adds to every key."""

    advice = ""
    """What to check if the store is not there, for people, after the reason; "" where nothing is likely."""

    is_of_one_job = False
    """Whether the store is one job's alone. If such a store has the end of a job, it is that of the job before."""

    has_trust = True
    """Whether only nodes that know the job's secret are in the store. If not, nodes do little of what others ask."""

    @abstractmethod
    async def open(self) -> CoordinationStore:
        """Return the store, connected or not. Serve it first if this node is the host."""

    @abstractmethod
    def access(self) -> Access:
        """How another process reaches the store, as a plain record."""

    async def look_again(self) -> None:  # noqa: B027 - optional, does nothing
        """No node serves the store. Try again to serve it here."""

    async def look_who_listens(self) -> None:  # noqa: B027 - optional, does nothing
        """The store does not answer. Raise InputError if something else has its port for certain."""

    async def close(self) -> None:  # noqa: B027 - optional, does nothing
        """Free all resources, except the store that `open` returned."""


class EmbeddedPlace(MeetingPlace):
    """The store that the agent at an endpoint serves. If it is lost, so is the job."""

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
        option: str = "",
        is_of_one_job: bool = False,
        has_trust: bool = True,
    ) -> None:
        """If `is_host` is None, the agent on the machine `host` serves the store; of several agents, the first one.

        `tls_files` are the CA, the certificate and its key, if the user gives them. Without them the host makes a
        certificate; traffic is unencrypted only where all nodes are on one machine. There, `users` may take part, and
        so may root and the user of this node; None for all users. `option` is what a message about the port names.

        Raises:
            InputError: one of the files cannot be used.
        """
        self.name = f"the store at {bracketed(host, port)}"
        self.hosts = (host,)
        self.is_of_one_job = is_of_one_job
        self.has_trust = has_trust
        if is_of_one_job and not is_host:
            self.advice = (
                "; node 0 serves it: is --node-rank 0 running, and do all nodes have the same --master-addr and "
                "--master-port?"
            )
        self._host = host
        self._port = port
        self._option = option or f"--rdzv-endpoint {bracketed(host, port)}"
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

        await self.look_again()
        return EmbeddedStore(
            self._host,
            self._port,
            token=self._token,
            tls=self._client_tls,
            users=self._users,
            answer_timeout_s=self._answer_timeout_s,
        )

    def access(self) -> EmbeddedAccess:
        from holdfast.coordination.access import EmbeddedAccess

        tls = self._tls_files
        if tls is not None:
            tls = (os.path.abspath(tls[0]), os.path.abspath(tls[1]), os.path.abspath(tls[2]))
        return EmbeddedAccess(self._host, self._port, self._token, tls, self._is_local, self._users)

    def _make_client_tls(self) -> ssl.SSLContext | None:
        from holdfast.coordination.tls import for_client

        return for_client(self._tls_files, is_local=self._is_local)

    async def look_again(self) -> None:
        # Another program may have held the port for a moment: the kernel hands out any free port.
        if self._server is None and self._wants_to_be_host is not False:
            await self._serve()

    async def look_who_listens(self) -> None:
        may_serve = self._wants_to_be_host is not False and bool(own_addresses(self._host))
        if self._server is not None or not may_serve:
            return
        import asyncio

        from holdfast.rendezvous.listener import Kind, identify

        found = await asyncio.to_thread(identify, self._host, self._port)
        what_to_do = "choose another port, the same on all machines"
        if found.kind is Kind.SILENT:  # a holdfast agent that is stopped says nothing, either
            log.warning(
                "port %s of this machine is used by a program that does not answer; if it is not an agent of this job, "
                "%s",
                *(self._port, what_to_do),
            )
        elif stranger := found.stranger():
            from holdfast.errors.tree import InputError

            raise InputError(
                f"{self._option}: port {self._port} of this machine is used by "
                f"something else ({stranger}); {what_to_do}"
            )

    async def _serve(self) -> None:
        from holdfast.coordination.server import EmbeddedServer
        from holdfast.coordination.tls import for_server

        addresses = own_addresses(self._host)
        if not addresses and self._wants_to_be_host:
            addresses = [""]  # a NAT or service address, such as a Kubernetes service's
            if self.is_of_one_job:
                log.warning(
                    "%s is not an address of this machine, which has --node-rank 0; node 0 listens on all addresses of "
                    "this machine",
                    self._host,
                )
        for address in addresses:
            # Twice the number: the server leaves a part of the descriptors to the rest of the process.
            descriptors.allow(2 * CONNECTIONS_A_NODE * self._nodes_max + DESCRIPTORS_BESIDE)
            tls = for_server(self._tls_files, is_local=self._is_local)
            members_max = None if self.has_trust else CONNECTIONS_A_STRANGER * self._nodes_max
            server = EmbeddedServer(token=self._token, tls=tls, users=self._users, members_max=members_max)
            try:
                await server.start(address, self._port)
            except OSError as error:
                if error.errno == errno.EADDRINUSE and not self._wants_to_be_host:
                    log.info("%s is served by another process of this machine", self.name)
                    return
                from holdfast.errors.tree import InputError

                raise InputError(f"{self._option}: cannot listen there: {error.strerror}") from error
            self._server = server
            self.is_host = True
            return

    async def close(self) -> None:
        if self._server is not None:
            await self._server.close()
            self._server = None


class EtcdPlace(MeetingPlace):
    """An etcd cluster, which survives the loss of any machine of the job and of any one of its own members."""

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
