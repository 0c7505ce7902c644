"""A stream on which several threads show lines, one at a time."""

from __future__ import annotations

import contextlib
import io
import os
import select
import threading

import pytest

from holdfast.processes.console import GivenUpError
from holdfast.processes.display import Display, SharedConsole

DEADLINE_S = 60


@pytest.fixture
def stuck():
    """A console that accepts nothing: its stream, the end to read, and how many bytes filled it."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    filled = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            filled += os.write(writer, b"." * select.PIPE_BUF)
    os.set_blocking(writer, True)
    with open(writer, "w", encoding="utf-8") as stream:
        yield stream, reader, filled
    os.close(reader)


def never():
    return False


def in_thread(function, *args):
    """Start a thread; returns it and the list that gets the type of its exception, or None."""
    ended = []

    def run():
        try:
            function(*args)
        except Exception as error:
            ended.append(type(error))
        else:
            ended.append(None)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, ended


def until(condition):
    """For what has no event to wait for."""
    for _ in iter(condition, True):
        os.sched_yield()


# Turns


def test_one_thread_at_a_time_has_the_turn():
    console, inside, most = SharedConsole(), [], []

    def work():
        for _ in range(200):
            console.take(never)
            inside.append(1)
            os.sched_yield()
            most.append(len(inside))
            inside.pop()
            console.give_back()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert len(most) == 800
    assert max(most) == 1
    assert not console.is_taken


def test_a_thread_that_waits_for_its_turn_can_give_up():
    console, given_up = SharedConsole(), threading.Event()
    console.take(never)
    thread, ended = in_thread(console.take, given_up.is_set)
    given_up.set()
    console.ask_again()
    thread.join(DEADLINE_S)
    assert ended == [GivenUpError]
    assert console.is_taken, "the turn is still that of the first"


def test_who_has_given_up_takes_no_turn():
    console = SharedConsole()
    with pytest.raises(GivenUpError):
        console.take(lambda: True)
    assert not console.is_taken


# Streams


def test_blocks_follow_the_text_that_others_wrote_before(tmp_path):
    with open(tmp_path / "shown", "w", encoding="utf-8") as stream:
        stream.write("text before; ")
        Display(stream).show(b"\xff line\n")
        assert (tmp_path / "shown").read_bytes() == b"text before; \xff line\n", "nothing waits in a buffer"


def test_a_stream_of_text_gets_text_and_its_bytes_are_counted():
    stream, before = io.StringIO(), Display.consoles.accepted_bytes
    Display(stream).show("é\n".encode() + b"\xff\n")
    assert stream.getvalue() == "é\n\ufffd\n"
    assert Display.consoles.accepted_bytes - before == len("é\n".encode() + b"\xff\n")


def test_an_empty_block_takes_no_turn(stuck):
    display = Display(stuck[0])
    display.console.take(never)
    try:
        display.show(b"")
    finally:
        display.console.give_back()


def test_files_and_consoles_do_not_wait_for_each_other(tmp_path, stuck):
    with open(tmp_path / "file", "w", encoding="utf-8") as file:
        assert Display(file).console is Display.files
    assert Display(stuck[0]).console is Display.consoles
    assert Display(io.StringIO()).console is Display.consoles


def test_the_turn_is_given_back_when_the_stream_fails():
    class Failing(io.StringIO):
        def write(self, text):
            raise RuntimeError("broken")

    display = Display(Failing())
    with pytest.raises(RuntimeError, match="broken"):
        display.show(b"line\n")
    assert not display.console.is_taken


# Giving up


def test_a_display_that_has_given_up_shows_nothing():
    stream = io.StringIO()
    display = Display(stream)
    display.give_up()
    with pytest.raises(GivenUpError):
        display.show(b"line\n")
    assert stream.getvalue() == ""


def test_a_blocked_display_gives_up_after_whole_lines(stuck):
    stream, reader, filled = stuck
    display = Display(stream)
    block = b"".join(b"%05d\n" % n for n in range(20_000))
    thread, ended = in_thread(display.show, block)
    until(lambda: display.console.is_taken)
    display.give_up()
    shown = b""
    while thread.is_alive() or select.select([reader], [], [], 0)[0]:
        if select.select([reader], [], [], 0.01)[0]:
            shown += os.read(reader, 65536)
    thread.join()
    shown = shown[filled:]
    assert ended == [GivenUpError]
    assert len(shown) < len(block)
    assert block.startswith(shown)
    assert len(shown) % 6 == 0, "the last line is whole"
    assert not display.console.is_taken


def test_a_display_that_waits_behind_a_blocked_one_gives_up_at_once(stuck):
    stream, reader, filled = stuck
    first, second = Display(stream), Display(stream)
    blocked, first_ended = in_thread(first.show, b"first\n")
    until(lambda: first.console.is_taken)
    waiting, second_ended = in_thread(second.show, b"second\n")
    second.give_up()
    waiting.join(DEADLINE_S)
    assert second_ended == [GivenUpError]
    assert blocked.is_alive()
    received = b""
    while len(received) < filled + len(b"first\n"):
        received += os.read(reader, 65536)
    blocked.join(DEADLINE_S)
    assert first_ended == [None]
    assert received[filled:] == b"first\n"


def test_a_child_has_turns_of_its_own():
    Display.consoles.take(never)
    try:
        pid = os.fork()
        if pid == 0:
            os._exit(1 if Display.consoles.is_taken or Display.files.is_taken else 0)
        assert os.waitpid(pid, 0)[1] == 0
    finally:
        Display.consoles.give_back()
