"""Why an agent's rendezvous is over, as the exception that the agent gets: pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from holdfast.coordination.errors import CoordinationError, StoreRefusedError
from holdfast.errors.tree import HoldfastError, InputError, PlatformError
from holdfast.rendezvous.errors import (
    JobFailedError,
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousGracefulExitError,
    RendezvousTimeoutError,
)
from holdfast.rendezvous.records import EndKind

if TYPE_CHECKING:
    from holdfast.rendezvous.handover import Handover, Left

ETCD_HINT = "; with --rdzv-backend etcd, a job survives this"


class Reasons(Struct, frozen=True):
    """What the messages name: the run, its store (`place`), whether that may return, and the node's patience.

    `who` is what a message about a node that is not let in begins with, if that is not the run id.
    """

    run_id: str
    place: str
    may_return: bool
    join_timeout_s: float
    who: str = ""

    def raise_if_over(self, news: Handover) -> None:
        """Read the news, and raise if the member broke or has left."""
        news.take_in()
        if news.broke is not None:
            raise self.of_error(news.broke.error)
        if news.left is not None:
            raise self.of_leaving(news.left)

    def of_error(self, error: BaseException) -> Exception:
        """The exception for an error that ended the member. An error that nobody expects is a bug."""
        if isinstance(error, StoreRefusedError):
            return RendezvousConnectionError(str(error))
        if isinstance(error, CoordinationError):
            text = str(error)
            return RendezvousConnectionError(text if self.place in text else f"{self.place}: {text}")
        if isinstance(error, HoldfastError):
            return error
        explained = PlatformError(f"bug in holdfast: {type(error).__name__}: {error}")
        explained.__cause__ = error
        return explained

    def of_leaving(self, left: Left) -> Exception:
        """The exception for a node that has left: the job's end, or why the end is unknown."""
        end = left.end
        if end is None:
            return self._without_end(left)
        if end.kind is EndKind.SUCCEEDED and left.has_joined:
            return RendezvousGracefulExitError(end.reason)
        if not left.has_joined:
            return RendezvousClosedError(
                f"run {self.run_id!r} has already ended ({end.kind}: {end.reason}); choose another --rdzv-id"
            )
        if end.failure is not None:
            return JobFailedError(end.reason, end.failure, end.victims, end.ruling)
        return RendezvousClosedError(end.reason)

    def _without_end(self, left: Left) -> Exception:
        hint = "" if self.may_return else ETCD_HINT
        if left.is_refused:
            who = self.who or f"--rdzv-id {self.run_id!r}"
            return InputError(f"{who}: this node is not let in: {left.reason}")
        if left.store_is_gone and left.replaced:
            return RendezvousConnectionError(f"{left.replaced}; the job ended with the old store{hint}")
        if left.store_is_gone:
            return RendezvousConnectionError(
                f"{self.place} was lost with the node that served it, which ends the job{hint}"
            )
        if left.is_cut_off:
            return RendezvousConnectionError(f"{self.unreachable(left.trouble)}{hint}")
        why = f": {left.trouble}" if left.trouble else ""
        return RendezvousTimeoutError(f"{left.reason} (run {self.run_id!r}, {self.place}){why}")

    def unreachable(self, trouble: str) -> str:
        """That the store was not reached in time. `trouble` is the last error, which may name the store itself."""
        text = f"{self.place} could not be reached for {self.join_timeout_s:g} s"
        if not trouble:
            return text
        rest = trouble.removeprefix(f"{self.place} ")
        if rest == trouble:
            return f"{text}: {trouble}"
        reason = rest.removeprefix("does not answer: ")
        return f"{text}: {reason}" if reason != rest else f"{text}: it {rest}"
