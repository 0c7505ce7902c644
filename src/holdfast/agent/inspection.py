"""Collect the workers' stacks: for a user, for another node, or because a worker makes no progress.

The first node to ask gathers the stacks of all ranks of all nodes through the store, before anything is stopped. So the
one rank that is elsewhere can be seen.
"""

from __future__ import annotations

import select
import time
from collections import deque
from contextlib import suppress

from holdfast.agent.ranks import place_of
from holdfast.agent.wait import Wait
from holdfast.logger import get_logger
from holdfast.processes.interruption import SignalException
from holdfast.rendezvous.handler import StacksOccasion
from holdfast.run_directory import stacks_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from holdfast.agent.group import WorkerGroup
    from holdfast.agent.hang import Hang
    from holdfast.agent.progress import Hung, Progress
    from holdfast.agent.requests import Requests
    from holdfast.agent.run_events import RunEvents
    from holdfast.processes import PContext
    from holdfast.rendezvous.records import StacksRequest
    from holdfast.run_directory import RunDirectory
    from holdfast.stacks.dump import Dump
    from holdfast.stacks.wire import RankStacks

ANSWER_MAX_S = 20.0
"""How long a node waits for the answers of the others."""

GLANCE_S = 1.0
"""The interval at which that wait checks whether there is still a reason for it, and reads the workers' timers."""

ASK_AGAIN_S = 0.5
"""How long a node waits before it asks again, if another node is asking."""

OTHERS_TURN_S = 60.0
"""How long a node that was asked about a hang leaves it to the asking node to end the attempt."""

TIMEOUT_ANSWER_MAX_S = 3.0
"""How long a node whose worker timed out waiting for a peer waits for the others' answers before it reports the
failure. The report stops their workers.
"""

OTHERS_REQUESTS_MAX = 60
"""How many requests of other nodes a node answers with stacks in `OTHERS_REQUESTS_S`, for each occasion. Each answer
interrupts the workers and is kept in a file.
"""

OTHERS_REQUESTS_S = 60.0
"""The time in which requests of other nodes are counted."""

TOLD = "told"
"""Stands for a node's rank in the key which says that the asking node has reported what it found."""

log = get_logger(__name__)


class Inspection:
    """Inspects one agent's workers, in all attempts. With a `hang_timeout_s` of 0, hangs are not detected.

    An inspection can take half a minute. `meanwhile` is called often enough that no worker that has something for the
    agent waits for longer than `SPY_MAX_S`.
    """

    def __init__(
        self, group: WorkerGroup, run_events: RunEvents, hang_timeout_s: float, meanwhile: Callable[[], object]
    ) -> None:
        self._group = group
        self._meanwhile = meanwhile
        self._run_events = run_events
        self._hang_timeout_s = hang_timeout_s
        self._run_dir: RunDirectory | None = None
        self.requests: Requests | None = None
        self._progress: Progress | None = None
        self._pages: Mapping[int, str] = {}
        self._pids: Mapping[int, int] = {}
        self._began = 0.0
        self._quiet_until = 0.0
        self._asked: list[str] = []
        self._ask_at = 0.0
        self._wanted: StacksRequest | None = None
        self._answered: dict[StacksOccasion, deque[float]] = {occasion: deque() for occasion in StacksOccasion}
        self._hang_name = ""
        self._timeout_name = ""
        self.has_seen_hang = False
        """Whether the stacks of this attempt were collected because of a hang or a timeout, here or on another node."""

    def begin(self, context: PContext, pages: Mapping[int, str], run_dir: RunDirectory | None) -> None:
        """Begin an attempt: its workers have started."""
        self._pages, self._pids = pages, context.pids()
        self._began = time.monotonic()
        self._quiet_until = 0.0
        self._wanted = None
        self.has_seen_hang = False
        if run_dir is not None and self._run_dir is None:
            from holdfast.agent.requests import Requests

            self._run_dir = run_dir
            with suppress(OSError):  # then no requests can be sent, which is no reason to fail
                self.requests = Requests(run_dir.requests)
        if self._hang_timeout_s > 0:
            from holdfast.agent.progress import Progress, WatchedWorker

            watched = {rank: WatchedWorker(pid, pages[rank]) for rank, pid in self._pids.items()}
            self._progress = Progress(self._hang_timeout_s, watched, context.output_bytes, self._began)

    def workers_ended(self) -> None:
        """End an attempt: all its workers have ended. Later requests get no stacks from this node."""
        self._progress, self._pids = None, {}

    def close(self) -> None:
        if self.requests is not None:
            self.requests.close()
            self.requests = None

    def register(self, poll: select.poll) -> None:
        if self.requests is not None and not self._asked:
            poll.register(self.requests, select.POLLIN)

    def wait_s(self) -> float | None:
        """How long until the next look is due without any notification; None if there is none."""
        if self._newest_wish() is not None:  # its notification may have been mistaken for another
            return 0.0
        if self.requests is not None and self.requests.has_waiting and not self._asked:
            return 0.0
        at = self._ask_at if self._asked else float("inf")
        if self._progress is not None:
            at = min(at, max(self._progress.next_look_at, self._quiet_until))
        return None if at == float("inf") else max(0.0, at - time.monotonic())

    def look(self) -> Hang | None:
        """Answer requests, and check whether a worker hangs."""
        wanted, self._wanted = self._newest_wish(), None
        if wanted is not None:
            self._answer(wanted.id, wanted.reason, wanted.occasion)
        if self.requests is not None and not self._asked:
            self._asked = [request.id for request in self.requests.read()]
            self._ask_at = 0.0
        if self._asked and time.monotonic() >= self._ask_at:
            first, *others = self._asked
            found = self._inspect(first, "requested")
            if found is None:
                self._ask_at = time.monotonic() + ASK_AGAIN_S
            else:
                for name in others:
                    self._keep(found[0], name, "requested")
                self._asked = []
        now = time.monotonic()
        if self._progress is None or now < self._quiet_until:
            return None
        hung = self._progress.look(now)
        return self._judge(hung) if hung else None

    # Asking and answering

    def _newest_wish(self) -> StacksRequest | None:
        """Another node's request that is not answered yet."""
        self._wanted = self._group.spec.rdzv_handler.stacks_wanted() or self._wanted
        return self._wanted

    def _inspect(
        self, name: str, reason: str, occasion: StacksOccasion = StacksOccasion.REQUEST
    ) -> tuple[Dump, str] | None:
        """Collect the stacks of all ranks of all nodes. Returns them and the path of their file.

        None if the others cannot be asked now, because another node is asking.
        """
        from holdfast.stacks.dump import gather

        group = self._group
        others = self._others()
        asks = bool(others)
        missing: dict[str, str] = {}
        if asks:
            try:
                if not group.spec.rdzv_handler.ask_for_stacks(name, reason, occasion):
                    return None
            except SignalException:
                raise
            except Exception as error:  # noqa: BLE001 - the store may be what is wrong
                missing["the other nodes"] = f"they could not be asked: {error}"
                asks = False
        ranks = self._ranks_here()
        deadline = time.monotonic() + ANSWER_MAX_S
        for node in others if asks else ():
            found = self._answer_of(name, node, deadline)
            if isinstance(found, str):
                missing[f"node {node}"] = found
            else:
                ranks.update(self._new_ranks(found, ranks))
        if asks and occasion is not StacksOccasion.HANG:  # for a hang one node judges, and that ends the attempt
            self._let_others_ask(name)
        is_complete = not missing and len(others) + 1 == (group.group_world_size or 1)
        ended = self._ended(ranks, is_complete=is_complete)
        dump = gather(group.spec.rdzv_handler.get_run_id(), reason, time.time(), ranks, missing, ended)
        return dump, self._keep(dump, name, reason)

    def _answer(self, name: str, reason: str, occasion: StacksOccasion) -> None:
        from holdfast.stacks.dump import gather

        group = self._group
        answered, now = self._answered[occasion], time.monotonic()
        while answered and answered[0] <= now - OTHERS_REQUESTS_S:
            answered.popleft()
        if len(answered) >= OTHERS_REQUESTS_MAX:
            self._send(name, None)
            return
        answered.append(now)
        ranks = self._ranks_here()
        if occasion is not StacksOccasion.REQUEST:
            self.has_seen_hang = True
        if occasion is StacksOccasion.HANG:
            self._quiet_until = time.monotonic() + OTHERS_TURN_S
        self._send(name, ranks)
        if ranks:
            ended = self._ended(ranks, is_complete=False)
            dump = gather(group.spec.rdzv_handler.get_run_id(), reason, time.time(), ranks, ended=ended)
            self._keep(dump, name, reason)

    def _send(self, name: str, ranks: Mapping[int, RankStacks] | None) -> None:
        """Send the stacks of this node's ranks, or that it refuses to tell them."""
        from holdfast.stacks.wire import REFUSED, encode

        try:
            answer = REFUSED if ranks is None else encode(ranks)
            self._group.store.set(_key(name, self._group.group_rank or 0), answer)
        except SignalException:
            raise
        except Exception as error:  # noqa: BLE001 - the asking node does without
            log.warning("the stacks that another node asked for could not be sent: %s", error)

    def _answer_of(self, name: str, node: int | str, deadline: float) -> dict[int, RankStacks] | str:
        """The stacks of a node's ranks, or the reason why there are none."""
        from holdfast.stacks.wire import decode

        key = _key(name, node)
        while True:
            self._meanwhile()
            left_s = deadline - time.monotonic()
            try:
                self._group.store.wait([key], max(0.0, min(left_s, GLANCE_S)))
                return decode(bytes(self._group.store.get(key)))
            except SignalException:
                raise
            except TimeoutError:
                over = self._group.spec.rdzv_handler.round_over()
                if over is not None:
                    return f"stopped waiting for it: {over.reason}"
                if left_s <= GLANCE_S:
                    return "it did not answer in time"
            except Exception as error:  # noqa: BLE001 - the node or the store may be gone
                return f"it did not answer: {error}"

    def _new_ranks(self, told: Mapping[int, RankStacks], known: Collection[int]) -> dict[int, RankStacks]:
        """The ranks in a node's answer that exist, are not ours, and are not in `known`."""
        mine = {worker.global_rank for worker in self._group.workers}
        world_size = self._group.workers[0].world_size
        return {
            rank: stacks
            for rank, stacks in told.items()
            if rank < world_size and rank not in mine and rank not in known
        }

    def _others(self) -> list[int]:
        """The other nodes; none if there is no way to ask them."""
        group = self._group
        if group.store is None or group.nodes is None or not group.spec.rdzv_handler.shares_stacks:
            return []
        return [node for node in range(group.group_world_size or 1) if node != group.group_rank]

    def _let_others_ask(self, name: str) -> None:
        try:
            self._group.spec.rdzv_handler.stacks_gathered()
            for node in self._others():
                self._group.store.delete_key(_key(name, node))
        except SignalException:
            raise
        except Exception as error:  # noqa: BLE001 - the end of the generation removes them, too
            log.info("the requested stacks could not be removed from the store: %s", error)

    def _ranks_here(self) -> dict[int, RankStacks]:
        from holdfast.processes.postmortem import STACKS_SUFFIX
        from holdfast.stacks.asking import WorkerTarget
        from holdfast.stacks.collect import ranks_here

        targets = {
            worker.global_rank: WorkerTarget(
                self._pids[worker.local_rank], self._pages[worker.local_rank] + STACKS_SUFFIX
            )
            for worker in self._group.workers
            if worker.local_rank in self._pids
        }
        return ranks_here(targets, self._steps(), meanwhile=self._meanwhile)

    def _steps(self) -> dict[int, int]:
        """The step of each worker's last heartbeat, by global rank."""
        from holdfast.agent.shared_memory import read_page
        from holdfast.worker.shared_memory import BEATS, STEP

        pages = {worker.global_rank: read_page(self._pages[worker.local_rank]) for worker in self._group.workers}
        return {rank: page[STEP] for rank, page in pages.items() if page is not None and page[BEATS]}

    def _ended(self, known: Collection[int], *, is_complete: bool) -> list[int]:
        """The ranks without stacks because their process has ended: of all nodes if all answered, else of this node."""
        mine = {worker.global_rank for worker in self._group.workers}
        expected = set(range(self._group.workers[0].world_size)) if is_complete else mine
        return sorted(expected - set(known))

    def _keep(self, dump: Dump, name: str, reason: str) -> str:
        if self._run_dir is None:
            return ""
        from holdfast.stacks.dump import keep
        from holdfast.stacks.judgement import where_lines
        from holdfast.stacks.parse import parse

        try:
            file = keep(dump, self._run_dir, name)
        except OSError as error:
            log.warning("the stacks cannot be kept: %s", error)
            return ""
        where = where_lines({rank: parse(stacks.text) for rank, stacks in dump.ranks.items()}, dump.groups)
        self._run_events.stacks(reason, file, dump.outliers, where)
        return self._run_dir.stacks(name, "txt")

    # Timeouts of collectives

    def ask_after_timeout(self, why: str, here: Mapping[int, RankStacks]) -> dict[int, RankStacks]:
        """Ask where the other nodes' workers are, after a worker timed out waiting for a peer.

        Nothing is stopped on other nodes yet. `here` has the stacks of this node's workers. If several nodes time out
        at once, one of them asks. The others answer, and hold back their own report until it has reported.
        """
        others = self._others()
        if not others:
            return {}
        name = stacks_name("timeout")
        try:
            if not self._group.spec.rdzv_handler.ask_for_stacks(name, f"timeout: {why}", StacksOccasion.TIMEOUT):
                self._leave_it_to_another(here)
                return {}
        except SignalException:
            raise
        except Exception as error:  # noqa: BLE001 - the store may be what is wrong
            log.info("the other nodes could not be asked where their workers are: %s", error)
            return {}
        deadline = time.monotonic() + TIMEOUT_ANSWER_MAX_S
        found: dict[int, RankStacks] = {}
        for node in others:
            answer = self._answer_of(name, node, deadline)
            if not isinstance(answer, str):
                found.update(self._new_ranks(answer, found))
        self._timeout_name = name
        return found

    def timeout_told(self) -> None:
        """The result of `ask_after_timeout` is reported: let the nodes that hold back report theirs."""
        if self._timeout_name:
            try:
                self._group.store.set(_key(self._timeout_name, TOLD), b"")
            except SignalException:
                raise
            except Exception as error:  # noqa: BLE001 - their wait is limited
                log.info("the other nodes could not be told that the stacks were reported: %s", error)
            self._timeout_name = ""

    def _leave_it_to_another(self, here: Mapping[int, RankStacks]) -> None:
        """Wait for the request of the node that asks, answer it, and wait until that node has reported."""
        handler = self._group.spec.rdzv_handler
        deadline = time.monotonic() + TIMEOUT_ANSWER_MAX_S + GLANCE_S
        # The round's end is read first: unread, it would keep the descriptor readable.
        while handler.round_over() is None and time.monotonic() < deadline:
            wanted, self._wanted = self._newest_wish(), None
            if wanted is not None:
                self._send(wanted.id, here)
                self._answer_of(wanted.id, TOLD, deadline)
                return
            wait = Wait()
            wait.add(handler.fileno())
            wait.at_most(self._group.spec.monitor_interval if handler.needs_polling else None)
            wait.until(deadline)
            wait.run()

    # Hangs

    def withdraw(self) -> None:
        """Withdraw a hang: the workers have ended by themselves. Lets others ask again."""
        self._quiet_until = time.monotonic() + ASK_AGAIN_S
        self.has_seen_hang = False
        if self._others():
            self._let_others_ask(self._hang_name)

    def _judge(self, hung: list[Hung]) -> Hang | None:
        """Find the rank to blame: the one that the others wait for, or else the first that made no progress.

        None if another node is asking, or if the generation or the worker has ended meanwhile.
        """
        first = max(hung, key=lambda each: each.since_s)
        ranks = {worker.local_rank: worker.global_rank for worker in self._group.workers}
        reasons = {ranks[each.local_rank]: each.why for each in hung}
        rank = seen = ranks[first.local_rank]
        log.warning("rank %s makes no progress: %s; the stacks of all ranks are collected", rank, first.why)
        self._hang_name = stacks_name("hang")
        found = self._inspect(self._hang_name, f"hang: {first.why}", StacksOccasion.HANG)
        if found is None or self._group.spec.rdzv_handler.round_over() is not None:
            self._quiet_until = time.monotonic() + ASK_AGAIN_S
            return None
        dump, file = found
        if rank not in dump.ranks:  # it has ended; the next look finds out how
            self.withdraw()
            return None
        if dump.outliers:
            rank = dump.outliers[0]
        stacks = dump.ranks.get(rank)
        node_rank, local_rank = self._place_of(rank)
        if rank in reasons:
            why = f"made no progress and was stopped: {reasons[rank]}"
        else:
            why = f"stopped because rank {seen} made no progress: {first.why}"
        from holdfast.agent.hang import Hang, description, hung_failure

        self.has_seen_hang = True
        message = description(why, dump.verdict, file, stacks)
        return Hang(rank, hung_failure(local_rank, message, stacks, time.monotonic() - self._began), node_rank)

    def _place_of(self, rank: int) -> tuple[int | None, int]:
        """A rank's node, None for this one, and its local rank there. Also for workers that have ended."""
        for worker in self._group.workers:
            if worker.global_rank == rank:
                return None, worker.local_rank
        assert self._group.nodes is not None  # otherwise no other node was asked
        return place_of(self._group.nodes, rank)


def _key(name: str, node: int | str) -> str:
    return f"holdfast/stacks/{name}/{node}"
