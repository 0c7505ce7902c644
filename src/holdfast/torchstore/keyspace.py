"""The keys, their values and queues, and what each operation does. No sockets.

It differs from torch's server only where that one has bugs that no program can rely on:

* a COMPARE_SET that changes nothing wakes nobody;
* a WAIT for several keys, of which one already has a queue, waits only for the others;
* a push to a queue ends only a wait for that queue, however often the client waited for it before;
* two waits of one client do not count each other's keys;
* a MULTI_SET is carried out as a whole or not at all.
"""

from __future__ import annotations

import re
from collections import deque

from holdfast.torchstore.memory import KEY_COST_BYTES, STRING_COST_BYTES, Memory
from holdfast.torchstore.waits import Waits
from holdfast.torchstore.wire import (
    EMPTY,
    FEW_STRINGS,
    I64,
    NOT_READY,
    OPERATION_COUNT,
    READY,
    STOP_WAITING,
    U32,
    U64,
    VALUE_MAX_BYTES,
    WAIT_CANCELED,
    LimitError,
    ProtocolError,
    Strings,
    put_string,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from holdfast.torchstore.waits import Peer

_NUMBER = re.compile(rb"[ \t-\r]*([+-]?[0-9]{1,4000})")
"""A number as C parses it, as torch's server does: any text may follow. Python's limit is 4300 digits."""

QUEUE_COST_BYTES = 1 << 10
"""The cost of a queue in addition to its key and its values."""

_I64_BIAS = 1 << 63
_I64_MASK = (1 << 64) - 1

_u64 = U64.pack
_i64 = I64.pack
_u32 = U32.pack

ONE, ZERO = _i64(1), _i64(0)


class KeySpace:
    """`operations[number](peer, *fields)` carries out a request.

    Replies are appended to `out`: of the client that asked, and of clients whose wait ended. The latter are also in
    `woken`, which the caller clears. A long reply is put into `strings` of the client that asked. A request that cannot
    be carried out raises ProtocolError and changes nothing. `memory` counts the memory used here.
    """

    __slots__ = ("_queues", "_take", "_values", "_waits", "memory", "operations", "woken")

    def __init__(self) -> None:
        self.memory = Memory()
        self._take = self.memory.take
        self._values: dict[bytes, bytes] = {}
        self._queues: dict[bytes, deque[bytes]] = {}
        self._waits = Waits(self.memory)
        self.woken: list[Peer] = self._waits.woken
        self.operations: tuple[Callable[..., Any], ...] = (
            self._unexpected,
            self._set,
            self._compare_set,
            self._get,
            self._add,
            self._check,
            self._wait,
            self._count_keys,
            self._delete,
            self._append,
            self._multi_get,
            self._multi_set,
            self._cancel_waits,
            self._ping,
            self._push,
            self._pop,
            self._queue_length,
            self._list_keys,
            self._barrier,
        )
        assert len(self.operations) == OPERATION_COUNT

    def leave(self, peer: Peer) -> None:
        """Forget the waits of a client that has left."""
        if peer.waits:
            self._waits.forget(peer)

    def _unexpected(self, _: Peer) -> None:
        raise AssertionError("a greeting is not an operation on keys")

    def _ping(self, peer: Peer, nonce: int) -> None:
        peer.out.append(_u32(nonce))

    # Values

    def _set(self, _: Peer, key: bytes, value: bytes) -> None:
        self._put(key, value)
        self._waits.wake_all(key)

    def _put(self, key: bytes, value: bytes) -> None:
        old = self._values.get(key)
        self._take(len(value) + len(key) + KEY_COST_BYTES if old is None else len(value) - len(old))
        self._values[key] = value

    def _compare_set(self, peer: Peer, key: bytes, expected: bytes, desired: bytes) -> None:
        value = self._values.get(key)
        if value == expected or (value is None and not expected):
            self._set(peer, key, desired)
            value = desired
        put_string(expected if value is None else value, peer.out)

    def _get(self, peer: Peer, key: bytes) -> None:
        value = self._values.get(key)
        if value is None:
            peer.out.append(EMPTY)
        else:
            put_string(value, peer.out)

    def _add(self, peer: Peer, key: bytes, amount: int) -> None:
        total = self._sum(key, amount)
        self._set(peer, key, b"%d" % total)
        peer.out.append(_i64(total))

    def _sum(self, key: bytes, amount: int) -> int:
        """The number at `key` plus `amount`. It wraps at 64 bits, as in C."""
        value = self._values.get(key)
        if value is None:
            return amount
        found = _NUMBER.match(value)
        number = int(found[1]) if found else _I64_MASK
        if not -_I64_BIAS <= number < _I64_BIAS:
            raise ProtocolError(f"it adds to {key[:80]!r}, whose value {value[:80]!r} is not a 64-bit number")
        return (number + amount + _I64_BIAS & _I64_MASK) - _I64_BIAS

    def _append(self, peer: Peer, key: bytes, value: bytes) -> None:
        old = self._values.get(key, b"")
        if len(old) + len(value) > VALUE_MAX_BYTES:
            raise LimitError(f"the value of {key[:80]!r} would grow to more than {VALUE_MAX_BYTES} bytes")
        self._set(peer, key, old + value)

    def _delete(self, peer: Peer, key: bytes) -> None:
        value = self._values.pop(key, None)
        if value is None:
            peer.out.append(ZERO)
        else:
            self._take(-(len(value) + len(key) + KEY_COST_BYTES))
            peer.out.append(ONE)

    def _multi_get(self, peer: Peer, keys: list[bytes]) -> None:
        get = self._values.get
        _put_strings([get(key, b"") for key in keys], peer)

    def _multi_set(self, peer: Peer, keys_and_values: list[bytes]) -> None:
        most = sum(map(len, keys_and_values)) + len(keys_and_values) // 2 * KEY_COST_BYTES
        self._take(most)  # raises before anything is changed
        self._take(-most)
        each = iter(keys_and_values)
        for key in each:
            self._set(peer, key, next(each))

    def _count_keys(self, peer: Peer) -> None:
        peer.out.append(_i64(len(self._values)))

    def _list_keys(self, peer: Peer) -> None:
        peer.out.append(_u64(len(self._values)))
        _put_strings(list(self._values), peer)

    # Waiting

    def _has(self, key: bytes) -> bool:
        return key in self._values or key in self._queues

    def _check(self, peer: Peer, keys: list[bytes]) -> None:
        peer.out.append(READY if all(map(self._has, keys)) else NOT_READY)

    def _wait(self, peer: Peer, keys: list[bytes]) -> None:
        missing = [key for key in keys if key not in self._values and key not in self._queues]
        if missing:
            self._waits.open(peer, missing)
        else:
            peer.out.append(STOP_WAITING)

    def _cancel_waits(self, peer: Peer) -> None:
        self._waits.forget(peer)
        peer.out.append(WAIT_CANCELED)

    def _barrier(self, peer: Peer, key: bytes, count: int) -> None:
        """Clients at a barrier wait for its key. As in torch, setting the key opens the barrier."""
        arrived = self._sum(key, 1)
        if arrived < count:
            self._waits.open(peer, [key])
        self._put(key, b"%d" % arrived)
        if arrived >= count:
            self._waits.wake_all(key)
            peer.out.append(STOP_WAITING)

    # Queues: an empty queue does not exist.

    def _push(self, _: Peer, key: bytes, value: bytes) -> None:
        queue = self._queues.get(key)
        size = len(value) + STRING_COST_BYTES
        if queue is None:
            self._take(size + len(key) + QUEUE_COST_BYTES)
            self._queues[key] = deque([value])
        else:
            self._take(size)
            queue.append(value)
        self._waits.wake_one(key)

    def _pop(self, peer: Peer, key: bytes) -> None:
        queue = self._queues.get(key)
        if queue is None:
            peer.out.append(ZERO)
            return
        peer.out.append(_i64(len(queue)))
        value = queue.popleft()
        self._take(-(len(value) + STRING_COST_BYTES))
        put_string(value, peer.out)
        if not queue:
            self._take(-(len(key) + QUEUE_COST_BYTES))
            del self._queues[key]

    def _queue_length(self, peer: Peer, key: bytes) -> None:
        queue = self._queues.get(key)
        peer.out.append(ZERO if queue is None else _i64(len(queue)))


def _put_strings(strings: list[bytes], peer: Peer) -> None:
    """Reply with strings. If there are many, they are written as the client takes them."""
    if len(strings) > FEW_STRINGS:
        peer.strings = Strings(strings)
    else:
        for string in strings:
            put_string(string, peer.out)
