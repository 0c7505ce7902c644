"""Questions to the kernel, which answers at once."""

from __future__ import annotations

import errno
import os
import socket
from struct import pack

import pytest

from holdfast.netlink import ROUTE, SOCK_DIAG, Kernel, attribute, attributes

GET_LINK = 18
NAME_OF_LINK = 3
LINK_HEADER_BYTES = 16


@pytest.fixture
def kernel():
    made = Kernel(ROUTE)
    yield made
    made.close()


def link(index):
    return pack("=BxHiII", socket.AF_UNSPEC, 0, index, 0, 0)


def name_in(body):
    return dict(attributes(body, LINK_HEADER_BYTES))[NAME_OF_LINK].rstrip(b"\0").decode()


def test_a_question_with_one_answer(kernel):
    index = socket.if_nametoindex("lo")
    assert name_in(kernel.ask(GET_LINK, link(index))) == "lo"


def test_a_question_with_any_number_of_answers(kernel):
    names = [name_in(body) for body in kernel.ask_all(GET_LINK, link(0))]
    assert sorted(names) == sorted(name for _, name in socket.if_nameindex())


def test_an_answer_that_nobody_read_is_not_taken_for_the_next(kernel):
    kernel._send(GET_LINK, link(socket.if_nametoindex("lo")), 1)
    with pytest.raises(OSError, match=os.strerror(errno.ENODEV)):
        kernel.ask(GET_LINK, link(1 << 30))


def test_what_the_kernel_has_not_is_an_error_of_its_number(kernel):
    with pytest.raises(OSError, match=os.strerror(errno.ENODEV)) as problem:
        kernel.ask(GET_LINK, link(1 << 30))
    assert problem.value.errno == errno.ENODEV


def test_a_question_of_another_family_is_refused(kernel):
    diagnosis = Kernel(SOCK_DIAG)
    try:
        with pytest.raises(OSError, match=r"."):
            list(diagnosis.ask_all(GET_LINK, link(0)))
    finally:
        diagnosis.close()


def sockets():
    paths = {fd: os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")}
    return {int(fd) for fd, path in paths.items() if "/socket:" in path}


def test_no_child_inherits_the_socket_and_it_can_be_closed():
    before = sockets()
    kernel = Kernel(ROUTE)
    try:
        (fd,) = sockets() - before
        assert not os.get_inheritable(fd)
    finally:
        kernel.close()
    assert sockets() == before


def test_attributes_are_read_as_they_are_written():
    data = b"head" + attribute(1, b"abcd") + attribute(2, b"") + attribute(3, b"12345678")
    assert list(attributes(data, 4)) == [(1, b"abcd"), (2, b""), (3, b"12345678")]


@pytest.mark.parametrize("data", [b"", b"\1", b"\0\0\1\0", b"\xff\xff\1\0ab", b"\1\0\1\0" * 3])
def test_attributes_that_are_cut_or_lie_about_their_length_come_to_an_end(data):
    assert len(list(attributes(data, 0))) <= 3
