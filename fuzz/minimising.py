"""From an input that finds a defect to a short one that finds the same."""

from __future__ import annotations

import time
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING

from fuzz.examination import examine
from fuzz.mutations import places

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fuzz.examination import Problem
    from fuzz.shapes import Shape
    from fuzz.target import Target

TRIES_MAX = 3_000
"""How many shorter inputs are tried."""

TRYING_MAX_S = 20.0
"""How long that may take."""


def minimised(target: Target, data: bytes, problem: Problem) -> bytes:
    """The shortest input found that has the same problem."""
    tries = 0
    deadline = time.monotonic() + TRYING_MAX_S
    is_shorter = True
    while is_shorter:
        is_shorter = False
        for candidate in chain(_simpler(data, target.shape), _shorter(data)):
            tries += 1
            if tries > TRIES_MAX or time.monotonic() > deadline:
                return data
            found = examine(target, candidate, with_memory=problem.signature == "memory")
            if found is not None and found.signature == problem.signature:
                data, is_shorter = candidate, True
                break
    return data


def _simpler(data: bytes, shape: Shape) -> Iterator[bytes]:
    """`data` as a tree without one of its values, or with a part of the value in its place."""
    for number in range(_count(data, shape)):
        for what in range(3):
            with suppress(Exception):  # no tree, or one that cannot be written
                tree = shape.parse(data)
                place = places(tree)[number]
                inner = place.value
                if what == 0 and place.holder is not None:
                    del place.holder[place.key]
                elif what and isinstance(inner, list | dict) and inner:
                    part = next(iter(inner.values())) if isinstance(inner, dict) else inner[0 if what == 1 else -1]
                    tree = place.put(tree, part)
                simpler = shape.dump(tree)
                if len(simpler) < len(data):
                    yield simpler


def _count(data: bytes, shape: Shape) -> int:
    try:
        return len(places(shape.parse(data)))
    except Exception:  # noqa: BLE001 - as above
        return 0


def _shorter(data: bytes) -> Iterator[bytes]:
    """`data` without parts of it, large ones first; then with plainer bytes."""
    length = len(data) // 2
    while length:
        for start in range(0, len(data), length):
            yield data[:start] + data[start + length :]
        length //= 2
    for at, byte in enumerate(data):
        for plain in b"0a":
            if byte not in b"0a":
                yield data[:at] + bytes([plain]) + data[at + 1 :]
