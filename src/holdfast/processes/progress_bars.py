"""Progress bars in what a process writes: each frame is drawn over the one before it, after a carriage return."""

from __future__ import annotations


def last_frames(data: bytes) -> bytes:
    """`data` with only the last frame of each progress bar. A carriage return at the end of a line stays.

    It can be applied to a stream piece by piece: `last_frames(last_frames(a) + b)` is `last_frames(a + b)`.
    """
    if b"\r" not in data:
        return data
    return b"\n".join(map(_last_frame, data.split(b"\n")))


def _last_frame(line: bytes) -> bytes:
    return line[line.rstrip(b"\r").rfind(b"\r") + 1 :]
