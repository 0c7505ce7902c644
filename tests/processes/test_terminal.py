"""A terminal for a worker in place of the console."""

from __future__ import annotations

import fcntl
import os
import select
import struct
import subprocess
import sys
import termios

import pytest

from holdfast.processes.terminal import open_terminal, set_window, window_of

WINDOW = struct.pack("HHHH", 33, 77, 0, 0)
ALL_BYTES = b"line\nreturn\r\n\ttab \x1b[31m" + bytes(range(128, 256))


@pytest.fixture
def opened():
    """Opens terminals that are closed with the test."""
    ends = []

    def start(window=WINDOW):
        ends.extend(open_terminal(window))
        return ends[-2:]

    yield start
    for fd in ends:
        os.close(fd)


def read(fd, count):
    data = b""
    while len(data) < count:
        assert select.select([fd], [], [], 60)[0], data
        data += os.read(fd, count)
    return data


def test_its_users_find_a_terminal_of_the_size(opened):
    _, users = opened()
    assert os.isatty(users)
    assert os.get_terminal_size(users) == (77, 33)


def test_every_byte_passes_unchanged(opened):
    ours, users = opened()
    os.write(users, ALL_BYTES)
    assert read(ours, len(ALL_BYTES)) == ALL_BYTES


def test_what_we_write_comes_not_back(opened):
    ours, users = opened()
    os.write(ours, b"typed\n")
    assert os.read(users, 100) == b"typed\n"
    os.write(users, b"answer")
    assert read(ours, len(b"answer")) == b"answer"


def test_an_unknown_size_is_left_alone(opened):
    _, users = opened(b"")
    assert os.isatty(users)
    assert os.get_terminal_size(users) == (0, 0)


def test_it_becomes_nobodys_controlling_terminal():
    """Also not of a process that leads a session and has none."""
    script = (
        "import os\nos.setsid()\n"
        "from holdfast.processes.terminal import open_terminal\n"
        "open_terminal(b'')\n"
        "try: os.open('/dev/tty', os.O_RDWR)\nexcept OSError: print('none')"
    )
    # subprocess's child leads no group of its own, so that it may begin a session.
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout == "none\n"


def test_a_size_that_cannot_be_set_leaves_no_descriptor(monkeypatch):
    before = os.listdir("/proc/self/fd")

    def refuse(fd, request, argument):
        raise OSError(5, "refused")

    monkeypatch.setattr(fcntl, "ioctl", refuse)
    with pytest.raises(OSError, match="refused"):
        open_terminal(WINDOW)
    assert os.listdir("/proc/self/fd") == before


def test_attributes_that_cannot_be_set_are_an_error_of_the_system(monkeypatch):
    """termios has an error of its own, which is no OSError."""
    before = os.listdir("/proc/self/fd")

    def refuse(fd, when, attributes):
        raise termios.error(5, "refused")

    monkeypatch.setattr(termios, "tcsetattr", refuse)
    with pytest.raises(OSError, match="refused") as raised:
        open_terminal(WINDOW)
    assert raised.value.errno == 5
    assert os.listdir("/proc/self/fd") == before


def test_the_size_can_be_read_and_changed(opened):
    ours, users = opened()
    assert window_of(users) == WINDOW
    set_window(ours, struct.pack("HHHH", 40, 132, 0, 0))
    assert os.get_terminal_size(users) == (132, 40)
    assert window_of(ours) == struct.pack("HHHH", 40, 132, 0, 0)


def test_what_is_no_terminal_has_no_size(tmp_path):
    with open(tmp_path / "file", "wb") as file:
        assert window_of(file.fileno()) == b""
