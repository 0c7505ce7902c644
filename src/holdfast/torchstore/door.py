"""Which clients are let in: the kernel names the user of a local client; other machines are known by address."""

from __future__ import annotations

import os
import time
from _socket import AF_INET, AF_INET6, SOCK_DGRAM, socket
from struct import Struct

from holdfast.netlink import ROUTE, Kernel, attribute
from holdfast.socket_owners import Owners, end_of, is_open

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.socket_owners import Address
    from holdfast.torchstore.access import Access
    from holdfast.torchstore.telling import Teller

ADMITTED, UNDECIDED, REFUSED = "admitted", "undecided", "refused"
"""The answers of `Door.judge`. Undecided clients are judged again after `Door.admit`."""

LOOK_EVERY_S = 10.0
"""How often clients from unknown addresses make the store look up the job's addresses again, at most."""

ROOT_USER = 0
"""root can read and change every process of the machine anyway. Containers that share the machine's network often run
as root, for example a worker started by `docker run --network host`.
"""

_GET_ROUTE = 26
_DESTINATION = 1
_ROUTE_QUESTION = Struct("=BB10x")
_ROUTE_KIND_AT, _LOCAL = 7, 2

_IPV4_BYTES = 4
_IPV4_LOOPBACK = 127
_IPV6_LOOPBACK = bytes(15) + b"\1"


class Door:
    """Decides which clients of `listener` are let in, and logs those that it refuses. For one thread."""

    def __init__(self, listener: socket, access: Access, teller: Teller) -> None:
        self._user = os.geteuid()
        self._users = None if access.users is None else access.users | {os.getuid(), self._user, ROOT_USER}
        self._networks = access.networks
        self._peers = access.peers
        self._find_peers = access.find_peers
        self._is_looking = False
        self._look_again_at = 0.0
        self._owners = None if self._users is None else Owners(listener)
        self._routes: Kernel | None = None
        self._tell = teller.tell

    def close(self) -> None:
        if self._owners is not None:
            self._owners.close()
        if self._routes is not None:
            self._routes.close()
            self._routes = None

    def admit(self, peers: frozenset[bytes]) -> None:
        """Set the addresses of the job. They are not looked up again for `LOOK_EVERY_S`."""
        self._peers = peers
        self._look_again_at = time.monotonic() + LOOK_EVERY_S
        self._is_looking = False

    def judge(self, connected: socket, name: Address) -> str:
        """Whether a client may use the store. Raises OSError if it is gone, or the kernel has no answer now."""
        address = end_of(name)[0]
        if self._is_own(address):
            return self._judge_user(connected, name)
        return self._judge_address(address, name[0])

    # Users of this machine

    def _judge_user(self, connected: socket, name: Address) -> str:
        if self._users is None or self._owners is None:
            return ADMITTED
        if not self._owners.can_tell:
            self._tell(
                "users",
                "the kernel does not tell which user connects to the workers' store, so every user of this machine may "
                "use it; --rdzv-conf store_users=any allows this explicitly",
            )
            return ADMITTED
        user = self._owners.user_at(connected, name)
        if user in self._users:
            return ADMITTED
        if user is not None:
            self._tell(
                user,
                f"the workers' store refuses user {user} of this machine, because the store belongs to user "
                f"{self._user}; if workers of this job run as user {user}, let them in: --rdzv-conf store_users={user}",
            )
        elif is_open(connected):
            # The connection is open, so it was not just closed: the kernel knows it under other addresses.
            self._tell(
                "translated",
                f"the workers' store refuses a connection from {name[0]}, an address of this machine, because no "
                "process on this machine owns the other end; if this machine uses NAT, let all its users in: "
                "--rdzv-conf store_users=any",
            )
        return REFUSED

    def _is_own(self, address: bytes) -> bool:
        """Whether an address belongs to this machine."""
        if (address[0] == _IPV4_LOOPBACK and len(address) == _IPV4_BYTES) or address == _IPV6_LOOPBACK:
            return True
        family = AF_INET if len(address) == _IPV4_BYTES else AF_INET6
        try:
            if self._routes is None:
                self._routes = Kernel(ROUTE)
            question = _ROUTE_QUESTION.pack(family, len(address) * 8) + attribute(_DESTINATION, address)
            return self._routes.ask(_GET_ROUTE, question)[_ROUTE_KIND_AT] == _LOCAL
        except OSError:
            return _can_be_bound(family, address)

    # Other machines

    def _judge_address(self, address: bytes, written: str) -> str:
        peers = self._peers
        if self._networks is None or peers is None or address in peers or self._is_in_network(address):
            return ADMITTED
        if self._is_looking:
            return UNDECIDED
        if self._find_peers is not None and time.monotonic() >= self._look_again_at:
            self._is_looking = True
            self._find_peers()
            return UNDECIDED
        self._tell(
            address,
            f"the workers' store refuses {written}, which is not an address of this job's machines; if one of them "
            f"connects from there, let it in: --rdzv-conf store_peers={written} (or a network, or any)",
        )
        return REFUSED

    def _is_in_network(self, address: bytes) -> bool:
        number = int.from_bytes(address)
        return any(size == len(address) and number & mask == bits for size, bits, mask in self._networks or ())


def _can_be_bound(family: int, address: bytes) -> bool:
    """Whether an address belongs to this machine, where routes cannot be queried: only own addresses can be bound."""
    from _socket import inet_ntop

    probe = socket(family, SOCK_DGRAM)
    try:
        probe.bind((inet_ntop(family, address), 0))
    except OSError:
        return False
    finally:
        probe.close()
    return True
