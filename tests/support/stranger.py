"""Somebody who reaches the ports of a job and does not belong to it.

`python stranger.py HOST:PORT ...` has the meeting place first. With CA.pem before it, that one speaks TLS: then the
stranger knows the token, and has no certificate.

Silence, half-closed connections, other protocols, frames that are too long, nonsense behind a right greeting, wrong
tokens, and right requests to the workers' store. All connections stay open until the end. It exits with 0 if it learned
nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import sys

from holdfast.coordination.client import EmbeddedStore
from holdfast.coordination.errors import StoreRefusedError, StoreUnavailableError
from holdfast.coordination.tls import client_context

CONNECTIONS = 400
"""To each port."""

TORCH_GREETING = b"\0" + struct.pack("<I", 0x3C85F7CE)
TORCH_PING = b"\x0d" + struct.pack("<I", 7)
WORDS = (
    b"",
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\xff" * 65536,
    b"\x16\x03\x01\x02\x00",
    struct.pack("!II", (1 << 32) - 1, 0),
    struct.pack("!II", 1024, 0) + b"\x81" * 1024,
    TORCH_GREETING + b"\x01" + b"\xff" * 8,
)
TOKENS = (b"", b"a token", b"x" * 4096)


def flood(places):
    connections = []
    for host, port in places:
        for number in range(CONNECTIONS):
            connection = socket.create_connection((host, port), timeout=30)
            connections.append(connection)
            with contextlib.suppress(OSError):  # whoever speaks so is dropped
                connection.sendall(WORDS[number % len(WORDS)])
                if number % 3 == 0:
                    connection.shutdown(socket.SHUT_WR)
    return connections


def ask_as_worker(host, port):
    with socket.create_connection((host, port), timeout=30) as connection, contextlib.suppress(ConnectionError):
        connection.sendall(TORCH_GREETING + TORCH_PING)
        if answer := connection.recv(100):
            sys.exit(f"the workers' store answers {answer!r}")


async def guess(host, port, ca):
    tls = client_context(ca) if ca else None
    known = [os.environ["HOLDFAST_TOKEN"].encode()] if ca else []
    for token in (*TOKENS, *known):
        store = EmbeddedStore(host, port, token=token, tls=tls)
        try:
            await store.get_prefix("")
        except StoreRefusedError:
            continue
        except StoreUnavailableError:
            if ca:  # it hangs up on whoever shows no certificate
                continue
            raise
        finally:
            await store.close()
        sys.exit(f"the token {token[:20]!r} was taken")


def main(*words):
    ca, words = (words[0], words[1:]) if ":" not in words[0] else (None, words)
    places = [(host, int(port)) for host, _, port in (word.rpartition(":") for word in words)]
    connections = flood(places)
    asyncio.run(guess(*places[0], ca))
    for place in places[1:]:
        ask_as_worker(*place)
    for connection in connections:
        connection.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
