"""The error that says which workers failed, which of them first, and why."""

from __future__ import annotations

from holdfast.errors.failure import in_order
from holdfast.errors.summary import summarize
from holdfast.errors.tree import InputError, UserError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.errors.failure import ProcessFailure


class ChildFailedError(UserError):
    """Processes that ran `name` failed; `failures` has them by global rank, at least one.

    Its text is a summary that ends with the root cause: the failure that came first. `victims_elsewhere` is how many
    workers of other nodes failed because of it, and `reason` why the job was not started again.
    """

    def __init__(self, name: str, failures: dict[int, ProcessFailure]) -> None:
        if not failures:
            raise InputError(f"ChildFailedError({name!r}) was given no failure; it needs at least one")
        # The arguments are handed on as they are, since pickle calls the class with them again.
        super().__init__(name, failures)
        self.name = name
        self.failures = failures
        self.victims_elsewhere = 0
        self.reason = ""

    def get_first_failure(self) -> tuple[int, ProcessFailure]:
        """The rank and the failure that came first; of equally early ones, that of the lowest rank."""
        return in_order(self.failures)[0]

    def format_msg(self, boarder_delim: str = "=", section_delim: str = "-") -> str:
        """The summary that people read: all failures, the cause last."""
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
