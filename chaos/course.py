"""The course of a storm: does what the plan says, waits until the world runs again, and gathers what was told."""

from __future__ import annotations

import json
import shutil
import time
from typing import TYPE_CHECKING

from chaos.faults import FILLER, Faults
from chaos.kinds import ADD_NODE, DELETE_RECORD, FILL_ETCD, KILL_ETCD, KILL_WORKER, KINDS, After, Break
from chaos.storm import NODES, Fault
from chaos.world import GONE_MAX_S, ChaosError, wait_until_ended

if TYPE_CHECKING:
    from collections.abc import Callable

    from chaos.storm import Step
    from chaos.world import Agent, World

LAST_STEPS = 40
"""How many steps the training makes after the last fault."""

STUCK_MAX = 5
"""How often the world may not go on before the storm is given up. Each time is a violation; the job is then started
again, so that one of them does not hide all others.
"""


class Course:
    """One storm on a world. `say` is given a line for each thing that happened."""

    def __init__(self, world: World, slowing: str, say: Callable[[str], None]) -> None:
        self._world = world
        self._faults = Faults(world, slowing)
        self._say = say
        self._nodes = set(range(NODES))
        self._staying: set[Fault] = set()
        self._count = 0
        self._all = sum(len(step.faults) for step in world.plan.steps)
        self._stuck = 0

    def run(self) -> None:
        world = self._world
        began = time.monotonic()
        for node, warm in enumerate(world.plan.warm):
            world.start(node, warm=warm)
        world.settle(self._nodes, new=True, stage="start")
        self._say(f"{NODES} nodes run after {time.monotonic() - began:.1f} s")
        for number, step in enumerate(world.plan.steps):
            try:
                self._step(number, step)
            except ChaosError as error:
                self._stuck += 1
                if self._stuck > STUCK_MAX:
                    raise
                self._say(f"      STUCK: {error}")
                self._recover(number, step)
        self._finish(len(world.plan.steps))

    def _step(self, number: int, step: Step) -> None:
        world = self._world
        for fault in step.undo:
            self._undo(number, fault)
        if not step.faults:
            return
        began, before, lives = time.monotonic(), world.generation, world.settled
        agents = set(world.running.values())
        for fault in step.faults:
            self._do(number, fault)
        self._count += len(step.faults)
        self._see_off([fault.node for fault in step.faults if KINDS[fault.kind].after is After.IDLE])
        if self._settle(number, step, [agent for agent in world.running.values() if agent in agents]):
            came = f"generation {before} → {world.generation}" if world.settled != lives else "no new generation"
        else:
            self._restart(f"{number} restart")
            came = f"the end of the job; job {world.job} runs"
        what = " + ".join(self._named(fault) for fault in step.faults)
        self._say(f"{self._count:4}/{self._all}  {what:<44}  {came}, {time.monotonic() - began:.1f} s")

    def _do(self, number: int, fault: Fault) -> None:
        kind = KINDS[fault.kind]
        self._faults.do(number, fault)
        if fault.kind == ADD_NODE:
            self._nodes.add(fault.node)
        elif kind.after in (After.IDLE, After.RETURNS):
            self._nodes.discard(fault.node)
        elif kind.after is After.STAYS:
            self._staying.add(fault)

    def _settle(self, number: int, step: Step, agents: list[Agent]) -> bool:
        """Wait until the world runs again, with nodes that come back by themselves. False if the job has ended, which
        is decided by those `agents` that were there before.
        """
        world = self._world
        breaks = any(map(_breaks, step.faults))
        may_end = any(KINDS[fault.kind].ends for fault in step.faults)
        if not world.settle(self._nodes, new=breaks, stage=f"{number} do", deciding=agents if may_end else None):
            return False
        returning = [fault for fault in step.faults if KINDS[fault.kind].after is After.RETURNS]
        for fault in returning:
            self._faults.undo(number, fault)
            self._nodes.add(fault.node)
        if returning:
            world.settle(self._nodes, new=True, stage=f"{number} undo")
        return True

    def _restart(self, stage: str) -> None:
        """A new job on the nodes that should run. It goes on with the training where it was saved."""
        world = self._world
        world.clear()
        world.begin_job()
        for node in sorted(self._nodes):
            world.start(node, warm=True)
        world.settle(self._nodes, new=True, stage=stage)

    def _recover(self, number: int, step: Step) -> None:
        """The world did not go on. Undo what is half done, and start the job anew."""
        for fault in step.faults:
            if KINDS[fault.kind].after is After.RETURNS and fault.node not in self._nodes:
                self._faults.undo(number, fault)
                self._nodes.add(fault.node)
        self._restart(f"{number} recovery")

    def _undo(self, number: int, fault: Fault) -> None:
        self._faults.undo(number, fault)
        self._staying.discard(fault)
        if fault.kind != KILL_ETCD:
            self._say(f"      {self._named(fault)} is over")

    def _see_off(self, nodes: list[int]) -> None:
        """Agents that were ended are gone, and so is all that they started."""
        world = self._world
        gone = [agent for agent in world.agents if agent.node in {world.name(node) for node in nodes}]
        for agent in gone:
            if not wait_until_ended(agent, world.observer, GONE_MAX_S + 30):
                world.record.add("stuck", what=f"the agent of {agent.node} does not end")
        for node in nodes:
            world.expect_nothing_on(node)

    def _finish(self, number: int) -> None:
        """All is well again, one more worker is killed, and those that start then see the training to its end."""
        world = self._world
        for fault in sorted(self._staying):
            self._undo(number, fault)
        # Now, when all workers have begun: those that start from here on are the last.
        world.set_goal(f"+{LAST_STEPS}")
        self._faults.do(number, Fault(KILL_WORKER, min(self._nodes)))
        began = time.monotonic()
        world.expect_exit(list(world.running.values()))
        newest = world.observer.newest
        assert newest is not None
        steps = newest.steps
        world.record.add("done", steps=steps)
        self._say(f"the training ended after {steps} steps, {time.monotonic() - began:.1f} s after the last fault")
        for node in range(NODES):
            world.expect_nothing_on(node)

    def _named(self, fault: Fault) -> str:
        if fault.node < 0:
            return fault.kind
        return f"{fault.kind} {self._world.name(fault.node)}"


def gather(world: World) -> None:
    """Take what the agents and the witness wrote into the record, and keep their logs beside it."""
    for line in world.slow.read_text().splitlines():
        world.record.add("slow", **json.loads(line))
    for node in range(NODES):
        for path in sorted(world.disk(node).glob("*/events.jsonl")):
            for line in path.read_text(errors="replace").splitlines():
                try:
                    event = json.loads(line)
                    name, metadata = event["name"], event["metadata"]
                except (ValueError, KeyError):
                    world.record.add("unread", node=world.name(node), line=line[:200])
                    continue
                if name.startswith("holdfast."):
                    details = metadata["details"]
                    if name == "holdfast.stacks":
                        details["is_kept"] = (path.parent / details["file"]).exists()
                    world.record.add(
                        "told",
                        run=path.parent.name,
                        job=int(metadata["run_id"].rpartition("-")[2]),
                        node=world.name(node),
                        name=name.removeprefix("holdfast."),
                        monotonic_s=metadata["monotonic"],
                        details=details,
                    )
        shutil.copytree(
            world.disk(node),
            world.directory / "logs" / world.name(node),
            ignore=lambda _, names: [name for name in names if name.startswith(FILLER) or name == "requests"],  # a pipe
            ignore_dangling_symlinks=True,
        )


def _breaks(fault: Fault) -> bool:
    """Whether the generation ends by it. That of a full etcd does if a worker is killed then; that of a deleted record,
    if it was the generation's own.
    """
    if fault.kind in (FILL_ETCD, DELETE_RECORD):
        return bool(fault.amount) is (fault.kind == FILL_ETCD)
    return KINDS[fault.kind].breaks is not Break.NOTHING
