"""How long a member waits for an answer of the store while a stranger floods it.

The stranger is one process that has no token. It opens connections as fast as it can, begins with TLS on each, and
leaves them open. The limit is the same member without a stranger.
"""

from __future__ import annotations

import asyncio
import socket
import statistics
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from benchmarks.measuring import Measurement, in_turns
from benchmarks.subject import HOLDFAST
from benchmarks.topics import RENDEZVOUS
from holdfast import descriptors
from holdfast.coordination.client import EmbeddedStore
from holdfast.coordination.server import EmbeddedServer
from holdfast.coordination.tls import own_client_context, own_server_tls
from holdfast.coordination.tls_session import TlsSession

if TYPE_CHECKING:
    from benchmarks.workplace import Workplace

ADDRESS = "127.0.0.1"
TOKEN = b"the token of the benchmark"
CALM = "no flood"
LASTS_S = 3.0
PAUSE_S = 0.01
"""Between two questions of the member."""

CONNECTIONS_MAX = 20_000
"""How many connections the stranger opens at most."""

OPEN_MAX = 2_000
"""How many of them it keeps open."""


def measure(workplace: Workplace) -> list[Measurement]:
    rounds = 1 if workplace.quick else 3
    descriptors.allow(2 * OPEN_MAX)
    samples = in_turns(rounds, {HOLDFAST: lambda _: ask(is_flooded=True), CALM: lambda _: ask(is_flooded=False)})
    worst = {name: [[max(one)] for one in each] for name, each in samples.items()}
    usual = {name: [[statistics.median(one)] for one in each] for name, each in samples.items()}
    return [
        Measurement("a member's answer in a flood of strangers: median", "ms", usual, topic=RENDEZVOUS),
        Measurement("a member's answer in a flood of strangers: the longest", "ms", worst, topic=RENDEZVOUS),
    ]


def ask(*, is_flooded: bool) -> list[float]:
    """How long each answer took, in milliseconds."""
    return asyncio.run(_ask(is_flooded=is_flooded))


async def _ask(*, is_flooded: bool) -> list[float]:
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __name__, "serve", stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert server.stdout is not None
    port = int(await server.stdout.readline())
    stranger = None
    try:
        async with EmbeddedStore(ADDRESS, port, token=TOKEN, tls=own_client_context(), answer_timeout_s=60.0) as store:
            await store.get("key")
            if is_flooded:
                stranger = await asyncio.create_subprocess_exec(sys.executable, "-m", __name__, "flood", str(port))
                await asyncio.sleep(0.5)
            took_ms = []
            until = time.monotonic() + LASTS_S
            while (began := time.monotonic()) < until:
                await store.get("key")
                took_ms.append((time.monotonic() - began) * 1000)
                await asyncio.sleep(PAUSE_S)
            return took_ms
    finally:
        for process in (server, stranger):
            if process is not None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()


async def _serve() -> None:
    server = EmbeddedServer(token=TOKEN, tls=own_server_tls())
    await server.start(ADDRESS, 0)
    print(server.address[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


def _flood(port: int) -> None:
    session = TlsSession(own_client_context())
    session.receive(b"")
    hello = session.to_send()
    kept: list[socket.socket] = []
    for number in range(CONNECTIONS_MAX):
        with suppress(OSError):
            connection = socket.create_connection((ADDRESS, port), 5.0)
            kept.append(connection)
            connection.sendall(hello)
        if len(kept) > OPEN_MAX:
            kept[number % OPEN_MAX].close()
            kept[number % OPEN_MAX] = kept.pop()


if __name__ == "__main__":
    descriptors.allow(2 * CONNECTIONS_MAX)
    if sys.argv[1] == "serve":
        asyncio.run(_serve())
    else:
        _flood(int(sys.argv[2]))
