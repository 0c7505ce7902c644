"""A set of processes that each run a command."""

from __future__ import annotations

from holdfast.processes.arguments import check_text, environment
from holdfast.processes.context import PContext
from holdfast.processes.launch import Launch
from holdfast.worker.injection import with_startup


class SubprocessContext(PContext):
    """Runs ``entrypoint args...`` for each rank, found on PATH. The return values are None.

    Python programs record how they end (`holdfast.worker.hooks`).
    """

    entrypoint: str

    def _launches(self) -> list[Launch]:
        return [self._launch(rank) for rank in sorted(self.args)]

    def _launch(self, rank: int) -> Launch:
        command = [check_text(f"{self.name}: rank {rank}", str(word)) for word in (self.entrypoint, *self.args[rank])]
        env = environment(self.name, rank, self.envs[rank])
        return Launch(
            rank,
            command,
            env if self._is_warm else with_startup(env),
            self.logs.stdouts[rank],
            self.logs.stderrs[rank],
        )

    def _return_value(self, rank: int) -> None:
        """None: a command returns only its exit code."""
