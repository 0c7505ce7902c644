"""A real training on nodes that come and go ends as if nothing had happened.

`examples/train_ddp.py` runs while a worker is killed, an agent is killed, a node is added and one is removed, at
moments and in an order that a seed decides. HOLDFAST_TEST_SEED=N replays one.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from job_nodes import DEADLINE_S, HOLDFAST
from meeting_places import PORT, TOKEN
from training_history import notable, problems, steps_that_count

from holdfast.processes.file_changes import Inotify

pytestmark = [pytest.mark.root, pytest.mark.torch]

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "train_ddp.py"

STEPS = 300
BATCH = 64
PAUSE_S = 0.02
"""After each step: a node that is added has to be there before the training ends."""

LONGEST_CALM = 30
"""How many steps there are at most between a start and the next fault. A node is added in less than the rest takes."""

IN_GOOD_ORDER = ("add_a_node", "remove_a_node")
"""Where workers are asked to stop first. They save the step they are at."""

IN_MODIFY = 0x2


class Training:
    """The example, on nodes of a network. The first node is always in it: it serves the store."""

    def __init__(self, network, directory):
        self.nodes = network.nodes
        self.agents = {}
        self._idle = list(self.nodes)
        self._directory = directory
        self._history = directory / "spirals" / "history.jsonl"
        self._history.parent.mkdir()
        self._history.touch()

    def facts(self):
        *lines, _ = self._history.read_text().split("\n")
        return [json.loads(line) for line in lines]

    def start(self, node):
        """Add a node."""
        self._idle.remove(node)
        flags = ["--nnodes=1:4", "--nproc-per-node=1", "--max-restarts=3", "--rdzv-id=spirals", "--rdzv-backend=c10d"]
        flags += [f"--rdzv-endpoint={self.nodes[0].address}:{PORT}", "--rdzv-conf=last_call_timeout=5"]
        words = ["--directory", self._history.parent, "--steps", STEPS, "--checkpoint-every", 15, "--pause", PAUSE_S]
        with open(self._directory / f"{node.hostname}.log", "wb") as log:
            self.agents[node] = node.run(
                [*HOLDFAST, *flags, EXAMPLE, *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._directory,
                env=environment(self._directory),
            )

    # What can befall it. Each returns by how many workers the world changes.

    def add_a_node(self, chance):
        self.start(chance.choice(self._idle))
        return 1

    def remove_a_node(self, chance):
        self._end_an_agent(chance, signal.SIGTERM)
        return -1

    def kill_an_agent(self, chance):
        self._end_an_agent(chance, signal.SIGKILL)
        return -1

    def kill_a_worker(self, chance):
        os.kill(chance.choice([pid for node in self.agents for pid in workers(node)]), signal.SIGKILL)
        return 0

    def _end_an_agent(self, chance, signum):
        node = chance.choice([node for node in self.agents if node is not self.nodes[0]])
        agent = self.agents.pop(node)
        agent.send_signal(signum)
        agent.wait(DEADLINE_S)
        self._idle.append(node)

    # What is waited for

    def wait_for_start(self, world, after):
        """Until so many workers go on, which they had not after so many facts; nobody else runs then."""
        self._wait(
            lambda facts: any(fact.get("resumed_at") is not None and fact["world"] == world for fact in facts[after:]),
            f"a world of {world}",
        )
        assert [node for node in self._idle if workers(node)] == []

    def wait_for_steps(self, count):
        """Until so many steps were made since the last start."""

        def are_there(facts):
            starts = [place for place, fact in enumerate(facts) if "resumed_at" in fact]
            return sum("step" in fact for fact in facts[starts[-1] :]) >= count

        self._wait(are_there, f"{count} steps")

    def wait_for_end(self):
        return [agent.wait(DEADLINE_S) for agent in self.agents.values()]

    def _wait(self, condition, what):
        deadline = time.monotonic() + DEADLINE_S
        changes = Inotify()
        try:
            while True:
                changes.watch_once(str(self._history), IN_MODIFY)
                if condition(self.facts()):
                    return
                left = deadline - time.monotonic()
                assert left > 0, f"no sight of {what} within {DEADLINE_S} s\n{self.describe()}"
                select.select([changes.fd], [], [], left)
                changes.read()
        finally:
            changes.close()

    def describe(self):
        """All that is known, for whoever reads why a test failed."""
        logs = [f"{path.name}:\n{path.read_text()[-3000:]}" for path in sorted(self._directory.glob("*.log"))]
        return "\n".join([*map(str, notable(self.facts())), *logs])


def environment(directory):
    """This process's, without what would steer a job."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PET_", "TORCH", "HOLDFAST_"))}
    return {**kept, "HOLDFAST_TOKEN": TOKEN, "TMPDIR": str(directory), "OMP_NUM_THREADS": "1"}


def workers(node):
    """The processes of a node that have a rank."""
    found = []
    for pid in node.pids():
        try:
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if any(variable.startswith(b"RANK=") for variable in variables):
            found.append(pid)
    return found


def order_of_faults(chance):
    """One of each kind, in an order in which each is possible: two nodes are there, and one must stay."""
    kinds = ["kill_a_worker", "kill_an_agent", "add_a_node", "remove_a_node"]
    change = {"kill_a_worker": 0, "kill_an_agent": -1, "add_a_node": 1, "remove_a_node": -1}
    while True:
        chance.shuffle(kinds)
        if min(itertools.accumulate((change[kind] for kind in kinds), initial=2)) > 0:
            return kinds


# What the history must be like


def steps_made_twice(facts):
    """How many of the steps of the last start but one the last has to make again."""
    start = max(place for place, fact in enumerate(facts) if "resumed_at" in fact)
    made = [fact["step"] for fact in facts[:start] if "step" in fact]
    return made[-1] + 1 - facts[start]["resumed_at"]


def replay(steps, directory):
    """The same steps in the same worlds, undisturbed.

    DDP makes its first step with other buckets than the next, and so adds up what more than two workers have in another
    order: where they were started, they are here, too.
    """

    def group(fact):
        return fact["world"], fact["generation"] if fact["world"] > 2 else None

    for (world, _), part in itertools.groupby(steps, key=group):
        last = list(part)[-1]["step"]
        words = ["--directory", directory, "--steps", str(last + 1)]
        subprocess.run(
            [sys.executable, "-m", "holdfast", "run", f"--nproc-per-node={world}", EXAMPLE, *words],
            env=environment(directory.parent),
            stdout=subprocess.DEVNULL,
            timeout=DEADLINE_S,
            check=True,
        )


NUMBERS = """
import json, sys, torch
saved = torch.load(sys.argv[1])
found = {f"network {name}": value.tolist() for name, value in saved["network"].items()}
for number, state in saved["optimizer"]["state"].items():
    found |= {f"optimizer {number} {name}": value.tolist() for name, value in state.items()}
json.dump([saved["next_step"], found], sys.stdout)
"""


def numbers(checkpoint):
    """The next step, and all numbers of a checkpoint by where they are in it."""
    told = subprocess.run(
        [sys.executable, "-c", NUMBERS, checkpoint], stdout=subprocess.PIPE, timeout=DEADLINE_S, check=True
    )
    return json.loads(told.stdout)


def test_a_training_that_is_disturbed_ends_like_one_that_is_not(network, tmp_path):
    seed = int(os.environ.get("HOLDFAST_TEST_SEED") or random.randrange(10**6))
    print(f"HOLDFAST_TEST_SEED={seed}")
    chance = random.Random(seed)
    training = Training(network(4), tmp_path)
    world = 2
    for node in training.nodes[:world]:
        training.start(node)
    training.wait_for_start(world, after=0)
    for fault in order_of_faults(chance):
        training.wait_for_steps(chance.randint(1, LONGEST_CALM))
        known = len(training.facts())
        print(f"{fault} after {known} facts")
        world += getattr(training, fault)(chance)
        training.wait_for_start(world, after=known)
        if fault in IN_GOOD_ORDER:
            assert steps_made_twice(training.facts()) == 0, training.describe()
    assert training.wait_for_end() == [0] * world, training.describe()

    facts = training.facts()
    assert problems(facts, STEPS, BATCH) == [], notable(facts)
    steps = steps_that_count(facts)
    replay(steps, tmp_path / "replay")
    next_step, disturbed = numbers(tmp_path / "spirals" / "checkpoint.pt")
    undisturbed_next_step, undisturbed = numbers(tmp_path / "replay" / "checkpoint.pt")
    assert next_step == undisturbed_next_step == STEPS
    assert disturbed == undisturbed
