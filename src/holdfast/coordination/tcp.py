"""TCP options for both ends of a connection, and connecting to one of several addresses."""

from __future__ import annotations

import asyncio
import socket
from functools import partial

from holdfast.background import begin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, TypeAlias

    Found: TypeAlias = tuple[int, int, int, str, Any]

SILENCE_MAX_S = 10
"""How long a peer may leave data or probes unacknowledged before the kernel ends the connection."""

PROBE_AFTER_S = 4
"""How long a connection is idle before the kernel probes the peer, and the interval of further probes."""


def set_options(connection: socket.socket) -> None:
    """Send small packets at once, and end connections to peers that vanished."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PROBE_AFTER_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_AFTER_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE_MAX_S * 1000)


async def resolve(host: str, port: int, family: int = socket.AF_UNSPEC) -> Sequence[Found]:
    """The addresses of a host; for an empty host, all addresses of this machine. Raises OSError if there are none.

    A look-up that hangs delays neither the loop nor the end of the process.
    """
    try:  # an IP address needs no thread
        flags = socket.AI_NUMERICHOST | socket.AI_PASSIVE
        return socket.getaddrinfo(host or None, port, family, socket.SOCK_STREAM, 0, flags)
    except socket.gaierror:
        # Not in the loop's own pool: the interpreter waits for its threads, and a resolver may take half a minute.
        look_up = partial(socket.getaddrinfo, host, port, family, socket.SOCK_STREAM)
        return await asyncio.wrap_future(begin(look_up))


async def reach(found: Sequence[Found], source: str | None, timeout_s: float) -> socket.socket:
    """A socket connected to the first address that answers. Each address gets an equal share of the timeout.

    Raises:
        OSError: no address answered. ConnectionRefusedError if all refused.
    """
    failures: list[OSError] = []
    for family, kind, protocol, _, address in found:
        connection = socket.socket(family, kind, protocol)
        try:
            async with asyncio.timeout(timeout_s / len(found)):
                await _connect(connection, source, address)
        except OSError as error:
            connection.close()
            failures.append(error)
        except BaseException:
            connection.close()
            raise
        else:
            return connection
    raise next((error for error in failures if not isinstance(error, ConnectionRefusedError)), failures[0])


async def _connect(connection: socket.socket, source: str | None, address: Any) -> None:
    connection.setblocking(False)
    set_options(connection)
    if source is not None:
        connection.bind((source, 0))
    await asyncio.get_running_loop().sock_connect(connection, address)
    if connection.getsockname() == connection.getpeername():  # a socket can connect to itself on a free local port
        raise ConnectionRefusedError(f"nothing listens at {address}")
