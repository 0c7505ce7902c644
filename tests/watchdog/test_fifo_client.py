from __future__ import annotations

import fcntl
import os
import signal
import threading
import time

import pytest

from holdfast.watchdog import FileTimerClient, FileTimerRequest, fifo_client
from holdfast.watchdog.fifo import RequestPipe
from holdfast.watchdog.request import parse_request


@pytest.fixture
def pipe(path):
    pipe = RequestPipe(path)
    yield pipe
    pipe.close()


def test_it_asks_for_itself(pipe, path):
    client = FileTimerClient(path)
    client.acquire("a", 12.5)
    client.release("a")
    FileTimerClient(path, signal.SIGTERM).acquire("b", 1)
    assert list(map(parse_request, pipe.read())) == [
        FileTimerRequest(os.getpid(), "a", 12.5, signal.SIGKILL),
        FileTimerRequest(os.getpid(), "a", -1, 0),
        FileTimerRequest(os.getpid(), "b", 1, signal.SIGTERM),
    ]


def test_a_fork_asks_for_the_child(pipe, path):
    client = FileTimerClient(path)
    child = os.fork()
    if child == 0:
        client.acquire("a", 1.0)
        os._exit(0)
    os.waitpid(child, 0)
    assert [parse_request(line).worker_pid for line in pipe.read()] == [child]


def test_a_line_goes_in_one_piece_or_not_at_all(pipe, path):
    client = FileTimerClient(path)
    overhead = len(FileTimerRequest(os.getpid(), "", 1.5, signal.SIGKILL).to_json()) + 1
    client.acquire("x" * (4096 - overhead), 1.5)
    with pytest.raises(RuntimeError, match=r"request of 4097 bytes .* shorter name than 'xxx"):
        client.acquire("x" * (4097 - overhead), 1.5)
    (line,) = pipe.read()
    assert len(line) == 4095
    assert parse_request(line).scope_id == "x" * (4096 - overhead)


@pytest.mark.parametrize("there", ["nothing", "pipe"])
def test_no_server_is_a_broken_pipe_after_ten_looks(path, there, monkeypatch):
    if there == "pipe":
        os.mkfifo(path)
    pauses = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    with pytest.raises(BrokenPipeError, match=r"no watchdog can be reached for the timer 'a' .* is the server started"):
        FileTimerClient(path).acquire("a", 1.0)
    assert pauses == [0.1] * 9


def test_what_is_no_pipe_is_not_written_to(path):
    with open(path, "w"):
        pass
    with pytest.raises(BrokenPipeError, match="not a named pipe"):
        FileTimerClient(path).acquire("a", 1.0)
    assert os.path.getsize(path) == 0


def test_a_server_that_comes_late_is_found(path, monkeypatch):
    pipes = []

    def meanwhile(_seconds):
        pipes.append(RequestPipe(path))

    monkeypatch.setattr(time, "sleep", meanwhile)
    FileTimerClient(path).acquire("a", 1.0)
    (pipe,) = pipes
    assert len(pipe.read()) == 1
    pipe.close()


def fill(path):
    fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    size = fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ)
    assert os.write(fd, b"\n" * size) == size
    os.close(fd)


def test_room_in_a_full_pipe_is_waited_for(pipe, path, monkeypatch):
    waiting, wait_for_room = threading.Event(), fifo_client._wait_for_room

    def wait(*args):
        waiting.set()
        wait_for_room(*args)

    monkeypatch.setattr(fifo_client, "_wait_for_room", wait)
    fill(path)
    thread = threading.Thread(target=FileTimerClient(path).acquire, args=("a", 1.0))
    thread.start()
    assert waiting.wait(60)
    pipe.read()
    thread.join(60)
    assert not thread.is_alive()
    (line,) = pipe.read()
    assert parse_request(line).scope_id == "a"


@pytest.mark.usefixtures("nothing_left")
def test_a_pipe_that_stays_full_is_an_error_that_says_so(path, monkeypatch):
    pipe = RequestPipe(path)
    monkeypatch.setattr(fifo_client, "ROOM_WAIT_S", 0.05)
    fill(path)
    with pytest.raises(TimeoutError, match=r"has not read its full pipe for 0\.05 s"):
        FileTimerClient(path).acquire("a", 1.0)
    pipe.close()


def test_there_must_be_such_a_signal():
    with pytest.raises(ValueError, match="1000 is not a signal"):
        FileTimerClient("anywhere", signal=1000)
    FileTimerClient("anywhere", signal=0)
