"""What workers print, on its way to the console.

Promises: every byte comes out, in whole lines with the prefix before each, however the bytes are cut. A carriage return
ends a line, so that no worker overwrites another's line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuzz.oracles import pieces, promise
from fuzz.shapes import LINES
from fuzz.target import Target
from holdfast.processes.lines import Lines

if TYPE_CHECKING:
    from collections.abc import Iterable

PREFIX = b"[0]:"


def _shown(parts: Iterable[bytes], prefix: bytes) -> bytes:
    lines = Lines(prefix)
    return b"".join(lines.feed(part) for part in parts) + lines.finish()


def _run(data: bytes) -> None:
    whole = _shown([data], PREFIX)
    promise(whole == _shown(pieces(data), PREFIX), "the output depends on how the bytes are cut")
    promise(b"\r" not in whole, "a carriage return gets to the console")
    promise(all(line.startswith(PREFIX) for line in whole.split(b"\n")[:-1]), "a line has no prefix")
    promise(not whole or whole.endswith(b"\n"), "the last line has no end")
    plain = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    wanted = plain if not plain or plain.endswith(b"\n") else plain + b"\n"
    promise(_shown([data], b"") == wanted, "not every byte comes out")
    kept = Lines(PREFIX, lambda line: "1" in line)
    promise(len(kept.feed(data) + kept.finish()) <= len(whole), "a filter makes more of it")


def _seeds() -> list[bytes]:
    return [
        b"one\ntwo\n",
        b"step 1\rstep 2\r\nend",
        b"\r\n\r\r\n",
        "é中\u2028\n".encode(),
        b"x" * 70 + b"\n" + b"\xff\xfe",
    ]


TARGETS = (Target("worker-output", _run, _seeds, LINES),)
