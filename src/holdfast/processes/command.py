"""A set of processes that each run a command."""

from __future__ import annotations

from holdfast.processes.context import PContext, check_text
from holdfast.processes.launch import Launch
from holdfast.worker.injection import with_startup


class SubprocessContext(PContext):
    """Runs ``entrypoint args...`` for each rank, found on PATH. The return values are None.

    Python programs record how they end (`holdfast.worker.hooks`).
    """

    entrypoint: str

    def _launches(self) -> list[Launch]:
        return [
            Launch(
                rank,
                [check_text(f"{self.name}: rank {rank}", str(argument)) for argument in (self.entrypoint, *args)],
                self._environment(rank) if self._is_warm else with_startup(self._environment(rank)),
                self.logs.stdouts[rank],
                self.logs.stderrs[rank],
            )
            for rank, args in sorted(self.args.items())
        ]

    def _return_value(self, rank: int) -> None:
        """None: a command returns only its exit code."""
