"""The stacks of workers that are stopped because another one failed.

The agent asks for them just before it stops the workers, for at most `ASK_MAX_S`. The signal needs no help from the
program, and an answer usually takes a fraction of a millisecond. The answers are parsed later, when nothing waits for
them.
"""

from __future__ import annotations

import os
import time

from holdfast.logger import get_logger
from holdfast.processes.interruption import SignalException

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from holdfast.agent.group import WorkerGroup
    from holdfast.agent.run_events import RunEvents
    from holdfast.processes import PContext
    from holdfast.run_directory import RunDirectory
    from holdfast.stacks.dump import Dump
    from holdfast.stacks.grouping import Group
    from holdfast.stacks.parse import Stacks
    from holdfast.stacks.wire import RankStacks

ASK_MAX_S = 0.02
"""How long a stop is delayed at most, so that the workers can answer where they are."""

OVERDUE_ASK_MAX_S = 1.0
"""The same for a worker whose timer has expired. It is late already."""

log = get_logger(__name__)


class Survivors:
    """Collects the stacks of an attempt's workers before they are stopped."""

    def __init__(self, group: WorkerGroup, run_events: RunEvents) -> None:
        self._group = group
        self._run_events = run_events
        self._run_dir: RunDirectory | None = None
        self._context: PContext | None = None
        self._pids: Mapping[int, int] = {}
        self._pages: Mapping[int, str] = {}
        self._ranks: Mapping[int, int] = {}
        self._asked: set[int] = set()
        self._reason = ""
        self._at = 0.0
        self._texts: dict[int, str] = {}
        self._failed: set[int] = set()
        self._elsewhere: dict[int, RankStacks] = {}
        self._dump: Dump | None = None
        self._is_kept = False

    def begin(self, context: PContext, pages: Mapping[int, str], run_dir: RunDirectory | None) -> None:
        """Begin an attempt, and keep what was seen in the last one, if that is not done yet."""
        import holdfast.stacks.asking  # noqa: F401 - when it is needed, there is no time to import it

        self.keep()
        self._context, self._pids, self._pages, self._run_dir = context, context.pids(), pages, run_dir
        self._ranks = {worker.local_rank: worker.global_rank for worker in self._group.workers}
        self._texts, self._dump, self._failed, self._elsewhere = {}, None, set(), {}
        self._reason, self._at = "", 0.0
        self._asked = set()
        self._is_kept = False

    def before_stop(self, local_ranks: list[int]) -> None:
        """Ask the workers that still run where they are: another one failed, and they are about to be stopped."""
        self.take(local_ranks, "a worker failed, so the others were stopped")

    def take(self, local_ranks: Iterable[int], reason: str) -> None:
        """Ask these workers where they are, just before they are stopped. Each is asked once in an attempt.

        Those that were running when the signal reached them are marked: what it does to them is not their failure.
        """
        assert self._context is not None
        now = time.time()
        self._context.disturbed(self._take(local_ranks, reason, ASK_MAX_S, spares_pauses=True), now)

    def take_overdue(self, pids: Collection[int]) -> None:
        """Ask the workers with these pids: their timer has expired, and they are about to be killed for it."""
        local_ranks = [rank for rank, pid in self._pids.items() if pid in pids]
        self._take(local_ranks, "a timer expired", OVERDUE_ASK_MAX_S, spares_pauses=False)

    def _take(self, local_ranks: Iterable[int], reason: str, limit_s: float, *, spares_pauses: bool) -> list[int]:
        wanted = [rank for rank in local_ranks if rank in self._pids and rank not in self._asked]
        self._asked.update(wanted)
        self._reason, self._at = self._reason or reason, self._at or time.time()
        try:
            return self._ask(wanted, limit_s, spares_pauses=spares_pauses)
        except SignalException:
            raise
        except Exception as error:  # noqa: BLE001 - the workers must be stopped, whatever goes wrong here
            log.warning("the workers could not be asked where they are: %s", error)
            return []

    def _ask(self, local_ranks: list[int], limit_s: float, *, spares_pauses: bool) -> list[int]:
        from holdfast.processes.exiting import is_ending
        from holdfast.processes.postmortem import STACKS_SUFFIX
        from holdfast.stacks.asking import (
            GONE,
            STATE,
            WorkerTarget,
            ask_quickly,
            kernel_facts,
            process_state,
        )

        targets = {rank: WorkerTarget(self._pids[rank], self._pages[rank] + STACKS_SUFFIX) for rank in local_ranks}
        answers = ask_quickly(targets, limit_s, spares_pauses=spares_pauses)
        for rank, target in targets.items():
            answer = answers.get(rank)
            if answer is not None and answer.is_whole:
                self._texts[rank] = answer.text()
            elif process_state(target.pid) not in GONE:
                what = "no Python stack" if answer is None else f"no answer within {limit_s * 1000:g} ms"
                self._texts[rank] = f"{STATE}{what}: {kernel_facts(target.pid)}\n"
        return [rank for rank, answer in answers.items() if answer.is_whole or not is_ending(self._pids[rank])]

    def exclude(self, failed: Iterable[int]) -> None:
        """Take in which global ranks have failed: these are no survivors, and their stacks say nothing."""
        self._failed.update(failed)

    def accusation(self) -> str:
        """A sentence about the workers that were not waiting, if the failed ones only lost a peer; "" if unknown."""
        if not self._has_seen():
            return ""
        from holdfast.stacks.judgement import suspects

        return suspects(*self._seen(), self._failed).sentence

    def place_of(self, local_rank: int) -> str:
        """The line of the user's code that a worker was at: "train.py:12 in step"; "" if unknown."""
        if local_rank not in self._texts:
            return ""
        from holdfast.errors.diagnosis import where_in

        return where_in(self._texts[local_rank])

    def where(self) -> list[str]:
        """Where the workers were, one line for each place; empty if none was asked."""
        if not self._has_seen():
            return []
        from holdfast.stacks.judgement import where_lines

        return where_lines(*self._seen())

    def _seen(self) -> tuple[dict[int, Stacks], list[Group]]:
        """The stacks of workers that had not failed, and their groups. A failed worker's stack says nothing."""
        from holdfast.stacks.grouping import group
        from holdfast.stacks.parse import parse

        ranks = self._gathered().ranks
        stacks = {rank: parse(each.text) for rank, each in ranks.items() if rank not in self._failed}
        return stacks, group(stacks)

    def keep(self) -> None:
        """Write the stacks to the run's directory, once."""
        if self._is_kept or self._run_dir is None or not self._has_seen():
            return
        from holdfast.run_directory import stacks_name
        from holdfast.stacks.dump import keep

        self._is_kept = True
        dump = self._gathered()
        name = stacks_name("survivors", self._at)
        try:
            file = keep(dump, self._run_dir, name)
        except OSError as error:
            log.warning("the stacks of the workers that were stopped cannot be kept: %s", error)
            file = ""
        self._run_events.stacks(self._reason, file, (), self.where())

    def _has_seen(self) -> bool:
        return bool(self._texts or self._elsewhere)

    def _gathered(self) -> Dump:
        if self._dump is None:
            from holdfast.stacks.dump import gather

            run_id = self._group.spec.rdzv_handler.get_run_id()
            ranks = {**self._elsewhere, **self.ranks_here()}
            self._dump = gather(run_id, self._reason, self._at, ranks)
        return self._dump

    def ranks_here(self) -> dict[int, RankStacks]:
        """The stacks of this node's workers, by global rank."""
        from holdfast.stacks.remarks import with_remarks
        from holdfast.stacks.wire import RankStacks

        host = os.uname().nodename
        return {
            self._ranks[local_rank]: RankStacks(host, self._pids[local_rank], with_remarks(text))
            for local_rank, text in self._texts.items()
        }

    def add(self, ranks: Mapping[int, RankStacks], reason: str) -> None:
        """Add the stacks of other nodes' workers that will be stopped, too."""
        self._reason, self._at = self._reason or reason, self._at or time.time()
        self._elsewhere.update(ranks)
        self._dump = None
