"""The rendezvous of a single node, which has nobody to meet."""

from __future__ import annotations

import re

from holdfast.rendezvous.backends import MASTER_PORT
from holdfast.rendezvous.handler import RendezvousHandler, RendezvousInfo, RendezvousStoreInfo
from holdfast.rendezvous.hosting import Hosting, agent_serves
from holdfast.rendezvous.store import LocalStore

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.rendezvous.parameters import RendezvousParameters
    from holdfast.torchstore.access import Access

LOOPBACK = "127.0.0.1"
OWN_SETTINGS = frozenset(("rank", "store_host", "timeout"))
"""The settings that come from options of their own, or from defaults, in every job. Only these need no other check."""

_NO_PORT = -1
"""What stands for a port that an endpoint does not have."""

_ENDPOINT = re.compile(
    r"\[([0-9a-fA-F:.%\w]+)\](?::([0-9]{1,9}))?"  # [fd00::1] or [fd00::1]:29500
    r"|([0-9a-fA-F]*:[0-9a-fA-F]*:[0-9a-fA-F:.]*)"  # fd00::1
    r"|([\w.-]+)(?::([0-9]{1,9}))?"  # host or host:29500
)


class StaticRendezvous(RendezvousHandler):
    """A single node, whatever its backend."""

    needs_polling = False

    def __init__(
        self,
        master_addr: str,
        master_port: int | None,
        run_id: str,
        backend: str = "static",
        store_host: str | None = None,
        access: Access | None = None,
    ) -> None:
        """If `master_port` is None, each round uses a free port. `access` says who may use the workers' store."""
        self._backend = backend
        self._master_addr = master_addr
        self._master_port = master_port
        self._run_id = run_id
        self._closed = False
        self._agent_serves = agent_serves(store_host)
        self._access = access
        self._hosting: Hosting | None = None

    @classmethod
    def alone(cls, params: RendezvousParameters) -> StaticRendezvous:
        """A rendezvous for a single node, which has nobody to meet, whatever its backend."""
        _check_unused(params)
        address = params.local_addr or LOOPBACK
        return cls(address, None, params.run_id, params.backend, params.get("store_host"), _access(params))

    @classmethod
    def from_parameters(cls, params: RendezvousParameters) -> StaticRendezvous:
        """A rendezvous for a single node at the endpoint that it was given, or anywhere."""
        if not params.endpoint:
            return cls.alone(params)
        _check_unused(params)
        host, port = parse_endpoint(params.endpoint, MASTER_PORT)
        return cls(host, port, params.run_id, store_host=params.get("store_host"), access=_access(params))

    def get_backend(self) -> str:
        return self._backend

    @property
    def use_agent_store(self) -> bool:
        return self._agent_serves

    def next_rendezvous(self) -> RendezvousInfo:
        self._let_go()
        address = self._master_addr
        hosting = Hosting(address, self._master_port or 0, serves_store=self._agent_serves, access=self._access)
        self._hosting = hosting
        if address != LOOPBACK:
            hosting.restrict(())
        return RendezvousInfo(
            *(LocalStore(), 0, 1),
            RendezvousStoreInfo(address, hosting.port),
            coordinator_port=hosting.coordinator_port,
            hosting=hosting,
        )

    def _let_go(self) -> None:
        if self._hosting is not None:
            self._hosting.close()
            self._hosting = None

    def is_closed(self) -> bool:
        return self._closed

    def set_closed(self) -> None:
        self._closed = True

    def num_nodes_waiting(self) -> int:
        return 0

    def get_run_id(self) -> str:
        return self._run_id

    def shutdown(self) -> bool:
        self._let_go()
        return True

    def leave(self) -> None:
        self._let_go()


def check_rank(params: RendezvousParameters) -> None:
    """Raise InputError unless the backend ``static`` can run a node with this rank."""
    from holdfast.errors.tree import InputError

    if params.min_nodes != params.max_nodes:
        raise InputError(
            f"--nnodes {params.min_nodes}:{params.max_nodes}: the static backend has a fixed number of nodes; "
            "write one number, or choose a backend in which nodes can come and go (--rdzv-backend c10d)"
        )
    rank = params.get_as_int("rank", 0 if params.max_nodes == 1 else None)
    if rank is None or not 0 <= rank < params.max_nodes:
        raise InputError(f"--node-rank {rank}: {params.max_nodes} nodes have ranks 0 to {params.max_nodes - 1}")


def check_complete(params: RendezvousParameters) -> None:
    """Raise InputError unless the endpoint has a host and a port, and the node was told its rank."""
    from holdfast.errors.tree import InputError

    endpoint = params.endpoint.strip()
    if not endpoint:
        raise InputError("--rdzv-endpoint '': the endpoint is missing; write HOST:PORT, such as node0:29500")
    _, port = parse_endpoint(endpoint, _NO_PORT)
    if port == _NO_PORT:
        raise InputError(f"--rdzv-endpoint {endpoint!r}: the port is missing; write HOST:PORT, such as [fd00::1]:29500")
    if params.get("rank") is None:
        raise InputError("--node-rank: the rank is missing; give each node a rank of its own, from 0")


def _check_unused(params: RendezvousParameters) -> None:
    params.get_as_int("rank")
    if params.config.keys() <= OWN_SETTINGS:
        return
    from holdfast.rendezvous.known_settings import check_unused

    check_unused(params)


def _access(params: RendezvousParameters) -> Access | None:
    if params.get("store_users") is None and params.get("store_peers") is None:
        return None
    from holdfast.rendezvous.store_access import access_from

    return access_from(params)


def parse_rendezvous_endpoint(endpoint: str | None, default_port: int) -> tuple[str, int]:
    """The host and the port of an endpoint, which are ``localhost`` and `default_port` if it does not say.

    Raises:
        InputError: the host or the port cannot be one.
    """
    text = "" if endpoint is None else endpoint.strip()
    return parse_endpoint(text, default_port) if text else ("localhost", default_port)


def refuse_password(endpoint: str) -> None:
    """Raise InputError for an endpoint with an ``@``. A password may stand before it, so the message quotes nothing."""
    if "@" in endpoint:
        from holdfast.errors.tree import InputError

        raise InputError(
            "--rdzv-endpoint: it contains an @ (not shown, as it may hold a password); write only HOST:PORT, and put "
            "etcd's user and password into the variable PET_RDZV_CONF as user=NAME,password=SECRET"
        )


def parse_endpoint(endpoint: str, default_port: int) -> tuple[str, int]:
    """Parse ``host``, ``host:port``, an IPv6 address, or ``[IPv6 address]:port``."""
    refuse_password(endpoint)
    what_to_do = "write HOST:PORT, such as node0:29500 or [fd00::1]:29500"
    found = _ENDPOINT.fullmatch(endpoint.strip())
    if found is not None:
        bracketed, its_port, bare, host, port = found.groups()
        number = int(its_port or port or default_port)
        its_host = bracketed or bare or host
        if (bracketed or ":" in its_host) and not _is_ipv6(its_host):
            what_to_do = f"{its_host} is no IPv6 address; {what_to_do}"
        elif number < 1 << 16:
            return its_host, number
        else:
            what_to_do = "the port must be 1 to 65535"
    from holdfast.errors.tree import InputError

    raise InputError(f"--rdzv-endpoint {endpoint!r}: {what_to_do}")


def _is_ipv6(text: str) -> bool:
    """Whether `text` is an IPv6 address, perhaps with a zone, as in ``fe80::1%eth0``."""
    import socket

    try:
        socket.inet_pton(socket.AF_INET6, text.partition("%")[0])
    except OSError:
        return False
    return True
