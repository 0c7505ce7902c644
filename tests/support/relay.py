"""A relay between agents and the store, like a cluster's service: it can reset a machine's connections and hold back
or refuse its next ones, and it waits until somebody serves behind it.

    python relay.py HOST PORT TARGET_HOST TARGET_PORT

Commands are lines, ``hold ADDRESS``, ``refuse ADDRESS`` and ``release ADDRESS``. Each is answered with a line once it
is done.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from contextlib import suppress

RETRY_S = 0.02
"""How often it is tried again to reach a target that refuses."""


class Relay:
    def __init__(self, target):
        self._target = target
        self._connections = {}
        self._gates = {}
        self._server = None

    async def listen(self, host, port):
        self._listening = (host, port)
        self._server = await asyncio.start_server(self.pass_on, host, port)

    async def pass_on(self, reader, writer):
        address = writer.get_extra_info("peername")[0]
        gate = self._gate(address)
        while not gate.is_set():
            await gate.wait()
        onward = None
        while onward is None:
            try:
                onward = await asyncio.open_connection(*self._target)
            except OSError:
                await asyncio.sleep(RETRY_S)
        self._connections.setdefault(address, set()).update((writer, onward[1]))
        await asyncio.gather(self._pump(reader, onward[1]), self._pump(onward[0], writer))
        self._connections.get(address, set()).difference_update((writer, onward[1]))

    async def _pump(self, reader, writer):
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def hold(self, address):
        """Both ends of its connections are reset; the next ones are accepted, and that is all."""
        self._gate(address).clear()
        self._reset(address)

    async def refuse(self, address):
        """Both ends of its connections are reset, and every new connection is refused."""
        await self.close()
        self._reset(address)

    async def release(self, address):
        self._gate(address).set()
        if self._server is None:
            await self.listen(*self._listening)

    async def close(self):
        server, self._server = self._server, None
        if server is not None:
            server.close()

    def _reset(self, address):
        for writer in self._connections.pop(address, ()):
            linger = struct.pack("ii", 1, 0)
            with suppress(OSError):
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()

    def _gate(self, address):
        if address not in self._gates:
            self._gates[address] = asyncio.Event()
            self._gates[address].set()
        return self._gates[address]


async def main(host, port, target_host, target_port):
    relay = Relay((target_host, int(target_port)))
    await relay.listen(host, int(port))
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    print("ready", flush=True)
    while line := await commands.readline():
        word, address = line.decode().split()
        await {"hold": relay.hold, "refuse": relay.refuse, "release": relay.release}[word](address)
        print(word, flush=True)
    await relay.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
