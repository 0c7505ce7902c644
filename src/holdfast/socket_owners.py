"""Finds out which user is at the other end of a connection from this machine. The kernel knows.

We ask the kernel for the socket at the other end, by both addresses and ports. Four rules make the answer safe:

* A socket that its process has closed belongs to nobody. The kernel reports it with user 0 and inode 0. So an answer
  counts only if it has an inode.
* Data that the other end sent before it was closed can still be read. So a connection whose other end has no owner is
  rejected, although it has data.
* Another socket may have the same address and port: one that listens, or that is about to connect. So an answer counts
  only in the states that the other end of an accepted connection can have.
* The other end may be reset, and its port reused by another user, before we ask the kernel. Then our own end is closed,
  too. So we check our own end after the answer.

The kernel reports users as the user namespace of this process maps them. It reports an unmapped user as the overflow
user (nobody). So a process that runs as the overflow user in such a namespace cannot tell its own user from others.
"""

from __future__ import annotations

import os
from _socket import AF_INET, AF_INET6, IPPROTO_TCP, TCP_INFO
from errno import ENOENT
from struct import Struct

from holdfast.netlink import SOCK_DIAG, Kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Callable
    from typing import Any, TypeAlias

    Address: TypeAlias = tuple[Any, ...]
    """An address as in the socket module: a host, a port, and for IPv6 a flow and a scope."""

    End: TypeAlias = tuple[bytes, int, int]
    """An IP address in network byte order, 4 or 16 bytes; a port; an interface, or 0."""

_BY_FAMILY = 20
_QUESTION = Struct("=BBxxI")
_PORTS_AND_ADDRESSES = Struct("!HH16s16s")
_INTERFACE_AND_COOKIE = Struct("=IQ")
_ANY_STATE, _ANY_COOKIE = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF
_STATE_AT = 1
_OWNER_AT = 64
_OWNER = Struct("=II")

_ESTABLISHED, _FIN_WAIT1, _FIN_WAIT2, _CLOSE_WAIT, _LISTEN = 1, 4, 5, 8, 10
_PEER_STATES = frozenset((_ESTABLISHED, _FIN_WAIT1, _FIN_WAIT2))
_OUR_STATES = frozenset((_ESTABLISHED, _CLOSE_WAIT))

_TABLES = {4: "/proc/self/net/tcp", 16: "/proc/self/net/tcp6"}
_MAPPED = bytes(10) + b"\xff\xff"
_ROW_STATE, _ROW_USER, _ROW_INODE = 3, 7, 9

OVERFLOW_FILE = "/proc/sys/kernel/overflowuid"
NAMESPACE_FILE = "/proc/self/uid_map"
_OVERFLOW_USER = 65_534
_WHOLE_NAMESPACE = ["0", "0", "4294967295"]


class Owners:
    """Asks the kernel who owns a socket: through netlink, or if that is unavailable, by its table of all connections.

    `can_tell` is False if both are unavailable, or if the answer would be ambiguous.
    """

    def __init__(self, own: socket) -> None:
        """`own` is a listening or connected socket of this process. It tests whether the kernel answers."""
        self._kernel: Kernel | None = None
        self._find: Callable[[End, End], tuple[int, int, int] | None] | None = None
        ours = end_of(own.getsockname())
        try:
            other = end_of(own.getpeername())
        except OSError:  # it is listening
            other = (bytes(len(ours[0])), 0, 0)
        for find in (self._ask_kernel, _look_up):
            try:
                found = find(ours, other)
            except OSError:
                continue
            if found is not None and (found[0] == _LISTEN or found[0] in _OUR_STATES):
                self._find = find
                break
        self.can_tell = self._find is not None and not _is_anybody(os.geteuid())

    def close(self) -> None:
        if self._kernel is not None:
            self._kernel.close()
            self._kernel = None

    def user_at(self, connected: socket, peer: Address) -> int | None:
        """The user who owns the socket `peer` at the other end of a connection; None if nobody on this machine does.

        Raises:
            OSError: the kernel cannot answer, for example because it is out of memory.
        """
        assert self._find is not None, "nobody can tell"
        found = self._find(end_of(peer), end_of(connected.getsockname()))
        if found is None or not is_alive(connected):
            return None
        state, user, inode = found
        return user if inode and state in _PEER_STATES else None

    def _ask_kernel(self, one: End, other: End) -> tuple[int, int, int] | None:
        """State, user and inode of the socket from `one` to `other`, or else of the one that listens at `one`."""
        if self._kernel is None:
            self._kernel = Kernel(SOCK_DIAG)
        (address, port, interface), (other_address, other_port, _) = one, other
        family = AF_INET if len(address) == 4 else AF_INET6  # noqa: PLR2004 - the bytes of an address
        question = (
            _QUESTION.pack(family, IPPROTO_TCP, _ANY_STATE)
            + _PORTS_AND_ADDRESSES.pack(port, other_port, address, other_address)
            + _INTERFACE_AND_COOKIE.pack(interface, _ANY_COOKIE)
        )
        try:
            answer = self._kernel.ask(_BY_FAMILY, question)
        except OSError as error:
            if error.errno == ENOENT:
                return None
            raise
        user, inode = _OWNER.unpack_from(answer, _OWNER_AT)
        return answer[_STATE_AT], user, inode


def is_alive(connected: socket) -> bool:
    """Whether the other end of a connection can still receive: the connection was not reset."""
    return connected.getsockopt(IPPROTO_TCP, TCP_INFO, 1)[0] in _OUR_STATES


def is_open(connected: socket) -> bool:
    """Whether a connection is open: the other end has not begun to close it."""
    return connected.getsockopt(IPPROTO_TCP, TCP_INFO, 1)[0] == _ESTABLISHED


def end_of(address: Address) -> End:
    """One end of a connection. An IPv4 address that is mapped to IPv6 becomes a plain IPv4 address."""
    from _socket import inet_pton

    host = address[0].partition("%")[0]
    packed = inet_pton(AF_INET6 if ":" in host else AF_INET, host)
    packed = packed.removeprefix(_MAPPED)
    return packed, address[1], address[3] if len(address) > 3 else 0  # noqa: PLR2004 - only IPv6 addresses have a scope


def _look_up(one: End, other: End) -> tuple[int, int, int] | None:
    """Like `Owners._ask_kernel`, but reads the table in /proc."""
    ends = [(one[0], other[0])]
    if len(one[0]) == 4:  # noqa: PLR2004 - the bytes of an address; the socket may be one for IPv6
        ends.append((_MAPPED + one[0], _MAPPED + other[0]))
    listening = None
    for address, other_address in ends:
        here, there = _written(address, one[1]), _written(other_address, other[1])
        with open(_TABLES[len(address)], "rb") as table:
            for row in table:
                if here not in row:
                    continue
                words = row.split()
                state, user, inode = int(words[_ROW_STATE], 16), int(words[_ROW_USER]), int(words[_ROW_INODE])
                if words[1] == here and words[2] == there and state != _LISTEN:
                    return state, user, inode
                if words[1] == here and state == _LISTEN:
                    listening = state, user, inode
    return listening


def _written(address: bytes, port: int) -> bytes:
    """An address and a port as written in the kernel's table: words of 4 bytes in the machine's byte order."""
    from sys import byteorder

    words = [address[at : at + 4] for at in range(0, len(address), 4)]
    if byteorder == "little":
        words = [word[::-1] for word in words]
    return b"%s:%04X" % (b"".join(words).hex().upper().encode(), port)


def _is_anybody(user: int) -> bool:
    """Whether the kernel reports other users by this user's number, too, because the user namespace lacks them."""
    try:
        with open(OVERFLOW_FILE) as file:
            overflow = int(file.read())
    except (OSError, ValueError):
        overflow = _OVERFLOW_USER
    if user != overflow:
        return False
    try:
        with open(NAMESPACE_FILE) as file:
            return file.read().split() != _WHOLE_NAMESPACE
    except OSError:
        return True
