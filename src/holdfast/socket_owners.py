"""Which user is at the other end of a connection that begins on this machine, by the kernel's own word.

The kernel is asked for the socket at the other end, by both addresses and ports. Four things make the answer safe:

* A socket that its process has closed belongs to nobody. The kernel then says "user 0" and "inode 0". So an answer
  counts only with an inode.
* What the other end sent before it was closed can still be read. So a connection whose other end has no owner is of no
  use, although it has data.
* A socket that listens, or is about to connect, is another one that has the same address and port. So an answer counts
  only in the states that the other end of an accepted connection can have.
* The other end may be reset, and its port given to another user's connection, before the kernel is asked. Then our own
  end is closed, too. So our own end is looked at after the answer.

Users are told as the user namespace of this process has them. One that it does not have is told as the overflow user
(nobody), so who is that user himself, in a namespace of his own, cannot tell others from himself.
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
    """As the socket module has it: a host, a port, and for IPv6 a flow and a scope."""

    End: TypeAlias = tuple[bytes, int, int]
    """An IP address in the order of the network, with 4 or 16 bytes; a port; an interface, or 0."""

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
    """Asks the kernel: through netlink, or where that is not to be had, in its table of all connections.

    `can_tell` is False where neither is there, or where the answer would say nothing.
    """

    def __init__(self, own: socket) -> None:
        """`own` is a socket of this process that listens or is connected: who does not find that one finds none."""
        self._kernel: Kernel | None = None
        self._find: Callable[[End, End], tuple[int, int, int] | None] | None = None
        ours = end_of(own.getsockname())
        try:
            other = end_of(own.getpeername())
        except OSError:  # it listens
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
        """The user whose socket `peer` is, at the other end of a connection. None if it is nobody's on this machine.

        Raises:
            OSError: the kernel had no memory for an answer, say.
        """
        assert self._find is not None, "nobody can tell"
        found = self._find(end_of(peer), end_of(connected.getsockname()))
        if found is None or not is_alive(connected):
            return None
        state, user, inode = found
        return user if inode and state in _PEER_STATES else None

    def _ask_kernel(self, one: End, other: End) -> tuple[int, int, int] | None:
        """State, user and inode of the socket at `one` that is connected to `other`, or else listens at `one`."""
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
    """Whether the other end of a connection can still hear us: it was not reset."""
    return connected.getsockopt(IPPROTO_TCP, TCP_INFO, 1)[0] in _OUR_STATES


def is_open(connected: socket) -> bool:
    """Whether the other end of a connection has not begun to close it."""
    return connected.getsockopt(IPPROTO_TCP, TCP_INFO, 1)[0] == _ESTABLISHED


def end_of(address: Address) -> End:
    """One end of a connection. An IPv4 address is one, also in the form that sockets for IPv6 show it in."""
    from _socket import inet_pton

    host = address[0].partition("%")[0]
    packed = inet_pton(AF_INET6 if ":" in host else AF_INET, host)
    packed = packed.removeprefix(_MAPPED)
    return packed, address[1], address[3] if len(address) > 3 else 0  # noqa: PLR2004 - IPv6's have a scope


def _look_up(one: End, other: End) -> tuple[int, int, int] | None:
    """As `Owners._ask_kernel`, from the table that the kernel writes for people."""
    ends = [(one[0], other[0])]
    if len(one[0]) == 4:  # noqa: PLR2004 - the bytes of an address; a socket for IPv6 may be behind it
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
    """An address and a port as the kernel's table has them: words of 4 bytes in the machine's own order."""
    from sys import byteorder

    words = [address[at : at + 4] for at in range(0, len(address), 4)]
    if byteorder == "little":
        words = [word[::-1] for word in words]
    return b"%s:%04X" % (b"".join(words).hex().upper().encode(), port)


def _is_anybody(user: int) -> bool:
    """Whether the kernel calls others by this user's number, too: those that the user namespace does not have."""
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
