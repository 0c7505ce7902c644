"""Reports of a keeper: whole lines in their order, whether the agent reads, does not read, or is gone."""

from __future__ import annotations

import os
import select

import pytest

from holdfast.processes.keeper_reports import Reports


@pytest.fixture
def pipe():
    reader, writer = os.pipe2(os.O_NONBLOCK)
    ends = {"reader": reader, "writer": writer}
    yield ends
    for end in ends.values():
        os.close(end)


@pytest.fixture
def watched():
    return {}


@pytest.fixture
def reports(pipe, watched):
    def watch(fd, handler, events):
        assert fd not in watched
        watched[fd] = (handler, events)

    return Reports(pipe["writer"], watch, watched.pop)


def drained(fd):
    data = b""
    try:
        while piece := os.read(fd, 1 << 16):
            data += piece
    except BlockingIOError:
        pass
    return data


def test_a_report_is_one_line(pipe, reports, watched):
    reports.tell("error 0 2 a\nb")
    reports.tell("gone")
    assert drained(pipe["reader"]) == b"error 0 2 a?b\ngone\n"
    assert watched == {}


def test_what_is_not_read_is_kept_and_told_when_there_is_room(pipe, reports, watched):
    lines = [f"heard {number} {'0' * 5_000}" for number in range(40)]
    for line in lines:
        reports.tell(line)
    ((fd, (handler, events)),) = watched.items()
    assert (fd, events) == (pipe["writer"], select.POLLOUT)
    read = b""
    while watched:
        read += drained(pipe["reader"])
        handler()
    read += drained(pipe["reader"])
    assert read.decode().splitlines() == lines


def test_an_agent_that_is_gone_is_told_nothing_more(pipe, reports, watched):
    while not watched:
        reports.tell("x" * 5_000)
    os.close(pipe.pop("reader"))
    handler, _ = watched[pipe["writer"]]
    handler()
    assert watched == {}
    reports.tell("gone")
    assert watched == {}
