"""A node's stacks as bytes, for the store."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from holdfast.decoding import Count, UndecodableError, bound_lines, decoded
from holdfast.errors.text import clipped, encodable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

STACKS_MAX_BYTES = 64 * 1024
"""How much of a rank's stacks is sent."""

NODE_MAX_BYTES = 1 << 20
"""How much a node sends. It is also the limit of a value in the store."""

_RANK_EXTRA_BYTES = 512
"""The bytes of a rank beside its stacks: its number, the host name, and the note about omitted text."""

HOST_MAX_CHARS = 64

TEXT_MAX_CHARS = 1 << 23
"""The limit of a rank's stacks: more than is read from a local process, and more than a node sends."""

REFUSED = b""
"""What a node sends that has been asked too often. A node whose workers have ended sends no stacks, which is not it."""

RANKS_MAX = 1 << 16
"""How many ranks a node may report."""


class RankStacks(Struct, frozen=True):
    """The stacks of one rank, as text for `holdfast.stacks.parse`."""

    host: str
    pid: Count
    text: Annotated[str, Meta(max_length=TEXT_MAX_CHARS)]

    def __post_init__(self) -> None:
        bound_lines(self, HOST_MAX_CHARS, "host")


_DECODER = msgspec.msgpack.Decoder(Annotated[dict[Count, RankStacks], Meta(max_length=RANKS_MAX)])


def encode(ranks: Mapping[int, RankStacks]) -> bytes:
    """Encode to at most `NODE_MAX_BYTES`. Long texts are cut in the middle."""
    share = NODE_MAX_BYTES // max(1, len(ranks)) - _RANK_EXTRA_BYTES
    limit = max(0, min(STACKS_MAX_BYTES, share))
    cut = {rank: RankStacks(_host(it.host), it.pid, _cut(it.text, limit)) for rank, it in ranks.items()}
    return msgspec.msgpack.encode(cut)


def decode(data: bytes) -> dict[int, RankStacks]:
    """Decode what `encode` returned.

    Raises:
        ValueError: the node refuses to tell, or the bytes are not a node's stacks.
    """
    if data == REFUSED:
        raise ValueError("it was asked too often; try again in a minute")
    if len(data) > NODE_MAX_BYTES:
        raise ValueError(f"the stacks of a node have {len(data)} bytes, more than {NODE_MAX_BYTES}")
    try:
        return decoded(_DECODER, data)
    except UndecodableError as error:
        raise ValueError(f"these are not the stacks of a node: {error}") from None


def _host(name: str) -> str:
    return encodable(name)[:HOST_MAX_CHARS]


def _cut(text: str, limit_bytes: int) -> str:
    size = len(text.encode("utf-8", "backslashreplace"))
    if size > limit_bytes:
        # A character may take ten bytes, as an escape; most take one.
        fair = len(text) * limit_bytes // size
        shorter = clipped(text, fair)
        while len(shorter.encode("utf-8", "backslashreplace")) > limit_bytes + _RANK_EXTRA_BYTES // 2:
            fair //= 2
            shorter = clipped(text, fair)
        text = shorter
    return text.encode("utf-8", "backslashreplace").decode()
