"""Which users of a machine may meet in a store on its loopback. The kernel tells who owns a connection.

Such a store is served in plain text, and may have no token. So both ends check: the server before it greets, and the
client after the greeting, before it sends anything. The client cannot check earlier: nobody owns the server's socket
until it is accepted.
"""

from __future__ import annotations

import os

from holdfast.socket_owners import Owners, is_alive, is_open

TYPE_CHECKING = False
if TYPE_CHECKING:
    from socket import socket
    from typing import TypeAlias

    from holdfast.socket_owners import Address

    Users: TypeAlias = frozenset[int] | None
    """The users who may connect, besides root and the user of this process. None means all users."""

ROOT_USER = 0
"""root can read and change every process of the machine anyway."""

NOBODY = (
    "no process on this machine owns the other end; if this machine uses NAT, --rdzv-conf store_users=any lets all "
    "users in"
)


class LocalUsers:
    """Checks which user is at the other end of a connection. `own` is one of our sockets, which the kernel must know.

    `can_tell` is False if the kernel cannot be asked: then every user may connect.
    """

    def __init__(self, own: socket, users: frozenset[int]) -> None:
        self.user = os.geteuid()
        self._users = users | {os.getuid(), self.user, ROOT_USER}
        self._owners = Owners(own)
        self.can_tell = self._owners.can_tell

    def close(self) -> None:
        self._owners.close()

    def stranger(self, connected: socket, name: Address) -> int | None:
        """The user at the other end, `name`, if that user may not connect; None if they may.

        Raises:
            LookupError: no process of this machine is there.
            OSError: the connection was closed, or the kernel cannot answer now.
        """
        if not self.can_tell:
            if not is_alive(connected):
                raise ConnectionResetError("the connection was closed")
            return None
        user = self._owners.user_at(connected, name)
        if user is None:
            if is_open(connected):
                raise LookupError(NOBODY)
            raise ConnectionResetError("the connection was closed")
        return None if user in self._users else user


def why_not_served_by(connected: socket, users: frozenset[int]) -> str:
    """Why a client must not talk to its server; "" if it may. Raises OSError as `LocalUsers.stranger` does."""
    judge = LocalUsers(connected, users)
    try:
        user = judge.stranger(connected, connected.getpeername())
    except LookupError as error:
        return str(error)
    finally:
        judge.close()
    return "" if user is None else two_users(server=user, client=judge.user)


def two_users(*, server: int, client: int) -> str:
    """Why two users do not meet, and what to do. The text fits into what a client accepts before a proof."""
    return (
        f"the store belongs to user {server}, and the connecting node to user {client}; for another job choose another "
        f"port, for the same job give all nodes --rdzv-conf store_users={server}+{client}"
    )
