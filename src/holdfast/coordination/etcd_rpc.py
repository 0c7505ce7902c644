"""The gRPC methods of etcd that holdfast calls. The packages are optional, and imported when needed."""

from __future__ import annotations

import os
from contextlib import contextmanager

from holdfast.coordination.etcd_answers import checked, reader
from holdfast.coordination.etcd_messages import schema
from holdfast.errors.tree import InputError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Iterator, Sequence
    from typing import Any, Protocol, TypeAlias, TypeVar

    from holdfast.coordination import etcd_messages as messages

    Request_contra = TypeVar("Request_contra", contravariant=True)
    Response_co = TypeVar("Response_co", covariant=True)
    Metadata: TypeAlias = Sequence[tuple[str, str]]

    class Unary(Protocol[Request_contra, Response_co]):
        """A call with one request and one answer."""

        def __call__(
            self, request: Request_contra, /, *, timeout: float | None = None, metadata: Metadata = ()
        ) -> Awaitable[Response_co]: ...

    class Stream(Protocol[Request_contra, Response_co]):
        """A stream of requests and answers. gRPC's own object: read it with `async for`, or use `write` and `read`."""

        def __call__(
            self, requests: Iterable[Request_contra] = ..., /, *, timeout: float | None = None, metadata: Metadata = ()
        ) -> Any: ...


class Methods:
    """The methods of the member `name`. Single answers are `checked`; readers of a stream must check its answers."""

    def __init__(self, channel: Any, name: str) -> None:
        def stream(service: str, method: str) -> Any:
            return schema.caller(channel, service, method, reader)

        def of(service: str, method: str) -> Any:
            call = stream(service, method)

            async def ask(request: Any, /, **options: Any) -> Any:
                return checked(request, await call(request, **options), name)

            return ask

        self.range: Unary[messages.RangeRequest, messages.RangeResponse] = of("KV", "Range")
        self.transact: Unary[messages.TxnRequest, messages.TxnResponse] = of("KV", "Txn")
        self.grant: Unary[messages.LeaseGrantRequest, messages.LeaseGrantResponse] = of("Lease", "LeaseGrant")
        self.revoke: Unary[messages.LeaseRevokeRequest, messages.LeaseRevokeResponse] = of("Lease", "LeaseRevoke")
        self.keep_alive: Stream[messages.LeaseKeepAliveRequest, messages.LeaseKeepAliveResponse] = stream(
            "Lease", "LeaseKeepAlive"
        )
        self.watch: Stream[messages.WatchRequest, messages.WatchResponse] = stream("Watch", "Watch")
        self.authenticate: Unary[messages.AuthenticateRequest, messages.AuthenticateResponse] = of(
            "Auth", "Authenticate"
        )
        self.status: Unary[messages.StatusRequest, messages.StatusResponse] = of("Maintenance", "Status")
        self.alarm: Unary[messages.AlarmRequest, messages.AlarmResponse] = of("Maintenance", "Alarm")
        self.members: Unary[messages.MemberListRequest, messages.MemberListResponse] = of("Cluster", "MemberList")


def load_grpc() -> Any:
    """The module `grpc`, with `grpc.aio`. If it loads, protobuf is available, too.

    Raises:
        InputError: one of the packages is not installed.
    """
    try:
        with _quiet():
            import google.protobuf.message_factory  # noqa: F401 - an optional package
            import grpc.aio

            grpc.insecure_channel("localhost").close()  # connects to nothing; now every version has read the variable
    except ImportError as error:
        package = "protobuf" if "google" in str(error) else "grpcio"
        raise InputError(
            f"--rdzv-backend etcd: needs the package {package}; install holdfast with its extra etcd"
        ) from None
    return grpc


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence gRPC, which writes to stderr the errors that it also raises.

    gRPC reads the environment when it is imported, or at its first channel. Workers inherit the environment, so it is
    restored afterwards.
    """
    if "GRPC_VERBOSITY" in os.environ:
        yield
        return
    os.environ["GRPC_VERBOSITY"] = "NONE"
    try:
        yield
    finally:
        del os.environ["GRPC_VERBOSITY"]
