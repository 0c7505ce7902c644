"""Programs that start their workers with torch's launcher, below ``holdfast exec``."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

FRAMEWORK = "torch"

pytestmark = pytest.mark.torch

OURS = [(str(rank), "holdfast.errors.recording") for rank in range(2)]


@pytest.fixture
def below(job, programs):
    """Runs a program below ``holdfast exec``, and has both of its workers be holdfast's."""

    def run(*words):
        printed = job(*words, launcher=("holdfast", "exec"), PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        assert sorted(re.findall(r"rank (\d): sum 2, page, (\S+)", printed)) == OURS, printed
        return printed

    return run


def test_torchs_module(below, programs):
    below("python", "-m", "torch.distributed.run", "--nproc-per-node=2", programs / "all_reduce.py")


def test_torchs_command(below, programs):
    below("torchrun", "--standalone", "--nproc_per_node", "2", programs / "all_reduce.py")


def test_torchs_old_module(below, programs):
    below("python", "-m", "torch.distributed.launch", "--use_env", "--nproc_per_node=2", programs / "all_reduce.py")


def test_what_else_torch_makes_of_the_launcher_can_be_imported(job):
    modules = (
        *(
            "torch.distributed.checkpoint._async_process_executor",
            "torch.distributed.checkpoint._experimental.barriers",
        ),
        *("torch.distributed.elastic.control_plane", "torch.distributed.elastic.rendezvous.dynamic_rendezvous"),
        *("torch.distributed.elastic.utils.data", "torch.distributed.elastic.rendezvous.etcd_rendezvous_backend"),
    )
    code = f"import importlib, sys; [importlib.import_module(name) for name in {modules}]"
    code += "; print(sys.modules['torch.distributed.elastic.rendezvous.api'].RendezvousHandler.__module__)"
    assert job(sys.executable, "-c", code, launcher=("holdfast", "exec")) == "holdfast.rendezvous.handler\n"


@pytest.mark.parametrize("kind", ["launch", "agent"])
def test_jobs_that_a_program_builds_from_torchs_parts(job, programs, kind):
    printed = job(sys.executable, programs / "own_agents.py", kind, launcher=("holdfast", "exec"))
    expected = ["torch.distributed.elastic.rendezvous.dynamic_rendezvous", "starts 2 workers"] * (kind == "agent")
    assert printed.splitlines() == [*expected, "{0: 0, 1: 7}"]
