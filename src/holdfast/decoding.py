"""The only way in for data that others wrote: a peer, a worker, or anyone who can reach a store or a file.

Bytes become a typed record or an `UndecodableError`. msgspec itself raises four kinds of exceptions. The types below
limit what a record can hold.
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
"""The pattern of the names of nodes, jobs and requests."""

LINE_MAX_CHARS = 4_096
"""How much of a one-line text, such as a path, is kept."""

NAME_MAX_CHARS = 255
"""The longest name of a host, an address or a role."""

TEXT_MAX_CHARS = 16_384
"""How much of a longer text, such as a traceback, is kept: the end, because the reason is there."""

COUNT_MAX = 1 << 53
"""The largest integer that every program reads exactly. Larger numbers are nonsense."""

SECONDS_MAX = 1e10
"""The longest duration: about three hundred years."""

PROBLEM_MAX_CHARS = 200
"""The longest description of what is wrong with the bytes."""

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
    """The bytes are not a valid record. The message gives the reason in one line."""


def decoded(decoder: _Decoder[T_co], data: bytes | bytearray) -> T_co:
    """Decode `data` with `decoder`.

    Raises:
        UndecodableError: `decoder` does not accept `data`.
    """
    try:
        return decoder.decode(data)
    except (MsgspecError, ValueError, OverflowError, RecursionError, MemoryError) as error:
        problem = str(error) or type(error).__name__
        raise UndecodableError(visible_line(problem[:PROBLEM_MAX_CHARS])) from None


def bound_lines(record: Struct, max_chars: int, *names: str) -> None:
    """Make text fields of a record visible single lines of at most `max_chars`.

    Call it in ``__post_init__``, so that records we write are bounded, too.
    """
    for name in names:
        text = getattr(record, name)
        if len(text) > max_chars or not text.isprintable():
            force_setattr(record, name, visible_line(text[:max_chars])[:max_chars])


def bound_end(record: Struct, max_chars: int, name: str) -> None:
    """Make a text field of a record visible, and keep only its last `max_chars`."""
    text = getattr(record, name)
    if len(text) > max_chars or not text.isprintable():
        force_setattr(record, name, visible(text[-max_chars:])[-max_chars:])
