"""How a set of processes ended, as its callers see it."""

from __future__ import annotations

from holdfast.record_types import like_dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from holdfast.errors import ProcessFailure


@like_dataclass
class RunProcsResult:
    """How a set ended: what each process returned, or which ones failed by themselves, and where their output is.

    `terminated` has the exit codes of processes that were stopped, because a sibling failed or the set was closed.
    They are neither successes nor failures. `late_crashes` has the processes that crashed during interpreter shutdown,
    after their program had ended well. They count as successes.
    """

    __hash__ = None  # type: ignore[assignment]  # the fields are mutable

    def __init__(
        self,
        return_values: dict[int, Any] | None = None,
        failures: dict[int, ProcessFailure] | None = None,
        stdouts: dict[int, str] | None = None,
        stderrs: dict[int, str] | None = None,
        terminated: dict[int, int] | None = None,
        late_crashes: dict[int, ProcessFailure] | None = None,
    ) -> None:
        self.return_values = return_values or {}
        self.failures = failures or {}
        self.stdouts = stdouts or {}
        self.stderrs = stderrs or {}
        self.terminated = terminated or {}
        self.late_crashes = late_crashes or {}

    def is_failed(self) -> bool:
        """Whether a process has failed."""
        return bool(self.failures)

    def __repr__(self) -> str:
        return f"RunProcsResult({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RunProcsResult) and vars(self) == vars(other)
