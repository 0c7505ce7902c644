"""The door for what others have written: a peer, a worker, or whoever else can reach a store or a file.

Bytes become a typed record here or an `UndecodableError`, and nothing else: msgspec itself raises four kinds of
exceptions. The types below are the limits of what a record may hold.
"""

from __future__ import annotations

from typing import Annotated, Protocol, TypeVar

from msgspec import Meta, MsgspecError
from msgspec.structs import force_setattr

from holdfast.errors.error_file import TIME_END_S
from holdfast.errors.text import visible, visible_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from msgspec import Struct

ID_PATTERN = r"[A-Za-z0-9_.:@+-]{1,200}"
"""What nodes, jobs and requests may be called."""

LINE_MAX_CHARS = 4_096
"""How much of a text that is one line is kept, such as a path."""

NAME_MAX_CHARS = 255
"""How long the name of a host, an address or a role may be."""

TEXT_MAX_CHARS = 16_384
"""How much of a longer text is kept, such as a traceback: its end, where the reason is."""

COUNT_MAX = 1 << 53
"""Larger numbers are nonsense, and not every program reads them as they were written."""

SECONDS_MAX = 1e10
"""The longest time: three hundred years."""

PROBLEM_MAX_CHARS = 200
"""How much is said about what is wrong with bytes."""

Id = Annotated[str, Meta(pattern=rf"\A(?:{ID_PATTERN})\Z")]
IdOrNone = Annotated[str, Meta(pattern=rf"\A(?:{ID_PATTERN})?\Z")]
Name = Annotated[str, Meta(max_length=NAME_MAX_CHARS)]
Count = Annotated[int, Meta(ge=0, le=COUNT_MAX)]
Number = Annotated[int, Meta(ge=-COUNT_MAX, le=COUNT_MAX)]
Port = Annotated[int, Meta(ge=0, le=(1 << 16) - 1)]
Seconds = Annotated[float, Meta(ge=0, le=SECONDS_MAX)]
Timestamp = Annotated[float, Meta(ge=0, lt=TIME_END_S)]

T_co = TypeVar("T_co", covariant=True)


class _Decoder(Protocol[T_co]):
    def decode(self, buf: bytes | bytearray, /) -> T_co: ...


class UndecodableError(ValueError):
    """These bytes are not what was expected there. The message says why, in one line."""


def decoded(decoder: _Decoder[T_co], data: bytes | bytearray) -> T_co:
    """What `data` stands for.

    Raises:
        UndecodableError: it is nothing that `decoder` knows.
    """
    try:
        return decoder.decode(data)
    except (MsgspecError, ValueError, OverflowError, RecursionError, MemoryError) as error:
        problem = str(error) or type(error).__name__
        raise UndecodableError(visible_line(problem[:PROBLEM_MAX_CHARS])) from None


def bound_lines(record: Struct, max_chars: int, *names: str) -> None:
    """Make texts of a record visible lines, and cut them. For its ``__post_init__``: also what we write is bounded."""
    for name in names:
        text = getattr(record, name)
        if len(text) > max_chars or not text.isprintable():
            force_setattr(record, name, visible_line(text[:max_chars])[:max_chars])


def bound_end(record: Struct, max_chars: int, name: str) -> None:
    """Make a text of a record visible, and keep as much of its end."""
    text = getattr(record, name)
    if len(text) > max_chars or not text.isprintable():
        force_setattr(record, name, visible(text[-max_chars:])[-max_chars:])
