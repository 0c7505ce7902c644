from __future__ import annotations

import contextlib
import os
import select

import pytest

from holdfast.errors import notice as module
from holdfast.errors.notice import PIECE_MAX_BYTES, written


class Console:
    """A pipe with a stream to write to."""

    def __init__(self):
        self.unread, end = os.pipe()
        self.stream = open(end, "w", encoding="utf-8")  # noqa: SIM115 - closed below

    def fill(self):
        os.set_blocking(self.stream.fileno(), False)
        filled = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                filled += os.write(self.stream.fileno(), b"." * select.PIPE_BUF)
        os.set_blocking(self.stream.fileno(), True)
        return filled

    def read(self, count):
        data = b""
        while len(data) < count:
            data += os.read(self.unread, count - len(data))
        return data.decode()

    def close(self):
        os.close(self.unread)
        with contextlib.suppress(OSError):
            self.stream.close()


@pytest.fixture
def console():
    one = Console()
    yield one
    one.close()


def test_a_console_that_takes_nothing_gets_nothing_until_it_takes_something(console):
    filled = console.fill()
    assert not written(console.stream, "lost\n", 0.0)
    assert not written(console.stream, "lost, too\n")
    console.read(filled)
    assert written(console.stream, "told\n")
    assert console.read(5) == "told\n"


def test_only_the_first_message_waits(console, monkeypatch):
    waits = []
    poll = select.poll

    class Poll:
        def __init__(self):
            self._poll = poll()

        def register(self, *args):
            self._poll.register(*args)

        def poll(self, wait_ms):
            waits.append(wait_ms)
            return self._poll.poll(wait_ms)

    monkeypatch.setattr(module, "CONSOLE_PATIENCE_S", 0.01)
    monkeypatch.setattr(select, "poll", Poll)
    console.fill()
    assert [written(console.stream, "lost\n") for _ in range(3)] == [False] * 3
    assert waits == [10, 0, 0]


def test_a_long_message_never_waits_in_a_write(console):
    """There is room for one piece, and the message has several."""
    filled = console.fill()
    console.read(select.PIPE_BUF)
    text = "".join(f"{number:04} {'ä' * 100}\n" for number in range(100))
    assert not written(console.stream, text, 0.0)
    shown = console.read(filled - select.PIPE_BUF).lstrip(".")
    assert shown == ""
    rest = os.read(console.unread, 1 << 20).decode()
    assert text.startswith(rest)
    assert rest.endswith("\n")
    assert 0 < len(rest.encode()) <= PIECE_MAX_BYTES


def test_a_line_of_any_length_arrives_whole(console):
    text = "ä日x" * 5000 + "\n" + "end\n"
    assert written(console.stream, text)
    assert console.read(len(text.encode())) == text
