"""What the processes of a network namespace have open: sockets that listen, ports that are held, pipes with a name."""

from __future__ import annotations

import ctypes
import ipaddress
import os
import socket
import stat
import struct
from contextlib import suppress
from typing import NamedTuple

_LISTEN = "0A"
_ACCEPTS = 0x10000
_SYS_PIDFD_GETFD = 438

_syscall = ctypes.CDLL(None, use_errno=True).syscall


class Listening(NamedTuple):
    """A socket that takes connections; the address of a Unix socket is its path, and its port 0."""

    family: str
    address: str
    port: int
    pids: frozenset[int]


def listening(pids: list[int]) -> list[Listening]:
    """All that listens in the namespace of these processes, and which of them hold it."""
    holders = _holders(pids)
    found = []
    for family in ("tcp", "tcp6"):
        for words in _table(pids[0], family):
            if words[3] == _LISTEN:
                address, port = _address(words[1])
                found.append(Listening(family, address, port, holders.get(int(words[9]), frozenset())))
    for words in _table(pids[0], "unix"):
        if int(words[3], 16) & _ACCEPTS:
            path = words[7] if len(words) > 7 else ""
            found.append(Listening("unix", path, 0, holders.get(int(words[6]), frozenset())))
    # A datagram has no connection: whoever is bound receives.
    for family in ("udp", "udp6", "raw", "raw6"):
        for words in _table(pids[0], family):
            address, port = _address(words[1])
            found.append(Listening(family, address, port, holders.get(int(words[9]), frozenset())))
    return found


def held_ports(pid: int) -> list[tuple[str, int]]:
    """Where a process has TCP sockets that are bound, and neither listen nor are connected."""
    found = []
    pidfd = os.pidfd_open(pid)
    try:
        for fd, target in _descriptors(pid):
            if target.startswith("socket:"):
                copy = _syscall(_SYS_PIDFD_GETFD, pidfd, fd, 0)
                if copy < 0:
                    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
                with socket.socket(fileno=copy) as each:
                    if each.family in (socket.AF_INET, socket.AF_INET6) and not _is_used(each):
                        found.append(each.getsockname()[:2])
    finally:
        os.close(pidfd)
    return found


def named_pipes(pid: int) -> list[str]:
    """The paths of the named pipes that a process has open."""
    found = []
    for _, target in _descriptors(pid):
        with suppress(OSError):
            if target.startswith("/") and stat.S_ISFIFO(os.stat(target).st_mode):
                found.append(target)
    return found


def unix_pairs(pid: int) -> int:
    """How many Unix sockets a process has that have no name."""
    inodes = {int(target[8:-1]) for _, target in _descriptors(pid) if target.startswith("socket:")}
    return sum(int(words[6]) in inodes and len(words) == 7 for words in _table(pid, "unix"))


def _is_used(each: socket.socket) -> bool:
    if each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        return True
    try:
        each.getpeername()
    except OSError:
        return each.getsockname()[1] == 0
    return True


def _descriptors(pid: int) -> list[tuple[int, str]]:
    found = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):
            found.append((int(fd), os.readlink(f"/proc/{pid}/fd/{fd}")))
    return found


def _holders(pids: list[int]) -> dict[int, frozenset[int]]:
    holders: dict[int, set[int]] = {}
    for pid in pids:
        with suppress(FileNotFoundError):
            for _, target in _descriptors(pid):
                if target.startswith("socket:"):
                    holders.setdefault(int(target[8:-1]), set()).add(pid)
    return {inode: frozenset(found) for inode, found in holders.items()}


def _table(pid: int, name: str) -> list[list[str]]:
    with open(f"/proc/{pid}/net/{name}") as file:
        return [line.split() for line in file.readlines()[1:]]


def _address(text: str) -> tuple[str, int]:
    """From the kernel's way of writing: words of four bytes in the machine's order."""
    digits, _, port = text.partition(":")
    words = [int(digits[at : at + 8], 16) for at in range(0, len(digits), 8)]
    return str(ipaddress.ip_address(struct.pack(f"={len(words)}I", *words))), int(port, 16)
