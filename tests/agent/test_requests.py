from __future__ import annotations

import os
import select

import pytest

from holdfast.agent.requests import LINE_MAX_BYTES, READ_MAX_BYTES, REQUESTS_MAX, Requests


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "requests")


@pytest.fixture
def requests(path):
    opened = Requests(path)
    yield opened
    opened.close()


def write(path, data):
    fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    os.write(fd, data)
    os.close(fd)


def ids(requests):
    return [request.id for request in requests.read()]


def test_a_request_wakes_up_who_waits_and_is_read_once(path, requests):
    assert requests.read() == []
    write(path, b"stacks 20260131-ab_C\n")
    assert select.select([requests], [], [], 60)[0]
    (request,) = requests.read()
    assert (request.kind, request.id) == ("stacks", "20260131-ab_C")
    assert requests.read() == []
    assert not select.select([requests], [], [], 0)[0]


def test_requests_are_taken_from_another_pipe_when_the_first_is_lost(path, requests, tmp_path):
    write(path, b"stacks late\n")
    os.mkdir(tmp_path / "other")
    other = str(tmp_path / "other" / "requests")
    requests.move(other)
    assert not os.path.exists(path)
    write(other, b"stacks 1\n")
    assert select.select([requests], [], [], 60)[0]
    assert ids(requests) == ["1"]


def test_a_pipe_stays_if_there_can_be_no_other(path, requests, tmp_path):
    with pytest.raises(FileNotFoundError):
        requests.move(str(tmp_path / "none" / "requests"))
    write(path, b"stacks 1\n")
    assert ids(requests) == ["1"]


def test_people_come_and_go(path, requests):
    for number in range(3):
        write(path, f"stacks {number}\n".encode())
        assert ids(requests) == [str(number)]


@pytest.mark.parametrize(
    "garbage",
    [b"", b"stacks", b"stacks ", b"stacks ../../etc/passwd", b"stacks a b", b"kill 1", b"stacks " + b"x" * 65, b"\xff"],
)
def test_garbage_is_passed_over(path, requests, garbage):
    write(path, garbage + b"\nstacks good\n")
    assert ids(requests) == ["good"]


def test_a_line_in_two_pieces_is_one(path, requests):
    write(path, b"sta")
    assert ids(requests) == []
    write(path, b"cks whole\n")
    assert ids(requests) == ["whole"]


def test_an_endless_line_is_not_kept(path, requests):
    for _ in range(50):
        write(path, b"x" * 4096)
        requests.read()
        assert len(requests._rest) <= LINE_MAX_BYTES + 1
    write(path, b"\nstacks good\n")
    assert ids(requests) == ["good"]


def test_only_so_many_are_answered_at_a_time_and_none_is_lost(path, requests):
    """Those of clients that have given up must not cost the answer of one that waits behind them."""
    written = [str(number) for number in range(3 * REQUESTS_MAX - 1)]
    write(path, b"".join(b"stacks %s\n" % name.encode() for name in written))
    read = []
    while not read or requests.has_waiting:
        read.append(ids(requests))
    assert [len(each) for each in read] == [REQUESTS_MAX, REQUESTS_MAX, REQUESTS_MAX - 1]
    assert [name for each in read for name in each] == written
    assert ids(requests) == []


def test_what_waits_is_bounded_by_what_one_read_takes(path, requests):
    line = b"stacks x\n"
    lines = READ_MAX_BYTES // len(line)
    for _ in range(3):
        write(path, line * lines)
    read = 0
    while found := ids(requests):
        read += len(found)
        assert len(requests._waiting) <= lines
    assert read == 3 * lines


def test_the_pipe_is_private_and_goes_with_its_owner(path, requests):
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert not os.get_inheritable(requests.fileno())
    requests.close()
    assert not os.path.exists(path)
    requests.close()


def test_a_pipe_that_was_left_over_is_replaced(path):
    os.mkfifo(path)
    requests = Requests(path)
    write(path, b"stacks new\n")
    assert ids(requests) == ["new"]
    requests.close()


def test_a_file_of_that_name_is_nobodys_to_replace(path):
    with open(path, "w") as file:
        file.write("mine")
    with pytest.raises(FileExistsError):
        Requests(path)
    with open(path) as file:
        assert file.read() == "mine"


def test_a_successors_pipe_is_not_removed(path, requests):
    successor = Requests(path)
    requests.close()
    write(path, b"stacks new\n")
    assert ids(successor) == ["new"]
    successor.close()
