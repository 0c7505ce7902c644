"""Splits a stream of bytes into blocks of whole lines that can be shown between those of others."""

from __future__ import annotations

import codecs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

LINE_MAX_BYTES = 64 * 1024 * 1024
"""A longer line is shown in pieces, so that memory stays bounded."""

_UTF8_MAX_BYTES = 4


class Lines:
    """Collects the bytes of one writer and returns them as whole lines, each after `prefix`.

    A carriage return also ends a line, with or without a line feed after it. Otherwise a progress bar would be held
    back to its end, or overwrite the line of another writer.

    `keep` is called with each line and its line feed; lines for which it is false are omitted.
    """

    __slots__ = ("_after_return", "_keep", "_prefix", "_rest")

    def __init__(self, prefix: bytes, keep: Callable[[str], bool] | None = None) -> None:
        self._prefix = prefix
        self._keep = keep
        self._rest = bytearray()
        self._after_return = False

    def feed(self, data: bytes) -> bytes:
        """The lines that `data` completes; b"" if none."""
        if not data:
            return b""
        data = self._with_line_feeds(data)
        end = data.rfind(b"\n") + 1
        if end == 0:
            self._rest += data
            return self._piece() if len(self._rest) > LINE_MAX_BYTES else b""
        block = b"".join((self._rest, memoryview(data)[:end]))
        self._rest = bytearray(data[end:])
        return self._dressed(block)

    def finish(self) -> bytes:
        """The unfinished last line, with a line feed; bytes that are fed afterwards start a new line."""
        self._after_return = False
        if not self._rest:
            return b""
        block = bytes(self._rest) + b"\n"
        self._rest = bytearray()
        return self._dressed(block)

    def _with_line_feeds(self, data: bytes) -> bytes:
        if self._after_return and data.startswith(b"\n"):
            data = data[1:]
        self._after_return = data.endswith(b"\r")
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return data

    def _piece(self) -> bytes:
        end = whole_characters(self._rest)
        block = bytes(self._rest[:end]) + b"\n"
        del self._rest[:end]
        return self._dressed(block)

    def _dressed(self, block: bytes) -> bytes:
        prefix, keep = self._prefix, self._keep
        if keep is not None:
            lines = block.splitlines(keepends=True)
            return b"".join([prefix + line for line in lines if keep(line.decode("utf-8", "replace"))])
        if not prefix:
            return block
        # One call for all lines. It adds a prefix after the last line, where none belongs, and none before the first.
        dressed = block.replace(b"\n", b"\n" + prefix)
        return b"".join((prefix, memoryview(dressed)[: -len(prefix)]))


def whole_characters(data: bytes | bytearray) -> int:
    """The length of `data` without the start of a UTF-8 character whose end is missing."""
    tail = bytes(data[-_UTF8_MAX_BYTES:])
    _, whole = codecs.utf_8_decode(tail, "replace", False)  # not final: an incomplete character is left
    return len(data) - len(tail) + whole
