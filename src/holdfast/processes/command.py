"""A set of processes that each run a command."""

from __future__ import annotations

import os

from holdfast.processes.context import PContext
from holdfast.processes.keeper import Launch


class SubprocessContext(PContext):
    """Runs ``entrypoint args...`` for each rank, found on PATH. The return values are None."""

    entrypoint: str

    def _launches(self) -> list[Launch]:
        return [
            Launch(
                rank,
                [self.entrypoint, *map(str, args)],
                {**os.environ, **self.envs[rank]},
                self.logs.stdouts[rank],
                self.logs.stderrs[rank],
            )
            for rank, args in sorted(self.args.items())
        ]

    def _return_value(self, rank: int) -> None:
        """A command returns nothing but its exit code."""
