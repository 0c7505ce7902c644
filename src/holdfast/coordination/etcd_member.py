"""One member of an etcd cluster, and the gRPC channel to it."""

from __future__ import annotations

from holdfast.coordination.errors import StoreUnavailableError
from holdfast.coordination.etcd_answers import ANSWER_MAX_BYTES
from holdfast.coordination.etcd_rpc import Methods

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias

    from holdfast.coordination.etcd_security import TlsFiles

    Endpoint: TypeAlias = tuple[str, int]

PING_INTERVAL_S = 7.0
"""The interval of pings on a silent connection with a watch. By default etcd penalises intervals below 5 s."""

RECONNECT_MAX_S = 1.0
"""The longest back-off of gRPC before it reconnects."""


class Member:
    """One member of the cluster, while the connection to it is open."""

    def __init__(self, endpoint: Endpoint, channel: Any) -> None:
        self.endpoint = endpoint
        self.name = name_of(endpoint)
        self.channel = channel
        self.methods = Methods(channel, self.name)
        self.can_serve = True
        """Whether the member had a leader when it last answered."""

        self.has_answered = False
        """Whether the member ever answered. Until then, silence may mean that connecting takes long."""

        self.is_checked = False
        """Whether a sign of life is awaited."""

        self.fault = ""
        """The member's last malformed answer, described."""

    def given_up(self) -> StoreUnavailableError:
        """The error of requests that fail because the connection was closed."""
        return StoreUnavailableError(self.fault or f"etcd at {self.name} was given up")


def open_channel(grpc: Any, endpoint: Endpoint, tls_files: TlsFiles | None, answer_timeout_s: float) -> Any:
    """A channel to a member. It connects with the first request."""
    options = {
        "grpc.enable_http_proxy": 0,
        "grpc.use_local_subchannel_pool": 1,  # a new connection does not share an old one's back-off
        "grpc.min_reconnect_backoff_ms": int(1000 * answer_timeout_s),  # how long connecting may take
        "grpc.initial_reconnect_backoff_ms": int(100 * RECONNECT_MAX_S),
        "grpc.max_reconnect_backoff_ms": int(1000 * RECONNECT_MAX_S),
        "grpc.keepalive_time_ms": int(1000 * PING_INTERVAL_S),
        "grpc.keepalive_timeout_ms": int(1000 * answer_timeout_s),
        "grpc.http2.max_pings_without_data": 0,
        "grpc.max_receive_message_length": ANSWER_MAX_BYTES,
        "grpc.max_send_message_length": -1,
    }
    target = name_of(endpoint)
    if tls_files is None:
        return grpc.aio.insecure_channel(target, options=list(options.items()))
    credentials = grpc.ssl_channel_credentials(*tls_files.read())
    return grpc.aio.secure_channel(target, credentials, options=list(options.items()))


def name_of(endpoint: Endpoint) -> str:
    host, port = endpoint
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
