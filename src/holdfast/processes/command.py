"""A set of processes that each run a command."""

from __future__ import annotations

from holdfast.processes.arguments import check_text, environment
from holdfast.processes.context import SHUTDOWN_TIMEOUT_S, PContext, remark_on_numa
from holdfast.processes.launch import Launch
from holdfast.worker.injection import with_startup

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from holdfast.processes.logs import LogsSpecs


class SubprocessContext(PContext):
    """Runs ``entrypoint args...`` for each rank, found on PATH. The return values are None.

    Python programs record how they end (`holdfast.worker.hooks`).
    """

    entrypoint: str

    def __init__(
        self,
        name: str,
        entrypoint: str,
        args: Mapping[int, tuple[Any, ...]],
        envs: Mapping[int, Mapping[str, str]],
        logs_specs: LogsSpecs,
        log_line_prefixes: dict[int, str] | None = None,
        numa_options: object = None,
        duplicate_stdout_filters: list[str] | None = None,
        duplicate_stderr_filters: list[str] | None = None,
        shutdown_timeout: float = SHUTDOWN_TIMEOUT_S,
    ) -> None:
        super().__init__(
            *(name, entrypoint, args, envs, logs_specs, log_line_prefixes),
            duplicate_stdout_filters=duplicate_stdout_filters,
            duplicate_stderr_filters=duplicate_stderr_filters,
            shutdown_timeout=shutdown_timeout,
        )
        remark_on_numa(name, numa_options)

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
