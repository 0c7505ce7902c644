"""From one input to the next: a few changes to its bytes, or to the values it is built from. Chance is an argument."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import MsgspecError

from fuzz.target import INPUT_MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random
    from typing import Any

    from fuzz.shapes import Shape

CHANGES_MAX = 6
"""How many changes one mutation makes at most."""

TREE_SHARE = 0.7
"""How many of the mutations change values, where an input has any; the others change bytes."""

NODES_MAX = 2_000
"""How many values of a tree are looked at for one to change."""

DEEP_LEVELS = (10, 100, 2_000)
"""How deep a value is nested where it is nested on purpose: 2,000 is beyond Python's limit."""

NUMBERS = (
    *(0, 1, -1, 2, 7, 127, 128, 255, 256, 65_535, 65_536, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53, -(2**31)),
    *(2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 10**15, 10**30, 10**400),
    *(0.5, -0.5, 0.1, 1e-300, 1e15, 1e308, -1e308, float("inf"), float("-inf"), float("nan")),
)
TEXTS = (
    *(
        "",
        " ",
        "\n",
        "\r\n",
        "\t",
        "0",
        "-1",
        "1e999",
        "nan",
        "true",
        "null",
        "a",
        "/",
        "..",
        "../../x",
        "a/b",
        "%s",
        "{}",
        "${rank}",
    ),
    *("\x00", "\x07", "\x08", "\x1b", "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\x7f", "\x85", "\x9b31m", "\u2028"),
    *("\u202egnp.txt", "\u200b", "\ufeff", "\ud800", "\udcff", "\U0010ffff", "é", "中文", "😀", "\u0661\u0662", "²"),
    *(
        "<script>alert(1)</script>",
        "'\"><img src=x onerror=alert(1)>",
        "]]>",
        "--",
        "=",
        ",",
        ":",
        "[::1]:1",
        "x" * 300,
    ),
    *("x" * 5_000, "\x1b" * 5_000, "x\n" * 3_000, "9" * 5_000, "é" * 40_000),
)
BLOBS = (
    *(b"", b"\x00", b"\xff", b"\x80", b"\xc0\x80", b"\xed\xa0\x80", b"\n", b"\r", b"\x1b[2J", b"\xff" * 8, b"\x00" * 8),
    *(
        b"\x7f" + b"\xff" * 7,
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\xc7\x0c\xff",
    ),
    *(b"\x91" * 2_000, b"[" * 2_000, b"x" * 5_000),
)
_OTHERS: tuple[Any, ...] = (None, True, False, [], {}, [[]], {"": None}, {"a": 1})


def mutated(data: bytes, chance: Random, shape: Shape, others: Sequence[bytes]) -> bytes:
    """`data` with a few changes; `others` are inputs that parts may be taken from."""
    for _ in range(chance.randint(1, CHANGES_MAX)):
        changed = _mutated_tree(data, chance, shape, others) if chance.random() < TREE_SHARE else None
        data = _mutated_bytes(data, chance, others) if changed is None else changed
    return data[:INPUT_MAX_BYTES]


# Bytes


def _mutated_bytes(data: bytes, chance: Random, others: Sequence[bytes]) -> bytes:
    return chance.choice(_BYTE_CHANGES)(bytearray(data), chance, others)


def _span(data: bytearray, chance: Random) -> tuple[int, int]:
    start = chance.randint(0, len(data))
    length = chance.choice((1, 2, 4, 8, 16, 64, len(data)))
    return start, min(len(data), start + chance.randint(0, max(1, length)))


def _flip_bit(data: bytearray, chance: Random, _: Sequence[bytes]) -> bytes:
    if data:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(data)


def _set_byte(data: bytearray, chance: Random, _: Sequence[bytes]) -> bytes:
    if data:
        data[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(data)


def _cut_out(data: bytearray, chance: Random, _: Sequence[bytes]) -> bytes:
    start, end = _span(data, chance)
    del data[start:end]
    return bytes(data)


def _truncate(data: bytearray, chance: Random, _: Sequence[bytes]) -> bytes:
    return bytes(data[: chance.randint(0, len(data))])


def _repeat(data: bytearray, chance: Random, _: Sequence[bytes]) -> bytes:
    start, end = _span(data, chance)
    data[start:start] = data[start:end] * chance.choice((1, 2, 10, 200))
    return bytes(data[:INPUT_MAX_BYTES])


def _insert(data: bytearray, chance: Random, _: Sequence[bytes]) -> bytes:
    start = chance.randint(0, len(data))
    blob = chance.choice(BLOBS) if chance.random() < 0.7 else chance.randbytes(chance.randint(1, 16))
    end = min(len(data), start + len(blob)) if chance.random() < 0.5 else start
    data[start:end] = blob
    return bytes(data)


def _splice(data: bytearray, chance: Random, others: Sequence[bytes]) -> bytes:
    other = bytearray(chance.choice(others)) if others else data
    start, end = _span(data, chance)
    first, last = _span(other, chance)
    data[start:end] = other[first:last]
    return bytes(data)


def _join(data: bytearray, chance: Random, others: Sequence[bytes]) -> bytes:
    other = chance.choice(others) if others else b""
    return bytes(data) + other if chance.random() < 0.5 else other + bytes(data)


def _number(data: bytearray, chance: Random, _: Sequence[bytes]) -> bytes:
    """A number of 1 to 8 bytes, in either order, near a border."""
    size = chance.choice((1, 2, 4, 8))
    value = chance.choice((0, 1, (1 << 8 * size) - 1, 1 << (8 * size - 1), 1 << 20, 1 << 22, 1 << 26, 1 << 28))
    value = (value + chance.randint(-2, 2)) % (1 << 8 * size)
    start = chance.randint(0, max(0, len(data) - size))
    data[start : start + size] = value.to_bytes(size, chance.choice(("big", "little")))
    return bytes(data)


_BYTE_CHANGES: tuple[Callable[[bytearray, Random, Sequence[bytes]], bytes], ...] = (
    *(_flip_bit, _flip_bit, _set_byte, _set_byte, _cut_out, _truncate),
    *(_repeat, _insert, _insert, _splice, _splice, _join, _number),
)


# Trees


def _mutated_tree(data: bytes, chance: Random, shape: Shape, others: Sequence[bytes]) -> bytes | None:
    """None where the input is no tree, or the changed tree cannot be written."""
    try:
        tree = shape.parse(data)
        found = places(tree)
        donor = None
        if others and chance.random() < 0.3:
            donor = chance.choice(places(shape.parse(chance.choice(others))))
        changed = _changed(tree, chance.choice(found), chance, donor)
        return shape.dump(changed)
    except (MsgspecError, ValueError, TypeError, LookupError, RecursionError, OverflowError, AttributeError):
        return None


class _Place:
    """A value in a tree, and where it is: in which list or dict, and under which index or key."""

    __slots__ = ("holder", "key", "value")

    def __init__(self, value: Any, holder: Any, key: Any) -> None:
        self.value = value
        self.holder = holder
        self.key = key

    def put(self, tree: Any, value: Any) -> Any:
        """The tree with another value here."""
        if self.holder is None:
            return value
        self.holder[self.key] = value
        return tree


def places(tree: Any) -> list[_Place]:
    """The values in a tree, the tree itself first."""
    found = [_Place(tree, None, None)]
    for place in found:
        if len(found) >= NODES_MAX:
            break
        if isinstance(place.value, list):
            found.extend(_Place(value, place.value, index) for index, value in enumerate(place.value))
        elif isinstance(place.value, dict):
            found.extend(_Place(value, place.value, key) for key, value in place.value.items())
    return found


def _changed(tree: Any, place: _Place, chance: Random, donor: _Place | None) -> Any:
    """The tree with one change at `place`."""
    if donor is not None:
        return place.put(tree, donor.value)
    if isinstance(place.holder, list) and chance.random() < 0.3:
        _rearrange(place.holder, place.key, chance)
        return tree
    if isinstance(place.holder, dict) and chance.random() < 0.3:
        value = place.holder.pop(place.key)
        if chance.random() < 0.5:
            place.holder[chance.choice(TEXTS) if chance.random() < 0.5 else _near(place.key, chance)] = value
        return tree
    if chance.random() < 0.5 and not isinstance(place.value, list | dict):
        return place.put(tree, _near(place.value, chance))
    return place.put(tree, _value(place.value, chance))


def _rearrange(items: list[Any], index: int, chance: Random) -> None:
    what = chance.randrange(4)
    if what == 0:
        del items[index]
    elif what == 1:
        items[index:index] = [items[index]] * chance.choice((1, 1, 2, 10, 100))
    elif what == 2:
        other = chance.randrange(len(items))
        items[index], items[other] = items[other], items[index]
    else:
        items.insert(index, chance.choice((*_OTHERS, *NUMBERS)))


def _value(before: Any, chance: Random) -> Any:
    """Any other value, of any type."""
    what = chance.randrange(6)
    if what == 0:
        return chance.choice(NUMBERS)
    if what == 1:
        return chance.choice(TEXTS)
    if what == 2:
        return chance.choice(BLOBS)
    if what == 3:
        nested = before
        for _ in range(chance.choice((1, *DEEP_LEVELS))):
            nested = [nested]
        return nested
    if what == 4 and isinstance(before, list | str | bytes):
        return before * chance.choice((0, 2, 3, 50))
    return chance.choice(_OTHERS)


def _near(before: Any, chance: Random) -> Any:
    """A value of the same type."""
    if isinstance(before, bool) or before is None:
        return not before
    if isinstance(before, int):
        return chance.choice(
            (before + 1, before - 1, -before, before ^ (1 << chance.randrange(64)), chance.choice(NUMBERS))
        )
    if isinstance(before, float):
        return chance.choice((-before, before * 1e10, float(chance.randint(-5, 5)), chance.choice(NUMBERS)))
    if isinstance(before, str):
        at = chance.randint(0, len(before))
        return before[:at] + chance.choice(TEXTS) + before[chance.choice((at, at + 1, len(before))) :]
    if isinstance(before, bytes):
        return _mutated_bytes(before, chance, ())
    return before
