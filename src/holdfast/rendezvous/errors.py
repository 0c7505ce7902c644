"""Errors of a rendezvous."""

from __future__ import annotations

from holdfast.errors.tree import Category, HoldfastError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.rendezvous.records import Failure


class RendezvousError(HoldfastError):
    """The nodes could not meet because of a host or the network."""

    category = Category.INFRASTRUCTURE


class RendezvousClosedError(RendezvousError):
    """The rendezvous is closed for good: the job has ended."""


class RendezvousTimeoutError(RendezvousError):
    """Not enough nodes came in time."""


class RendezvousConnectionError(RendezvousError):
    """The store where nodes meet cannot be reached."""


class RendezvousStateError(RendezvousError):
    """A record in the store where nodes meet is malformed."""


class RendezvousGracefulExitError(RendezvousError):
    """This node is not needed, and may leave as if it had succeeded."""


class JobFailedError(RendezvousClosedError):
    """The job has ended because a worker failed, on this node or another, and there is no restart.

    `victims` is the number of other workers that failed with it, and `ruling` says why the job was not restarted.
    """

    def __init__(self, message: str, failure: Failure, victims: int = 0, ruling: str = "") -> None:
        super().__init__(message)
        self.failure = failure
        self.victims = victims
        self.ruling = ruling
