"""From bytes to requests, however the bytes are split. No sockets."""

from __future__ import annotations

from holdfast.torchstore.memory import STRING_COST_BYTES
from holdfast.torchstore.wire import (
    I64,
    KEY_MAX_BYTES,
    KEYS_MAX,
    MAGIC,
    MESSAGE_MAX_BYTES,
    MULTI_SET,
    OPERATION_COUNT,
    U32,
    U64,
    VALIDATE,
    LimitError,
    ProtocolError,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeAlias

    Fields: TypeAlias = tuple[Any, ...]
    Read: TypeAlias = tuple[Fields, int]
    """The fields of a request, and where the next one begins."""

    Reader: TypeAlias = Callable[[bytes, int], Read]

_u64 = U64.unpack_from
_i64 = I64.unpack_from
_u32 = U32.unpack_from


class _ShortError(Exception):
    """The data ends inside a request: nothing more can be read until there are `end` bytes."""

    def __init__(self, end: int) -> None:
        self.end = end


class _UnfinishedError(_ShortError):
    """The same inside a list of strings. The strings before `at` need not be read again."""

    def __init__(self, end: int, at: int, strings: _Strings) -> None:
        super().__init__(end)
        self.at = at
        self.strings = strings


class Requests:
    """The requests of one connection: `feed` received bytes, then `take` until it returns None.

    A request is the number of its operation and its fields: keys and values as bytes, numbers as int, several strings
    as one list. For invalid bytes, `take` raises ProtocolError, and the connection cannot be used any more.
    """

    __slots__ = (
        "_at",
        "_data",
        "_late",
        "_late_bytes",
        "_operation",
        "_readers",
        "_spent",
        "_strings",
        "missing_bytes",
    )

    def __init__(self) -> None:
        self._data = b""
        self._at = 0
        self._late: list[bytes] = []
        self._late_bytes = 0
        self._readers: Sequence[Reader] = _GREETING_READERS
        self._operation = 0
        self._strings: _Strings | None = None
        self._spent = 0
        self.missing_bytes = 0
        """The least number of bytes until there is another request; 0 if unknown."""

    @property
    def is_greeted(self) -> bool:
        """Whether the client has greeted."""
        return self._readers is _READERS

    @property
    def held_bytes(self) -> int:
        """The memory used by received bytes: of incomplete requests, and of those that were not taken yet."""
        held = len(self._data) - self._at + self._late_bytes
        if self._strings is not None:
            held += self._spent + self._strings.count * STRING_COST_BYTES
        return held

    @property
    def has_more(self) -> bool:
        """Whether the received bytes may contain another request."""
        return self._at < len(self._data) and not self.missing_bytes

    def feed(self, data: bytes) -> None:
        if self._at == len(self._data):
            self._data = data
            self._at = 0
        else:
            self._late.append(data)
            self._late_bytes += len(data) + STRING_COST_BYTES
        if self.missing_bytes:
            self.missing_bytes = max(0, self.missing_bytes - len(data))

    def take(self) -> tuple[int, Fields] | None:
        """The next request, or None until more is fed."""
        if self._late:
            if self.missing_bytes:
                return None
            self._gather()
        data = self._data
        at = self._at
        if at == len(data):
            self._data = b""  # it may be large
            self._at = 0
            return None
        try:
            if self._strings is None:
                operation = data[at]
                fields, self._at = self._readers[operation](data, at + 1)
            else:
                operation = self._operation
                fields, self._at = self._strings.read(data, at)
                self._strings = None
                self._spent = 0
        except _ShortError as short:
            self._postpone(data, short)
            return None
        except IndexError:
            raise ProtocolError(f"unknown operation {data[at]}") from None
        if operation == VALIDATE:
            self._readers = _READERS
            return self.take()
        return operation, fields

    def _gather(self) -> None:
        """Join the received pieces."""
        self._data = b"".join([memoryview(self._data)[self._at :], *self._late])
        self._at = 0
        self._late.clear()
        self._late_bytes = 0

    def _postpone(self, data: bytes, short: _ShortError) -> None:
        if isinstance(short, _UnfinishedError):
            if self._strings is None:
                self._operation = data[self._at]
                self._strings = short.strings
            self._spent += short.at - self._at
            self._at = short.at
        self.missing_bytes = short.end - len(data)
        if self._spent + short.end - self._at > MESSAGE_MAX_BYTES:
            raise LimitError(f"a request of more than {MESSAGE_MAX_BYTES} bytes")


class _Strings:
    """A list of strings that is being read: keys, or keys and values in turns."""

    __slots__ = ("_count", "_has_values", "_read")

    def __init__(self, count: int, *, has_values: bool) -> None:
        self._count = count * 2 if has_values else count
        self._has_values = has_values
        self._read: list[bytes] = []

    @property
    def count(self) -> int:
        """The number of strings so far."""
        return len(self._read)

    def read(self, data: bytes, at: int) -> Read:
        """Continue at `at`, where the next string begins."""
        read = self._read
        size = len(data)
        while len(read) < self._count:
            start = at + 8
            if start > size:
                raise _UnfinishedError(start, at, self)
            (length,) = _u64(data, at)
            if length > KEY_MAX_BYTES and not (self._has_values and len(read) % 2):
                raise _key_too_long(length)
            end = start + length
            if end > size:
                raise _UnfinishedError(end, at, self)
            read.append(data[start:end])
            at = end
        return (read,), at


def _key_too_long(length: int) -> LimitError:
    return LimitError(f"a key of {length} bytes; the limit is {KEY_MAX_BYTES}")


def _string(data: bytes, at: int) -> tuple[bytes, int]:
    start = at + 8
    if start > len(data):
        raise _ShortError(start)
    end = start + _u64(data, at)[0]
    if end > len(data):
        raise _ShortError(end)
    return data[start:end], end


# Readers: one for each shape of a request. `at` is the index after the operation's byte.


def _nothing(_: bytes, at: int) -> Read:
    return (), at


def _word(data: bytes, at: int) -> Read:
    end = at + 4
    if end > len(data):
        raise _ShortError(end)
    return _u32(data, at), end


def _key(data: bytes, at: int) -> Read:
    start = at + 8
    if start > len(data):
        raise _ShortError(start)
    (length,) = _u64(data, at)
    if length > KEY_MAX_BYTES:
        raise _key_too_long(length)
    end = start + length
    if end > len(data):
        raise _ShortError(end)
    return (data[start:end],), end


def _key_and_number(data: bytes, at: int) -> Read:
    (key,), at = _key(data, at)
    end = at + 8
    if end > len(data):
        raise _ShortError(end)
    return (key, _i64(data, at)[0]), end


def _key_and_value(data: bytes, at: int) -> Read:
    (key,), at = _key(data, at)
    value, at = _string(data, at)
    return (key, value), at


def _key_and_two_values(data: bytes, at: int) -> Read:
    (key,), at = _key(data, at)
    expected, at = _string(data, at)
    desired, at = _string(data, at)
    return (key, expected, desired), at


def _count(data: bytes, at: int) -> int:
    if at + 8 > len(data):
        raise _ShortError(at + 8)
    count: int = _u64(data, at)[0]
    if count > KEYS_MAX:
        raise LimitError(f"a request with {count} keys; the limit is {KEYS_MAX}")
    return count


def _keys(data: bytes, at: int) -> Read:
    count = _count(data, at)
    if count == 1:  # the usual case
        (key,), end = _key(data, at + 8)
        return ([key],), end
    return _Strings(count, has_values=False).read(data, at + 8)


def _keys_and_values(data: bytes, at: int) -> Read:
    return _Strings(_count(data, at), has_values=True).read(data, at + 8)


def _greeting(data: bytes, at: int) -> Read:
    (magic,), end = _word(data, at)
    if magic != MAGIC:
        raise ProtocolError(f"it greets with {magic:#x}, not as torch does")
    return (), end


def _no_greeting(data: bytes, at: int) -> Read:
    raise ProtocolError(f"operation {data[at - 1]} where torch's clients greet")


def _second_greeting(_: bytes, __: int) -> Read:
    raise ProtocolError("it greets twice")


_GREETING_READERS: tuple[Reader, ...] = (_greeting, *(_no_greeting,) * 255)

_READERS: tuple[Reader, ...] = (
    _second_greeting,
    _key_and_value,  # SET
    _key_and_two_values,  # COMPARE_SET
    _key,  # GET
    _key_and_number,  # ADD
    _keys,  # CHECK
    _keys,  # WAIT
    _nothing,  # GETNUMKEYS
    _key,  # DELETE_KEY
    _key_and_value,  # APPEND
    _keys,  # MULTI_GET
    _keys_and_values,  # MULTI_SET
    _nothing,  # CANCEL_WAIT
    _word,  # PING
    _key_and_value,  # QUEUE_PUSH
    _key,  # QUEUE_POP
    _key,  # QUEUE_LEN
    _nothing,  # LIST_KEYS
    _key_and_number,  # BARRIER
)
assert len(_READERS) == OPERATION_COUNT
assert _READERS[MULTI_SET] is _keys_and_values
