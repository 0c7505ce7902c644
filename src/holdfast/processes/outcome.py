"""What the exits of a set mean: which processes succeeded, which failed by themselves, and which were stopped.

It is judged from the keeper's reports and from what processes have left behind. The first spawn does not need this
module, and a set that succeeds does not need what explains failures.
"""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from holdfast.errors import ProcessFailure
    from holdfast.errors.diagnosis import Evidence
    from holdfast.processes.keeper_client import Exit, KeeperClient
    from holdfast.processes.logs import LogsDest
    from holdfast.processes.oom import OomWatch
    from holdfast.processes.result import RunProcsResult


class Outcome:
    """The judgement on a set that runs or has ended.

    `ended_well` says whether the program of a rank ended well before its process ended. With `strict_exit`, a crash
    after that counts as a failure.
    """

    def __init__(
        self,
        keeper: KeeperClient,
        envs: Mapping[int, Mapping[str, str]],
        logs: LogsDest,
        ended_well: Callable[[int], bool],
        *,
        strict_exit: bool,
    ) -> None:
        self._keeper = keeper
        self._envs = envs
        self._logs = logs
        self._ended_well = ended_well
        self._strict_exit = strict_exit
        self._is_late: dict[int, bool] = {}
        self._disturbed: dict[int, float] = {}
        self.stopped_at = float("inf")
        """The Unix time from which processes may have ended because they were stopped."""
        self.oom_watch: OomWatch | None = None

    def disturbed(self, ranks: Iterable[int], timestamp: float) -> None:
        """Mark processes that got a signal at this Unix time: a later exit is not their failure."""
        for rank in ranks:
            self._disturbed.setdefault(rank, timestamp)

    @property
    def is_stopping(self) -> bool:
        return self.stopped_at < float("inf")

    def is_over(self) -> bool:
        """Whether all processes have ended, or one has failed."""
        exits = dict(self._keeper.exits)  # the fence's thread may add to it
        return self._keeper.is_gone or len(exits) == len(self._envs) or not self._have_succeeded()

    def is_success(self) -> bool:
        """Whether all processes have ended, and have finished their work."""
        return len(self._keeper.exits) == len(self._envs) and self._have_succeeded()

    def first_failure(self) -> ProcessFailure | None:
        """The failure that ended the set, as soon as it is known."""
        exits = dict(self._keeper.exits)  # the fence's thread may add to it
        failed = [
            (exit_.timestamp, rank)
            for rank, exit_ in exits.items()
            if self._on_its_own(rank, exit_) and not self._has_succeeded(rank, exit_)
        ]
        if not failed:
            return None
        _, rank = min(failed)
        return self._failure(rank, exits[rank])

    def collect(self, return_value: Callable[[int], Any]) -> RunProcsResult:
        """The result of a set that is gone. `return_value` reads that of a rank."""
        from holdfast.processes.result import RunProcsResult

        result = RunProcsResult(stdouts=self._logs.stdouts, stderrs=self._logs.stderrs)
        for rank, exit_ in sorted(dict(self._keeper.exits).items()):
            if self._is_late_crash(rank, exit_):
                result.late_crashes[rank] = self._failure(rank, exit_)
            if self._on_its_own(rank, exit_) and self._has_succeeded(rank, exit_):
                try:
                    result.return_values[rank] = return_value(rank)
                except Exception as error:  # noqa: BLE001 - unpickling a value runs the user's code
                    from holdfast.errors import ProcessFailure

                    unread = f"its return value cannot be read: {error!r}"
                    result.failures[rank] = ProcessFailure.of(self._failure(rank, exit_).record.replace(message=unread))
            elif exit_.code != 0 and (self._on_its_own(rank, exit_) or self._had_failed(rank, exit_)):
                result.failures[rank] = self._failure(rank, exit_)
            else:
                result.terminated[rank] = exit_.code
        if len(result.return_values) < len(self._envs):
            result.return_values = {}
        return result

    def close(self) -> None:
        if self.oom_watch is not None:
            self.oom_watch.close()

    def _have_succeeded(self) -> bool:
        """Whether those that have ended have succeeded."""
        return all(self._has_succeeded(rank, exit_) for rank, exit_ in dict(self._keeper.exits).items())

    def _has_succeeded(self, rank: int, exit_: Exit) -> bool:
        """Whether a process finished its work. It may crash after that, during interpreter shutdown."""
        return exit_.code == 0 or self._is_late_crash(rank, exit_)

    def _is_late_crash(self, rank: int, exit_: Exit) -> bool:
        if self._strict_exit or exit_.code >= 0 or not exit_.on_its_own:
            return False
        if rank not in self._is_late:
            from holdfast.errors.diagnosis import CRASH_SIGNALS

            self._is_late[rank] = -exit_.code in CRASH_SIGNALS and self._ended_well(rank)
        return self._is_late[rank]

    def _had_failed(self, rank: int, exit_: Exit) -> bool:
        """Whether a stopped process had recorded its failure before the stop: a slow exit does not excuse it."""
        from holdfast.errors.error_file import thread_in

        failure = self._failure(rank, exit_)
        if not self._has_spoken(rank, failure) or thread_in(failure.error_file_data):
            return False  # the main thread may run for hours after another thread failed
        return failure.record.timestamp <= self._disturbed.get(rank, self.stopped_at)

    def _on_its_own(self, rank: int, exit_: Exit) -> bool:
        return exit_.on_its_own and rank not in self._disturbed

    def _failure(self, rank: int, exit_: Exit) -> ProcessFailure:
        from holdfast.errors import ProcessFailure

        return ProcessFailure(
            local_rank=rank,
            pid=self._keeper.pids.get(rank, self._keeper.keeper_pid),  # the keeper may be killed before it starts it
            exitcode=exit_.code,
            error_file=self._logs.error_files[rank],
            evidence=self._evidence(rank, exit_),
        )

    def _has_spoken(self, rank: int, failure: ProcessFailure) -> bool:
        """Whether the process recorded its failure: in its error file, or in the spare file if the disk was full."""
        from holdfast.errors.error_file import spare_path

        spare = spare_path(self._envs[rank])
        return failure.has_error_file() or (spare != "" and os.path.exists(spare))

    def _evidence(self, rank: int, exit_: Exit) -> Evidence:
        """The evidence about a failed process, beside its error file."""
        from holdfast.errors.diagnosis import Evidence
        from holdfast.errors.error_file import spare_path
        from holdfast.processes.postmortem import crash_stacks, end_of_log

        log_file = self._logs.stderrs[rank]
        if log_file == os.devnull:
            log_file = ""
        out_of_memory = ""
        if exit_.code == -signal.SIGKILL and exit_.on_its_own and not self._keeper.keeper_died and self.oom_watch:
            out_of_memory = self.oom_watch.verdict(self._keeper.pids[rank])
        killed_with_keeper = ""
        if self._keeper.keeper_died:
            killed_with_keeper = f"killed with its keeper, PID {self._keeper.keeper_pid}, which was killed from outside"
        return Evidence(
            stderr=end_of_log(log_file) if log_file else self._keeper.heard.get(rank, ""),
            stacks=crash_stacks(self._envs[rank]),
            max_rss_kib=exit_.max_rss_kib,
            out_of_memory=out_of_memory,
            log_file=log_file,
            spare_file=spare_path(self._envs[rank]),
            exited_at=exit_.timestamp,
            ran_s=exit_.monotonic - self._keeper.started_at,
            killed_with_keeper=killed_with_keeper,
        )
