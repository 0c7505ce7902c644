"""The error that reports which workers failed, which of them first, and why."""

from __future__ import annotations

from holdfast.errors.failure import in_order
from holdfast.errors.summary import summarize
from holdfast.errors.tree import InputError, UserError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.errors.failure import ProcessFailure


class ChildFailedError(UserError):
    """Processes that ran `name` failed. `failures` maps global ranks to their failures, at least one.

    The text is a summary that ends with the root cause (see `get_first_failure`). `victims_elsewhere` is the number of
    workers on other nodes that failed because of it. `reason` is why the job was not restarted.
    """

    def __init__(self, name: str, failures: dict[int, ProcessFailure]) -> None:
        if not failures:
            raise InputError(f"ChildFailedError({name!r}) was given no failure; it needs at least one")
        # Pass the arguments on unchanged: pickle calls the class with them again.
        super().__init__(name, failures)
        self.name = name
        self.failures = failures
        self.victims_elsewhere = 0
        self.reason = ""

    def get_first_failure(self) -> tuple[int, ProcessFailure]:
        """The rank and failure of the root cause: the earliest failure; on a tie, that of the lowest rank.

        Failures that only lost a peer come after all others (see `in_order`).
        """
        return in_order(self.failures)[0]

    def format_msg(self, boarder_delim: str = "=", section_delim: str = "-") -> str:
        """The summary for people: all failures, the root cause last."""
        return summarize(
            self.name,
            self.failures,
            border=boarder_delim,
            rule=section_delim,
            victims_elsewhere=self.victims_elsewhere,
            reason=self.reason,
        )

    def __str__(self) -> str:
        return self.format_msg()
