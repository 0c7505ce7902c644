"""What can go wrong when nodes meet."""

from __future__ import annotations

from holdfast.errors.tree import Category, HoldfastError


class RendezvousError(HoldfastError):
    """Nodes could not meet: a host, or the network between them."""

    category = Category.INFRASTRUCTURE


class RendezvousClosedError(RendezvousError):
    """The rendezvous is closed for good: the job has ended."""


class RendezvousTimeoutError(RendezvousError):
    """Not enough nodes came in time."""


class RendezvousConnectionError(RendezvousError):
    """The place where nodes meet cannot be reached."""


class RendezvousStateError(RendezvousError):
    """What is written at the place where nodes meet cannot be understood."""


class RendezvousGracefulExitError(RendezvousError):
    """This node was not needed, and may leave as if it had succeeded."""
