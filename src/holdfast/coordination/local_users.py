"""Which users of a machine may meet in a store on its loopback. The kernel says whose a connection is.

Such a store is served in plain text, and may have no token. So both ends look: the server before it greets, and the
client when it was greeted, before it says anything. The client cannot look earlier: the server's socket belongs to
nobody until it is accepted.
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
    """Those who may connect beside the user of this process and root. None are all."""

ROOT_USER = 0
"""It can read and change every process of the machine anyway."""

NOBODY = (
    "no process of this machine is at the other end; if addresses are translated here, --rdzv-conf store_users=any "
    "lets all users in"
)


class LocalUsers:
    """Judges who is at the other end of connections. `own` is one of our sockets, which the kernel must know.

    `can_tell` is False where the kernel cannot be asked: then everybody may connect.
    """

    def __init__(self, own: socket, users: frozenset[int]) -> None:
        self.user = os.geteuid()
        self._users = users | {os.getuid(), self.user, ROOT_USER}
        self._owners = Owners(own)
        self.can_tell = self._owners.can_tell

    def close(self) -> None:
        self._owners.close()

    def stranger(self, connected: socket, name: Address) -> int | None:
        """The user at the other end, `name`, who may not be there; None if it is one who may.

        Raises:
            LookupError: no process of this machine is there.
            OSError: the connection was closed, or the kernel cannot say now.
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
    """Why a client must not speak to the server that it is connected to; "" if it may. OSError as above."""
    judge = LocalUsers(connected, users)
    try:
        user = judge.stranger(connected, connected.getpeername())
    except LookupError as error:
        return str(error)
    finally:
        judge.close()
    return "" if user is None else two_users(server=user, client=judge.user)


def two_users(*, server: int, client: int) -> str:
    """Why two users do not meet, and what to do. It has to fit into what a client accepts before a proof."""
    return (
        f"the store is user {server}'s, and the node that connects is user {client}'s; for another job choose another "
        f"port, for the same one give all nodes --rdzv-conf store_users={server}+{client}"
    )
