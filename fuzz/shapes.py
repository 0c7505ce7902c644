"""How inputs are built: from bytes to a tree of plain values and back, so that mutations can change values and not only
bytes.

A tree is made of lists, dicts and plain values. What cannot be read as a tree stays bytes.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_HEADER = struct.Struct("!II")
"""Of a frame of the coordination store: the length of the body, and its channel."""


class Shape(NamedTuple):
    """`parse` makes a tree of bytes, `dump` bytes of a tree. Either may raise anything: then there is none."""

    parse: Callable[[bytes], Any]
    dump: Callable[[Any], bytes]


def _no_tree(data: bytes) -> Any:
    raise ValueError(f"{len(data)} bytes are no tree")


def _as_json(tree: Any) -> bytes:
    return json.dumps(tree, default=lambda value: value.decode("latin-1"), separators=(",", ":")).encode()


def _json_or_bytes(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return line


def _parse_json_lines(data: bytes) -> list[Any]:
    return [_json_or_bytes(line) for line in data.split(b"\n")]


def _dump_json_lines(tree: list[Any]) -> bytes:
    return b"\n".join(line if isinstance(line, bytes) else _as_json(line) for line in tree)


def _parse_frames(data: bytes) -> list[Any]:
    """Each frame is its channel and its body; what is left at the end is bytes."""
    frames: list[Any] = []
    at = 0
    while at + _HEADER.size <= len(data):
        length, channel = _HEADER.unpack_from(data, at)
        end = at + _HEADER.size + length
        if end > len(data):
            break
        frames.append([channel, _msgpack_or_bytes(data[at + _HEADER.size : end])])
        at = end
    return [*frames, data[at:]]


def _msgpack_or_bytes(body: bytes) -> Any:
    try:
        return msgspec.msgpack.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError, TypeError):
        return body


def _dump_frames(tree: list[Any]) -> bytes:
    parts = []
    for item in tree:
        if isinstance(item, list) and len(item) == 2 and isinstance(item[0], int):
            body = item[1] if isinstance(item[1], bytes) else msgspec.msgpack.encode(item[1])
            parts.append(_HEADER.pack(len(body), item[0] % (1 << 32)) + body)
        else:
            parts.append(item if isinstance(item, bytes) else msgspec.msgpack.encode(item))
    return b"".join(parts)


def _separated(separator: str) -> Shape:
    """Texts with something between them."""

    def dump(tree: list[Any]) -> bytes:
        return separator.join(map(_text, tree)).encode("utf-8", "surrogateescape")

    return Shape(lambda data: data.decode("utf-8", "surrogateescape").split(separator), dump)


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value if isinstance(value, str) else str(value)


BYTES = Shape(_no_tree, _no_tree)
JSON = Shape(json.loads, _as_json)
JSON_LINES = Shape(_parse_json_lines, _dump_json_lines)
MSGPACK = Shape(msgspec.msgpack.decode, msgspec.msgpack.encode)
FRAMES = Shape(_parse_frames, _dump_frames)
LINES = _separated("\n")
WORDS = _separated("\0")
