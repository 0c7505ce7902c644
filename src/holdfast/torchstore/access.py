"""Who may use a store: a record without decisions, cheap to make before anybody connects."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    Network: TypeAlias = tuple[int, int, int]
    """How many bytes its addresses have; the bits of the network, as a number; which bits these are, as another."""

ANY = "any"
"""What people write for everybody."""


class Access:
    """On this machine the user who serves, root, and `users`. From elsewhere those whose addresses are admitted.

    `users` of None are all of this machine, and `networks` of None all addresses. `peers` are the addresses that belong
    to the job, in the order of the network; None if nobody knows, and then all do, unless `networks` says otherwise.
    `find_peers` is called in the thread of the store when an address comes that is not among them: it has
    `TorchStoreServer.admit` told of all that there are, and must not wait for that. Clients from such addresses do.
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
        """The same, and nobody from elsewhere but `peers`, and those that are found."""
        return Access(self.users, self.networks, peers, find_peers)
