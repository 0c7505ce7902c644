"""What is fuzzed: a function that takes bytes, and what is known of the bytes that it expects."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fuzz.shapes import BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from fuzz.shapes import Shape

MIB = 1 << 20

INPUT_MAX_BYTES = 64 << 10
"""How long an input may be. Most limits of the code are beyond it; those that count are tested one by one."""

MEMORY_MAX_BYTES = 16 * MIB
"""How much memory one input may take, where a target does not say otherwise."""


class Target(NamedTuple):
    """A function that takes bytes from outside.

    Attributes:
        name: how people call it, and the name of its directory of inputs.
        run: takes an input. Whatever it raises is a defect: of the code, or a broken promise that it has checked.
        seeds: inputs to begin with, made by the code itself.
        shape: how inputs are built, for mutations that know it.
        records: a hypothesis strategy of valid inputs with extreme values, where types say what is valid.
        memory_max_bytes: how much memory one input may take.
        short_runs: how many inputs the short run, which is part of the tests, tries.
    """

    name: str
    run: Callable[[bytes], None]
    seeds: Callable[[], Iterable[bytes]]
    shape: Shape = BYTES
    records: Callable[[], Any] | None = None
    memory_max_bytes: int = MEMORY_MAX_BYTES
    short_runs: int = 200
