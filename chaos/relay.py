"""A TCP relay in front of the node that serves the store, which can reset connections and be slow to take new ones.

As a program, its arguments are the port to listen on and the address to forward to, HOST:PORT. It reads one command
a line from its standard input, as JSON, and answers each with a line:

{"clients": ["10.77.0.2"], "refuse_s": 2.0, "delay_s": 0.0}

All connections of these clients are reset at once. For `refuse_s` each new one is reset as well; for `delay_s` each new
one is taken and forwarded only when that time is over.

While nobody listens where it forwards to, the relay does not listen either: its clients are refused, as they would be
without it.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import subprocess
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

CHUNK_BYTES = 1 << 16
PROBE_S = 0.05
READY = "ready"
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER with no time: closing such a socket sends a reset."""


class Relay:
    """The relay itself, on an event loop."""

    def __init__(self, port: int, target: tuple[str, int]) -> None:
        self._port = port
        self._target = target
        self._server: asyncio.Server | None = None
        self._waiting: asyncio.Task[None] | None = None
        self._open: dict[asyncio.StreamWriter, str] = {}
        self._refuse_until: dict[str, float] = {}
        self._delay_until: dict[str, float] = {}

    async def listen(self) -> None:
        self._server = await asyncio.start_server(self.serve, "0.0.0.0", self._port)

    async def _listen_again(self) -> None:
        """Once somebody listens at the target again."""
        while True:
            try:
                _, writer = await asyncio.open_connection(*self._target)
            except OSError:
                await asyncio.sleep(PROBE_S)
            else:
                reset(writer)
                await self.listen()
                return

    def disturb(self, clients: Sequence[str], refuse_s: float, delay_s: float) -> None:
        now = asyncio.get_running_loop().time()
        for client in clients:
            self._refuse_until[client] = now + refuse_s
            self._delay_until[client] = now + delay_s
        for writer, client in list(self._open.items()):
            if client in clients:
                reset(writer)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = writer.get_extra_info("peername")[0]
        loop = asyncio.get_running_loop()
        if loop.time() < self._refuse_until.get(client, 0.0):
            reset(writer)
            return
        self._open[writer] = client
        try:
            await asyncio.sleep(max(0.0, self._delay_until.get(client, 0.0) - loop.time()))
            await self._forward(reader, writer, client)
        except OSError:
            reset(writer)
        finally:
            self._open.pop(writer, None)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client: str) -> None:
        try:
            there_reader, there_writer = await asyncio.open_connection(*self._target)
        except ConnectionRefusedError:
            if self._server is not None:
                self._server.close()
                self._server = None
                self._waiting = asyncio.create_task(self._listen_again())
            raise
        if writer.is_closing():  # it was reset meanwhile, and this side is to be, too
            reset(there_writer)
            return
        self._open[there_writer] = client
        try:
            await asyncio.gather(copy(reader, there_writer), copy(there_reader, writer))
        finally:
            self._open.pop(there_writer, None)
            reset(there_writer)
            reset(writer)


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until one end closes. A reset is passed on as such: by an error, which ends both directions."""
    while data := await reader.read(CHUNK_BYTES):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


def reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    if sock is not None and not writer.is_closing():
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    writer.transport.abort()


async def run(port: int, target: tuple[str, int]) -> None:
    relay = Relay(port, target)
    await relay.listen()
    print(READY, flush=True)
    commands = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    while line := await commands.readline():
        relay.disturb(**json.loads(line))
        print(READY, flush=True)


class RelayControl:
    """The storm's end of a relay that runs on a node of its own."""

    def __init__(self, node: Any, port: int, target: str) -> None:
        self.address: str = node.address
        self._process = node.run(
            [sys.executable, __file__, port, target], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._answer()

    def disturb(self, clients: Sequence[str], *, refuse_s: float = 0.0, delay_s: float = 0.0) -> None:
        command = {"clients": list(clients), "refuse_s": refuse_s, "delay_s": delay_s}
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        self._process.stdin.flush()
        self._answer()

    def _answer(self) -> None:
        if self._process.stdout.readline().strip().decode() != READY:
            raise RuntimeError("the relay has ended")


if __name__ == "__main__":
    _host, _, _port = sys.argv[2].rpartition(":")
    asyncio.run(run(int(sys.argv[1]), (_host, int(_port))))
