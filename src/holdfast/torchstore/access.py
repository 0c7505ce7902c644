"""Who may use a store: a record without logic, cheap to make before anybody connects."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    Network: TypeAlias = tuple[int, int, int]
    """The length of its addresses in bytes; the bits of the network as a number; the mask as a number."""

ANY = "any"
"""The word for "everybody" in settings."""


class Access:
    """On this machine: the serving user, root, and `users`. From other machines: admitted addresses and `networks`.

    `users` None means all users of this machine, and `networks` None all addresses. `peers` are the job's addresses, in
    network byte order. None means that they are unknown: then every address is admitted, unless there are `networks`.
    The store's thread calls `find_peers` when a client comes from an unknown address. `find_peers` must not block; it
    arranges a call of `TorchStoreServer.admit` with all addresses. The client waits until then.
    """

    __slots__ = ("find_peers", "networks", "peers", "users")

    def __init__(
        self,
        users: frozenset[int] | None = frozenset(),
        networks: tuple[Network, ...] | None = (),
        peers: frozenset[bytes] | None = None,
        find_peers: Callable[[], None] | None = None,
    ) -> None:
        self.users = users
        self.networks = networks
        self.peers = frozenset() if peers is None and networks else peers
        self.find_peers = find_peers

    def of_job(self, peers: frozenset[bytes], find_peers: Callable[[], None] | None = None) -> Access:
        """A copy that admits only `peers` from other machines, and the addresses that `find_peers` finds."""
        return Access(self.users, self.networks, peers, find_peers)
