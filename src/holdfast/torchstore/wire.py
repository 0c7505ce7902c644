"""The protocol: its operations, its limits, and how replies are written.

All numbers are little-endian. A string is its length as a u64, followed by its bytes. A request is the operation's
number in one byte, followed by its fields. A reply is only its fields, so replies come in the order of the requests.
The exception is the end of a wait, which is sent when it happens.
"""

from __future__ import annotations

from struct import Struct

VALIDATE = 0
"""u32 `MAGIC`. The first request of a connection, allowed once. No reply."""

SET = 1
"""key, value. No reply."""

COMPARE_SET = 2
"""key, expected, desired. Reply: the key's value afterwards. A missing key is created if `expected` is empty;
otherwise the reply is `expected`, although the key does not exist.
"""

GET = 3
"""key. Reply: its value, or an empty string if the key is missing."""

ADD = 4
"""key, i64. Reply: i64, the sum. The key now has it as decimal digits. A missing key counts as 0."""

CHECK = 5
"""u64 count, keys. Reply: `READY` or `NOT_READY`."""

WAIT = 6
"""u64 count, keys. Reply: `STOP_WAITING`, once each key has existed."""

GETNUMKEYS = 7
"""Reply: i64, the number of keys that have a value."""

DELETE_KEY = 8
"""key. Reply: i64, the number of deleted values: 0 or 1. A queue stays."""

APPEND = 9
"""key, value. No reply."""

MULTI_GET = 10
"""u64 count, keys. Reply: their values in order, as for GET."""

MULTI_SET = 11
"""u64 count, then that many pairs of key and value. No reply."""

CANCEL_WAIT = 12
"""Reply: `WAIT_CANCELED`, after the replies of waits that ended before."""

PING = 13
"""u32. Reply: the same."""

QUEUE_PUSH = 14
"""key, value. No reply. Wakes one of the clients that wait for this key alone."""

QUEUE_POP = 15
"""key. Reply: i64, the length of the queue before, and unless that is 0, the oldest value, which is removed."""

QUEUE_LEN = 16
"""key. Reply: i64."""

LIST_KEYS = 17
"""Reply: u64 count, then the keys that have a value."""

BARRIER = 18
"""key, i64 count. Reply: `STOP_WAITING`, once `count` clients have called this. The key's value is how many have."""

OPERATION_COUNT = 19

MAGIC = 0x3C85F7CE

READY, NOT_READY = b"\0", b"\1"
STOP_WAITING, WAIT_CANCELED = b"\0", b"\1"

KEY_MAX_BYTES = 1 << 20
"""The longest key. torch's server accepts 8 KiB; its older one, without libuv, has no limit."""

KEYS_MAX = 128 << 10
"""The most keys in one request, as in torch's server."""

MESSAGE_MAX_BYTES = 256 << 20
"""The longest request, with its values. torch's server accepts values of 8 MiB. Its older one has no limit; programs
written for that one get 32 times as much here. An incomplete request is held in the launcher's memory.
"""

VALUE_MAX_BYTES = 256 << 20
"""The longest value. Each APPEND copies the value, and the other clients wait meanwhile."""

WAITS_MAX = 1024
"""The most open waits of a connection, which together may name `KEYS_MAX` keys. torch's client has one."""

U32 = Struct("<I")
U64 = Struct("<Q")
I64 = Struct("<q")

SMALL_BYTES = 16 << 10
"""Values up to this size are copied next to their length: that is cheaper than sending two pieces."""

FEW_STRINGS = 64
"""A reply of up to this many strings is written at once."""

PART_STRINGS = 512
"""A longer reply is written this many strings at a time, as the client takes them ..."""

PART_BYTES = 1 << 20
"""... or fewer, if they reach this size."""

EMPTY = U64.pack(0)
"""The empty string."""


TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    Pieces: TypeAlias = list[bytes | memoryview]
    """The pieces to send, in order."""


class ProtocolError(Exception):
    """The client sent something that is not a valid request. The connection ends."""


class LimitError(ProtocolError):
    """A valid request exceeds a limit. An honest client may have sent it, so the reason is logged."""


class Strings:
    """A long reply: its strings become pieces as the client takes them. Until then each costs a pointer."""

    __slots__ = ("_at", "_strings")

    def __init__(self, strings: list[bytes]) -> None:
        self._strings = strings
        self._at = 0

    def put_part(self, out: Pieces) -> bool:
        """Append the next part to `out`. Returns False if it was the last one."""
        size = 0
        strings = self._strings
        end = min(len(strings), self._at + PART_STRINGS)
        for at in range(self._at, end):
            put_string(strings[at], out)
            size += len(strings[at])
            if size >= PART_BYTES:
                end = at + 1
                break
        self._at = end
        return end < len(strings)

    def rest(self) -> list[bytes]:
        """The strings that were not written yet."""
        return self._strings[self._at :]


def put_string(text: bytes, out: Pieces) -> None:
    """Append a string to `out`. A large one is not copied."""
    if len(text) <= SMALL_BYTES:
        out.append(U64.pack(len(text)) + text)
    else:
        out.append(U64.pack(len(text)))
        out.append(text)
