"""A client of the embedded server that does as it is told, bytes and all."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from contextlib import suppress

from holdfast.coordination.handshake import VERSION, Challenge, Greeting, Proof, Proved, make_nonce, prove
from holdfast.coordination.tls_session import NO_BINDING, binding_of
from holdfast.coordination.wire import (
    HEADER,
    THE_CONNECTION,
    decode_answer,
    decode_greeting,
    decode_proved,
    encode,
    frame,
)


class RawPeer:
    """Use it as an asynchronous context manager."""

    def __init__(self, address, *, tls=None, receive_buffer_bytes=None, source=None):
        self._address = address
        self._tls = tls
        self._receive_buffer_bytes = receive_buffer_bytes
        self._source = source

    async def __aenter__(self):
        plain = socket.socket(socket.AF_INET6 if ":" in self._address[0] else socket.AF_INET)
        plain.setblocking(False)
        if self._receive_buffer_bytes is not None:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer_bytes)
        if self._source is not None:
            plain.bind((self._source, 0))
        await asyncio.get_running_loop().sock_connect(plain, self._address)
        self.reader, self.writer = await asyncio.open_connection(sock=plain, limit=1 << 10)
        return self

    async def __aexit__(self, *_):
        self.writer.transport.abort()
        with suppress(OSError):
            await self.writer.wait_closed()

    def send_bytes(self, data):
        self.writer.write(data)

    def send_below_tls(self, data):
        """Send bytes that are not sealed, on a connection that speaks TLS."""
        os.write(self.writer.get_extra_info("socket").fileno(), data)

    def send(self, channel, message):
        self.writer.write(frame(channel, encode(message)))

    async def receive_frame(self):
        length, channel = HEADER.unpack(await self.reader.readexactly(HEADER.size))
        return channel, await self.reader.readexactly(length)

    async def receive(self):
        channel, body = await self.receive_frame()
        return channel, decode_answer(body)

    async def ask(self, channel, request):
        self.send(channel, request)
        answered, answer = await self.receive()
        assert answered == channel
        return answer

    async def greeting(self):
        greeting = decode_greeting((await self.receive_frame())[1])
        assert isinstance(greeting, Greeting)
        return greeting

    async def start_tls(self):
        """Speak TLS from now on; returns what proofs are bound to."""
        await self.writer.start_tls(self._tls, server_hostname=self._address[0])
        return binding_of(self.writer.get_extra_info("ssl_object").getpeercert(binary_form=True))

    async def make_proof(self, token, version=VERSION):
        greeting = await self.greeting()
        binding = await self.start_tls() if self._tls else NO_BINDING
        self.challenge = Challenge(greeting.nonce, make_nonce(), greeting.store, binding)
        return Proof(version, self.challenge.client_nonce, prove(token, "client", self.challenge))

    async def prove(self, token):
        """Prove that we know the token, and check that the server does."""
        self.send(THE_CONNECTION, await self.make_proof(token))
        proved = decode_proved((await self.receive_frame())[1])
        assert proved == Proved(prove(token, "server", self.challenge))

    async def ended(self):
        """Read on until the server has ended the connection; returns what came before."""
        data = b""
        try:
            while piece := await self.reader.read(1 << 16):
                data += piece
        except OSError:
            pass
        return data

    async def parting(self):
        """What the server says before it ends the connection."""
        data = await self.ended()
        length, channel = HEADER.unpack_from(data)
        assert channel == THE_CONNECTION
        assert len(data) == HEADER.size + length
        return decode_answer(data[HEADER.size :])

    def vanish(self):
        """End the connection without a word, as the kernel does for a process that is killed."""
        self.writer.transport.abort()

    def reset(self):
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()
