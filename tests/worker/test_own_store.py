"""torch's rendezvous in a worker: the agent's store at the agent's port, a store of the program's own elsewhere."""

from __future__ import annotations

import types

import pytest

from holdfast.worker import own_store

RENDEZVOUS = """
import os

def _torchelastic_use_agent_store():
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"

def _create_c10d_store(hostname, port, rank, world_size):
    if world_size < 1:
        raise ValueError("nobody")
    return "of the agent" if _torchelastic_use_agent_store() else f"opened by {rank}"
"""
"""What `adjust` relies on of torch's module: the names, the parameters, and that the one function asks the other."""

AGENT = {"TORCHELASTIC_USE_AGENT_STORE": "True", "MASTER_PORT": "29500"}


@pytest.fixture
def rendezvous(monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    module = types.ModuleType("rendezvous")
    exec(RENDEZVOUS, vars(module))
    return module


@pytest.fixture
def package(programs):
    """A stand-in for torch beside the programs."""
    for name in ("torch/__init__.py", "torch/distributed/__init__.py"):
        programs.file(name, "")
    return programs.file("torch/distributed/rendezvous.py", RENDEZVOUS)


def test_only_the_agents_port_is_the_agents(rendezvous):
    own_store.adjust(rendezvous, "29500")
    assert rendezvous._create_c10d_store("localhost", 29500, 0, 2) == "of the agent"
    assert rendezvous._create_c10d_store("localhost", 29501, 0, 2) == "opened by 0"
    assert rendezvous._create_c10d_store("localhost", 29500, rank=0, world_size=2) == "of the agent"


def test_a_store_that_cannot_be_opened_changes_nothing_for_the_next(rendezvous):
    own_store.adjust(rendezvous, "29500")
    with pytest.raises(ValueError, match="nobody"):
        rendezvous._create_c10d_store("localhost", 29501, 0, 0)
    assert rendezvous._torchelastic_use_agent_store()


def test_without_the_agents_store_every_port_is_the_programs(rendezvous, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "False")
    own_store.adjust(rendezvous, "29500")
    assert rendezvous._create_c10d_store("localhost", 29500, 0, 2) == "opened by 0"


@pytest.mark.parametrize(
    "change",
    [
        "del _create_c10d_store",
        "del _torchelastic_use_agent_store",
        "def _create_c10d_store(port, hostname): pass",
        "_create_c10d_store = len",
    ],
)
def test_a_module_that_looks_different_stays_as_it_is(rendezvous, change):
    exec(change, vars(rendezvous))
    before = dict(vars(rendezvous))
    own_store.adjust(rendezvous, "29500")
    assert vars(rendezvous) == before


def test_without_the_number_of_a_port_it_stays_as_it_is(rendezvous):
    before = dict(vars(rendezvous))
    own_store.adjust(rendezvous, "")
    assert vars(rendezvous) == before


ASK = """
import sys
before = len(sys.meta_path)
from torch.distributed import rendezvous
assert len(sys.meta_path) == before - int(sys.argv[1]), "who waited for the import is gone"
assert "exec_module" not in vars(rendezvous.__spec__.loader)
print([rendezvous._create_c10d_store("localhost", port, 0, 2) for port in (29500, 29501)])
"""


def test_a_program_that_imports_it_has_it_adjusted(programs, package):
    ended = programs.worker(programs.file("script.py", ASK), "1", **AGENT)
    assert (ended.stderr, ended.stdout) == ("", "['of the agent', 'opened by 0']\n")


@pytest.mark.parametrize("more", [{"TORCHELASTIC_USE_AGENT_STORE": "False"}, {"HOLDFAST_HOOKS": "0"}])
def test_where_it_is_not_asked_for_nothing_waits_for_the_import(programs, package, more):
    env = AGENT | more
    ended = programs.worker(programs.file("script.py", ASK), "0", **env)
    store = "of the agent" if env["TORCHELASTIC_USE_AGENT_STORE"] == "True" else "opened by 0"
    assert (ended.stderr, ended.stdout) == ("", f"{[store, store]}\n")


def test_a_program_without_torch_is_told_so(programs):
    programs.file("torch/__init__.py", "")
    programs.file("torch/distributed/__init__.py", "")
    ended = programs.worker(programs.file("script.py", "import torch.distributed.rendezvous"), **AGENT)
    assert ended.message == "ModuleNotFoundError: No module named 'torch.distributed.rendezvous'"


WITH_TORCH = """
import os, socket
import torch.distributed as dist
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1)
print(dist.get_world_size())
dist.destroy_process_group()
"""


@pytest.mark.torch
def test_torch_opens_a_store_at_the_programs_own_port(programs):
    ended = programs.worker(programs.file("script.py", WITH_TORCH), **AGENT, MASTER_ADDR="127.0.0.1")
    assert (ended.code, ended.stdout) == (0, "1\n"), ended.stderr
