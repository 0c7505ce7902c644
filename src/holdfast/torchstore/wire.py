"""The words of the protocol: its operations, its limits, and how replies are written.

All numbers are little-endian. A string is its length as a u64, and its bytes. A request is the operation's number in
one byte, and its fields; a reply is its fields alone, so replies come in the order of the requests. Only the ends of
waits come when they come.
"""

from __future__ import annotations

from struct import Struct

VALIDATE = 0
"""u32 `MAGIC`. The first request of a connection, and never again; no reply."""

SET = 1
"""key, value. No reply."""

COMPARE_SET = 2
"""key, expected, desired. Reply: the value that the key has now. A missing key is made if nothing was expected;
otherwise the reply for it is what was expected, although it is not there.
"""

GET = 3
"""key. Reply: its value; of a missing key, an empty one."""

ADD = 4
"""key, i64. Reply: i64, the sum, which the key has now as decimal digits. A missing key counts as 0."""

CHECK = 5
"""u64 count, keys. Reply: `READY` or `NOT_READY`."""

WAIT = 6
"""u64 count, keys. Reply: `STOP_WAITING`, once each of them has been there."""

GETNUMKEYS = 7
"""Reply: i64, how many keys have a value."""

DELETE_KEY = 8
"""key. Reply: i64, how many values are gone: 0 or 1. A queue stays."""

APPEND = 9
"""key, value. No reply."""

MULTI_GET = 10
"""u64 count, keys. Reply: their values one after the other, as of GET."""

MULTI_SET = 11
"""u64 count, as many times key and value. No reply."""

CANCEL_WAIT = 12
"""Reply: `WAIT_CANCELED`. Waits that had ended before have their replies before it."""

PING = 13
"""u32. Reply: the same."""

QUEUE_PUSH = 14
"""key, value. No reply. Of those who wait for the key alone, one wakes up."""

QUEUE_POP = 15
"""key. Reply: i64, how many values the queue had, and if that is not 0, the oldest one, which it has no longer."""

QUEUE_LEN = 16
"""key. Reply: i64."""

LIST_KEYS = 17
"""Reply: u64 count, and the keys that have a value."""

BARRIER = 18
"""key, i64 count. Reply: `STOP_WAITING`, once so many barriers of this key have come, which is the key's value."""

OPERATION_COUNT = 19

MAGIC = 0x3C85F7CE

READY, NOT_READY = b"\0", b"\1"
STOP_WAITING, WAIT_CANCELED = b"\0", b"\1"

KEY_MAX_BYTES = 1 << 20
"""How long a key may be. torch's server takes 8 KiB, and its older one, without libuv, whatever comes."""

KEYS_MAX = 128 << 10
"""How many keys one request may name: as many as torch's server takes."""

MESSAGE_MAX_BYTES = 256 << 20
"""How long a request may be, with its values. torch's server takes values of 8 MiB, and its older one whatever comes;
programs that were written for that one get 32 times as much. A request in the making is held in the launcher's memory.
"""

VALUE_MAX_BYTES = 256 << 20
"""How long a value may grow. Each APPEND copies it, and the other clients wait for that."""

WAITS_MAX = 1024
"""How many waits a connection may have open. torch's client has one. All of them may name `KEYS_MAX` keys."""

U32 = Struct("<I")
U64 = Struct("<Q")
I64 = Struct("<q")

SMALL_BYTES = 16 << 10
"""Up to this size a value is copied next to its length, which is cheaper than to send both."""

FEW_STRINGS = 64
"""A reply of so many strings is written at once."""

PART_STRINGS = 512
"""Of a longer one, so many are written at a time, until the client has taken them."""

PART_BYTES = 1 << 20
"""And no more strings than reach this size."""

EMPTY = U64.pack(0)
"""The empty string."""


TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    Pieces: TypeAlias = list[bytes | memoryview]
    """What is to be sent, in its order."""


class ProtocolError(Exception):
    """What came is no request that can be served; the connection has to end."""


class LimitError(ProtocolError):
    """It is a request, and too much: an honest client may have sent it, so people are told why it was dropped."""


class Strings:
    """A long reply: strings, of which pieces are made as the client takes them. Until then they cost a pointer each."""

    __slots__ = ("_at", "_strings")

    def __init__(self, strings: list[bytes]) -> None:
        self._strings = strings
        self._at = 0

    def put_part(self, out: Pieces) -> bool:
        """Write the next part to the end of `out`. False if that was the last one."""
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
        """What was not written yet."""
        return self._strings[self._at :]


def put_string(text: bytes, out: Pieces) -> None:
    """Write a string to the end of `out`; a large one is not copied."""
    if len(text) <= SMALL_BYTES:
        out.append(U64.pack(len(text)) + text)
    else:
        out.append(U64.pack(len(text)))
        out.append(text)
