"""What can go wrong when nodes meet."""

from __future__ import annotations

from holdfast.errors.tree import Category, HoldfastError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.rendezvous.records import Failure


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


class JobFailedError(RendezvousClosedError):
    """The job has ended because a worker failed, on this node or another, and there is no restart. `victims` is how
    many more failed with it, and `ruling` why it was not started again.
    """

    def __init__(self, message: str, failure: Failure, victims: int = 0, ruling: str = "") -> None:
        super().__init__(message)
        self.failure = failure
        self.victims = victims
        self.ruling = ruling
