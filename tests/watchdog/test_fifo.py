from __future__ import annotations

import os
import select
import socket
import stat
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InputError
from holdfast.watchdog.fifo import LINE_MAX_BYTES, LineSplitter, RequestPipe


@pytest.fixture
def make_pipe(path):
    pipes = []

    def make():
        pipe = RequestPipe(path)
        pipes.append(pipe)
        return pipe

    yield make
    for pipe in pipes:
        pipe.close()


def write(path, data):
    fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    try:
        return os.write(fd, data)
    finally:
        os.close(fd)


def test_it_is_a_pipe_for_its_owner_alone(make_pipe, path):
    old = os.umask(0)
    try:
        make_pipe()
    finally:
        os.umask(old)
    mode = os.stat(path).st_mode
    assert stat.S_ISFIFO(mode)
    assert stat.S_IMODE(mode) == 0o600


def test_it_takes_what_is_written_before_anybody_reads(make_pipe, path):
    pipe = make_pipe()
    write(path, b"one\ntw")
    write(path, b"o\n")
    assert pipe.read() == [b"one", b"two"]


def test_it_neither_blocks_nor_ends(make_pipe, path):
    pipe = make_pipe()
    for _ in range(3):
        assert pipe.read() == []
        write(path, b"again\n")
        assert pipe.read() == [b"again"]
        assert select.select([pipe], [], [], 0) == ([], [], [])


def test_a_leftover_pipe_is_replaced(make_pipe, path):
    os.mkfifo(path, 0o666)
    before = os.stat(path).st_ino, os.stat(path).st_ctime_ns
    pipe = make_pipe()
    assert (os.stat(path).st_ino, os.stat(path).st_ctime_ns) != before
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    write(path, b"here\n")
    assert pipe.read() == [b"here"]


@pytest.mark.parametrize("kind", ["file", "directory", "link", "socket"])
def test_something_else_is_left_alone(path, tmp_path, kind):
    if kind == "file":
        (tmp_path / "timers").write_text("precious")
    elif kind == "directory":
        os.mkdir(path)
    elif kind == "link":
        os.mkfifo(tmp_path / "elsewhere")
        os.symlink(tmp_path / "elsewhere", path)
    else:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
    before = os.lstat(path)
    with pytest.raises(InputError, match=r"timers': something else has this name; move it away, or set TORCHELASTIC_T"):
        RequestPipe(path)
    assert os.path.samestat(os.lstat(path), before)


def test_a_path_that_cannot_be_used_is_named(tmp_path):
    with pytest.raises(InputError, match=r"absent/timers': No such file or directory; set TORCHELASTIC_TIMER_FILE to"):
        RequestPipe(str(tmp_path / "absent" / "timers"))


def test_it_is_removed_when_closed(path):
    RequestPipe(path).close()
    assert not os.path.lexists(path)


def test_only_itself_is_removed(make_pipe, path):
    first = RequestPipe(path)
    second = make_pipe()
    first.close()
    write(path, b"for the second\n")
    assert second.read() == [b"for the second"]


def test_who_removed_it_is_forgiven(path):
    pipe = RequestPipe(path)
    os.unlink(path)
    pipe.close()


@pytest.mark.timeout(60)
def test_a_writer_without_pause_cannot_hold_up_a_reader(make_pipe, path, start_python):
    """One read ends, whatever is written meanwhile, and takes all that was written before it."""
    pipe = make_pipe()
    code = """
        import os, sys
        fd = os.open(sys.argv[1], os.O_WRONLY)
        while True:
            os.write(fd, b"x" * 99 + b"\\n")
    """
    start_python(code, path)
    deadline = time.monotonic() + 60
    while len(pipe.read()) < 100:
        assert time.monotonic() < deadline
    for _ in range(100):
        assert len(pipe.read()) <= 656


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=5))
def test_lines_do_not_depend_on_how_they_are_cut(data, cuts):
    splitter, lines, at = LineSplitter(), [], 0
    for cut in [*sorted(cuts), len(data)]:
        lines += splitter.feed(data[at:cut])
        at = max(at, min(cut, len(data)))
    assert lines == data.split(b"\n")[:-1]


def test_of_a_line_that_is_too_long_only_so_much_is_kept():
    splitter = LineSplitter()
    for _ in range(100):
        assert splitter.feed(b"x" * 60_000) == []
        assert len(splitter._rest) == LINE_MAX_BYTES
    (long_line, next_line) = splitter.feed(b"x\nnext\n")
    assert len(long_line) >= LINE_MAX_BYTES
    assert next_line == b"next"
