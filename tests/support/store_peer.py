"""A client of torch's TCPStore protocol that does as it is told, bytes and all."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress

U64 = struct.Struct("<Q")
I64 = struct.Struct("<q")
U32 = struct.Struct("<I")

DEADLINE_S = 60.0


def text(value: bytes) -> bytes:
    return U64.pack(len(value)) + value


def texts(*values: bytes) -> bytes:
    return U64.pack(len(values)) + b"".join(map(text, values))


GREETING = b"\x00" + U32.pack(0x3C85F7CE)


def set_(key, value):
    return b"\x01" + text(key) + text(value)


def compare_set(key, expected, desired):
    return b"\x02" + text(key) + text(expected) + text(desired)


def get(key):
    return b"\x03" + text(key)


def add(key, amount):
    return b"\x04" + text(key) + I64.pack(amount)


def check(*keys):
    return b"\x05" + texts(*keys)


def wait(*keys):
    return b"\x06" + texts(*keys)


def num_keys():
    return b"\x07"


def delete(key):
    return b"\x08" + text(key)


def append(key, value):
    return b"\x09" + text(key) + text(value)


def multi_get(*keys):
    return b"\x0a" + texts(*keys)


def multi_set(*pairs):
    return b"\x0b" + U64.pack(len(pairs)) + b"".join(text(key) + text(value) for key, value in pairs)


def cancel_wait():
    return b"\x0c"


def ping(nonce):
    return b"\x0d" + U32.pack(nonce)


def push(key, value):
    return b"\x0e" + text(key) + text(value)


def pop(key):
    return b"\x0f" + text(key)


def queue_len(key):
    return b"\x10" + text(key)


def list_keys():
    return b"\x11"


def barrier(key, count):
    return b"\x12" + text(key) + I64.pack(count)


EVERY_REQUEST = {
    "set": set_(b"key", b"value"),
    "compare_set": compare_set(b"key", b"old", b"new"),
    "get": get(b"key"),
    "add": add(b"number", 5),
    "check": check(b"key", b"other"),
    "wait": wait(b"key", b"other"),
    "num_keys": num_keys(),
    "delete": delete(b"key"),
    "append": append(b"key", b"value"),
    "multi_get": multi_get(b"key", b"other"),
    "multi_set": multi_set((b"key", b"value"), (b"other", b"value")),
    "cancel_wait": cancel_wait(),
    "ping": ping(7),
    "push": push(b"queue", b"value"),
    "pop": pop(b"queue"),
    "queue_len": queue_len(b"queue"),
    "list_keys": list_keys(),
    "barrier": barrier(b"barrier", 2),
}
"""One of each operation, by its name, in the order of their numbers from 1 on."""


class StorePeer:
    """A socket that is connected to a store, and has greeted unless told otherwise."""

    def __init__(self, port: int, host: str = "127.0.0.1", *, greets: bool = True) -> None:
        self._socket = socket.create_connection((host, port), DEADLINE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if greets:
            self.send(GREETING)

    def send(self, *requests: bytes) -> None:
        self._socket.sendall(b"".join(requests))

    def read(self, size: int) -> bytes:
        """Exactly so many bytes, or fewer if the server ends the connection."""
        parts = bytearray()
        while len(parts) < size and (data := self._socket.recv(min(size - len(parts), 1 << 20))):
            parts += data
        return bytes(parts)

    def ask(self, *requests: bytes) -> bytes:
        """What the server says to these, up to the answer to a ping that ends them."""
        self.send(*requests, ping(0xC0FFEE11))
        mark = U32.pack(0xC0FFEE11)
        said = b""
        while not said.endswith(mark):
            data = self._socket.recv(1 << 20)
            if not data:
                raise ConnectionError(f"the server ended the connection after {said!r}")
            said += data
        return said[: -len(mark)]

    def is_ended(self) -> bool:
        """Wait for something of the server: True if it is the end."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def half_close(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def end(self) -> None:
        """The end in both directions, also for a thread that reads."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
