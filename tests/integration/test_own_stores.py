"""Programs of torch with a store at a port of their own, beside the one that the agent serves."""

from __future__ import annotations

import contextlib
import random
import socket

import pytest
from failing_jobs import SCRIPT, FailingJobs, Way

pytestmark = pytest.mark.torch

PROGRAM = """
import datetime, os, sys
import torch, torch.distributed as dist

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
AGENT_PORT, OWN_PORT = os.environ["MASTER_PORT"], sys.argv[1]

def meet(method, **options):
    timeout = datetime.timedelta(seconds=float(os.environ.get("PATIENCE_S", "60")))
    dist.init_process_group("gloo", init_method=method, timeout=timeout, **options)
    x = torch.ones(1)
    dist.all_reduce(x)
    assert x.item() == WORLD
    dist.destroy_process_group()
    sys.stdout.write(f"met {method.partition(':')[0]}\\n")
    sys.stdout.flush()

RANKS = {"rank": RANK, "world_size": WORLD}
"""

OWN = 'meet(f"tcp://127.0.0.1:{OWN_PORT}", **RANKS)\n'
AGENTS = 'meet("env://")\n'
AGENTS_BY_ADDRESS = 'meet(f"tcp://127.0.0.1:{AGENT_PORT}", **RANKS)\n'
CHANGED = 'os.environ["MASTER_PORT"] = OWN_PORT\nmeet("env://")\n'


@pytest.fixture
def jobs(tmp_path):
    made = FailingJobs(tmp_path)
    yield made
    made.close()


@pytest.fixture
def own_port():
    """A free port below those that the kernel gives out by itself."""
    while True:
        port = random.randrange(20_000, 30_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def run(jobs, port, text, *options, **environment):
    way = Way("", f"{PROGRAM}{text}", "", workers=2, options=options, words=(SCRIPT, str(port)))
    way.environment.update(environment)
    return jobs.run(way)


@pytest.mark.parametrize("options", [(), ("--warm",), ("--run-path",), ("--store-host", "rank0")], ids=str)
def test_the_agents_store_and_one_of_the_program(jobs, own_port, options):
    outcome = run(jobs, own_port, AGENTS + OWN, *options)
    assert outcome.exit_code == 0, outcome
    assert sorted(outcome.stdout.split()) == ["env"] * 2 + ["met"] * 4 + ["tcp"] * 2


def test_the_agents_store_by_its_address(jobs, own_port):
    outcome = run(jobs, own_port, AGENTS_BY_ADDRESS)
    assert outcome.exit_code == 0, outcome


def test_a_master_port_that_the_program_sets(jobs, own_port):
    outcome = run(jobs, own_port, CHANGED)
    assert outcome.exit_code == 0, outcome


def test_a_port_that_is_taken_is_an_error_and_not_another_store(jobs):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        outcome = run(jobs, taken.getsockname()[1], OWN, PATIENCE_S="5")
    assert outcome.exit_code == 1
    assert "EADDRINUSE" in outcome.stderr


def test_without_hooks_torch_is_left_alone(jobs, own_port):
    """As under torchrun: nobody opens the store, and all wait until their timeout."""
    outcome = run(jobs, own_port, OWN, HOLDFAST_HOOKS="0", PATIENCE_S="2")
    assert outcome.exit_code == 1
    assert "DistNetworkError" in outcome.stderr


def test_a_finder_waits_for_torch_and_is_gone_then(jobs, own_port):
    text = """
assert not [finder for finder in sys.meta_path if "Torch" in type(finder).__name__]
module = sys.modules["torch.distributed.rendezvous"]
assert module._create_c10d_store.__module__ != module.__name__
assert type(module.__loader__).__name__ == "SourceFileLoader" and "exec_module" not in vars(module.__loader__)
"""
    outcome = run(jobs, own_port, text)
    assert outcome.exit_code == 0, outcome
