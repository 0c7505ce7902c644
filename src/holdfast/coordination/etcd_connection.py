"""Connections to the members of an etcd cluster: one at a time, and another when it fails.

Every request says that it needs a member which has a leader: one that is cut off from the others refuses it at once.
"""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import contextmanager, suppress

from holdfast.coordination.errors import (
    CompactedError,
    CoordinationError,
    LeaseLostError,
    StoreRefusedError,
    StoreUnavailableError,
)
from holdfast.errors.tree import InputError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence
    from typing import Any, TypeAlias

    Endpoint: TypeAlias = tuple[str, int]

NO_LEADER_PAUSE_S = 0.1
"""How long to leave the members alone when none of them has a leader."""

PING_INTERVAL_S = 7.0
"""How often a silent connection with a watch is tried. etcd as it is installed takes offence at less than 5 s."""

RECONNECT_MAX_S = 1.0
"""How long gRPC waits at most before it connects again."""

NEEDS_LEADER = ("hasleader", "true")
"""What goes with a request that a member without a leader must not answer."""

_TOO_LARGE = ("etcdserver: request is too large", "etcdserver: too many operations", "message larger than max")
_TLS_FAILED = ("handshake failed", "handshaker", "certificate", "ssl_error", "tls:")


class TlsFiles:
    """Paths of the certificates: whom to trust, and who we are."""

    def __init__(self, ca_cert: str | None, cert: str | None, cert_key: str | None) -> None:
        if (cert is None) != (cert_key is None):
            raise InputError("etcd: a certificate and its key are given together; one of cert and key is missing")
        self._paths = (ca_cert, cert_key, cert)
        self.read()

    def __bool__(self) -> bool:
        return any(self._paths)

    def read(self) -> list[bytes | None]:
        """The trusted certificates, our key and our certificate. They get renewed: each connection reads them."""
        return [None if path is None else _read(path) for path in self._paths]


class Member:
    """One member of the cluster, as long as the connection to it is used."""

    def __init__(self, endpoint: Endpoint, channel: Any, rpc: Any) -> None:
        self.endpoint = endpoint
        self.name = name_of(endpoint)
        self.channel = channel
        self.token: str | None = None
        self.kv = rpc.KVStub(channel)
        self.lease = rpc.LeaseStub(channel)
        self.watch = rpc.WatchStub(channel)
        self.auth = rpc.AuthStub(channel)
        self.maintenance = rpc.MaintenanceStub(channel)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        return (NEEDS_LEADER,) if self.token is None else (NEEDS_LEADER, ("token", self.token))


class EtcdConnection:
    """The member that is in use, if any. A request that fails lets go of it, and the next one goes elsewhere."""

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        credentials: tuple[str, str] | None,
        tls_files: TlsFiles,
        connect_timeout_s: float,
        answer_timeout_s: float,
    ) -> None:
        if not endpoints:
            raise InputError("etcd: no endpoint; at least one host and port is needed")
        self.rpc = load_rpc()
        self.answer_timeout_s = answer_timeout_s
        self._endpoints = list(endpoints)
        self._credentials = credentials
        self._tls_files = tls_files
        self._connect_timeout_s = connect_timeout_s
        self._next = 0
        self._member: Member | None = None
        self._connecting = asyncio.Lock()
        self._closings: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def request(self, call: Callable[[Member], Awaitable[Any]]) -> Any:
        """Ask a member; `call` makes the request. It is asked again elsewhere only if nothing was done for certain.

        Raises:
            CoordinationError: what the answer was, or that there was none.
            ValueError: it is more than etcd takes.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.answer_timeout_s
        while True:
            try:
                member = await self.member()
                with self.errors_of(member):
                    return await call(member)
            except NoLeaderError:
                if loop.time() + NO_LEADER_PAUSE_S > deadline:
                    raise
                await asyncio.sleep(NO_LEADER_PAUSE_S)
            except OldTokenError:
                if loop.time() > deadline or self._credentials is None:
                    raise
                if self._member is not None:
                    await self._authenticate(self._member)

    async def member(self) -> Member:
        """The member in use, or the first that can be reached.

        Raises:
            StoreUnavailableError: none can.
            StoreRefusedError: none can, and one that could lets us do nothing.
        """
        async with self._connecting:
            errors: list[CoordinationError] = []
            while self._member is None:
                self._check_open()
                if len(errors) == len(self._endpoints):
                    raise min(errors, key=_how_little_it_says)
                endpoint = self._endpoints[self._next]
                try:
                    self._member = await self._connect(endpoint)
                except CoordinationError as error:
                    errors.append(error)
                    self._next = (self._next + 1) % len(self._endpoints)
            return self._member

    @contextmanager
    def errors_of(self, member: Member) -> Iterator[None]:
        """Raises ours for gRPC's errors. A member that does not answer is let go of."""
        try:
            yield
        except self.rpc.AioRpcError as error:
            ours = _as_ours(error.code().name, error.details() or "no details", member.name)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Not we are cancelled but the request: another one failed, and the connection was closed.
            ours = StoreUnavailableError(f"etcd at {member.name} was given up")
        else:
            return
        if isinstance(ours, StoreUnavailableError):
            self.let_go_of(member)
        raise ours

    def let_go_of(self, member: Member) -> None:
        """Use another member from now on. What is under way with this one fails."""
        if self._member is member:
            self._member = None
            self._next = (self._next + 1) % len(self._endpoints)
            closing = asyncio.get_running_loop().create_task(member.channel.close())
            self._closings.add(closing)
            closing.add_done_callback(self._closings.discard)

    async def close(self) -> None:
        self._is_closed = True
        if self._member is not None:
            self.let_go_of(self._member)
        if self._closings:
            await asyncio.wait(self._closings)

    def local_address(self) -> str | None:
        """The address of this machine that the member in use, or the next one, is reached from."""
        host, port = self._endpoints[self._next] if self._member is None else self._member.endpoint
        try:
            for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM):
                with socket.socket(family, kind, protocol) as probe:
                    probe.connect(address)  # sends nothing
                    return str(probe.getsockname()[0])
        except OSError:
            pass
        return None

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreUnavailableError("the store was closed")

    async def _connect(self, endpoint: Endpoint) -> Member:
        member = Member(endpoint, self._open_channel(endpoint), self.rpc)
        try:
            await self._authenticate(member)
            # Whoever has no leader is of no use, and what is wrong with a connection is said by a request only.
            with suppress(NotPermittedError), self.errors_of(member):
                await member.maintenance.Status(
                    self.rpc.StatusRequest(), timeout=self._connect_timeout_s, metadata=member.metadata
                )
            self._check_open()
        except BaseException:
            await member.channel.close()
            raise
        return member

    def _open_channel(self, endpoint: Endpoint) -> Any:
        options = {
            "grpc.enable_http_proxy": 0,
            "grpc.use_local_subchannel_pool": 1,  # a new connection does not wait for what an old one waits for
            "grpc.initial_reconnect_backoff_ms": int(100 * RECONNECT_MAX_S),
            "grpc.max_reconnect_backoff_ms": int(1000 * RECONNECT_MAX_S),
            "grpc.keepalive_time_ms": int(1000 * PING_INTERVAL_S),
            "grpc.keepalive_timeout_ms": int(1000 * self.answer_timeout_s),
            "grpc.http2.max_pings_without_data": 0,
            "grpc.max_receive_message_length": -1,
            "grpc.max_send_message_length": -1,
        }
        target = name_of(endpoint)
        if not self._tls_files:
            return self.rpc.insecure_channel(target, options=list(options.items()))
        import grpc  # noqa: PLC0415 - comes with the optional package

        credentials = grpc.ssl_channel_credentials(*self._tls_files.read())
        return self.rpc.secure_channel(target, credentials, options=list(options.items()))

    async def _authenticate(self, member: Member) -> None:
        if self._credentials is None:
            return
        name, password = self._credentials
        request = self.rpc.AuthenticateRequest(name=name, password=password)
        try:
            with self.errors_of(member):
                answer = await member.auth.Authenticate(
                    request, timeout=self._connect_timeout_s, metadata=(NEEDS_LEADER,)
                )
            member.token = answer.token
        except NoPasswordsError:
            member.token = None


class NoLeaderError(StoreUnavailableError):
    """The member knows no leader. It has done nothing."""


class OldTokenError(StoreRefusedError):
    """The member has forgotten that we gave a password. It has done nothing."""


class NotPermittedError(StoreRefusedError):
    """We are not known, or may not do this."""


class NoPasswordsError(StoreRefusedError):
    """The cluster does not ask for passwords."""


_OURS: list[tuple[str, type[CoordinationError], str]] = [
    ("etcdserver: no leader", NoLeaderError, "has no leader"),
    ("etcdserver: invalid auth token", OldTokenError, "has forgotten our password"),
    ("etcdserver: revision of auth store is old", OldTokenError, "has new passwords"),
    ("etcdserver: authentication is not enabled", NoPasswordsError, "asks for no password"),
    ("etcdserver: authentication failed", StoreRefusedError, "refuses us; check the user and the password"),
    ("etcdserver: user name is empty", NotPermittedError, "refuses us; it needs a user and a password"),
    ("etcdserver: permission denied", NotPermittedError, "refuses us; the user may not use these keys"),
    ("etcdserver: requested lease not found", LeaseLostError, "has this lease no more"),
    ("etcdserver: mvcc: required revision has been compacted", CompactedError, "has forgotten these changes"),
]
"""etcd's errors are known by their text: it uses one code for many."""


def _as_ours(code: str, details: str, name: str) -> CoordinationError | ValueError:
    for text, error, meaning in _OURS:
        if details.startswith(text):
            return error(f"etcd at {name} {meaning}")
    reason = details.rpartition("last error: ")[2].replace("\n", " ")  # gRPC says first where it comes from
    if any(text in details for text in _TOO_LARGE):
        return ValueError(f"etcd at {name} does not take this much: {reason}")
    if code in ("PERMISSION_DENIED", "UNAUTHENTICATED"):
        return StoreRefusedError(f"etcd at {name} refuses us: {reason}")
    if any(text in details.lower() for text in _TLS_FAILED):
        return StoreRefusedError(f"etcd at {name}: no secure connection; check the certificates: {reason}")
    return StoreUnavailableError(f"etcd at {name} does not answer: {reason}")


def _how_little_it_says(error: CoordinationError) -> int:
    """For the error to raise when no member can be used: what needs a person first, what time heals next."""
    if isinstance(error, StoreRefusedError):
        return 0
    return 1 if isinstance(error, NoLeaderError) else 2


def name_of(endpoint: Endpoint) -> str:
    host, port = endpoint
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise InputError(f"etcd: the certificate {path!r} cannot be read: {error.strerror}") from None


def load_rpc() -> Any:
    """The messages and stubs of etcd's protocol, from the optional package."""
    try:
        with _quiet():
            from aetcd import rpc  # noqa: PLC0415 - an optional package
    except ImportError:
        raise InputError("--rdzv-backend etcd: needs the package aetcd; pip install 'holdfast[etcd]'") from None
    return rpc


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence gRPC, which writes to stderr what it raises as well.

    It asks the environment when it is imported. Workers inherit the environment, so that is put back.
    """
    if "GRPC_VERBOSITY" in os.environ:
        yield
        return
    os.environ["GRPC_VERBOSITY"] = "NONE"
    try:
        yield
    finally:
        del os.environ["GRPC_VERBOSITY"]
