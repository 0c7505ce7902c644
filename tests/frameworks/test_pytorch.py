"""PyTorch's own ways to train on many workers."""

from __future__ import annotations

import json
import re

import pytest

FRAMEWORK = "torch"

pytestmark = pytest.mark.torch

SHORT = ("--steps", "40", "--checkpoint-every", "20")


def history(directory):
    with open(directory / "history.jsonl") as file:
        return [json.loads(line) for line in file]


def test_ddp_on_four_workers(job, programs, store_host):
    printed = job(store_host, "--nproc-per-node=4", programs / "data_parallel.py")
    found = re.findall(r"rank (\d) of 4: sum 6, same True", printed)
    assert sorted(found) == ["0", "1", "2", "3"], printed


def test_fsdp_on_two_workers(job, programs):
    printed = job("--nproc-per-node=2", programs / "fully_sharded.py")
    found = re.findall(r"rank (\d): holds a part True, fully_shard True, wrapped True", printed)
    assert sorted(found) == ["0", "1"], printed


def test_the_example_goes_on_with_another_number_of_workers_and_needs_torch_alone(job, examples, tmp_path, monkeypatch):
    (tmp_path / "without" / "numpy").mkdir(parents=True)
    (tmp_path / "without" / "numpy" / "__init__.py").write_text(
        "raise ModuleNotFoundError('not installed', name='numpy')\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "without"))
    words = [examples / "train_ddp.py", "--directory", tmp_path / "spirals"]
    job("--nproc-per-node=2", *words, "--steps", "20", "--checkpoint-every", "20")
    assert "step 40: " in job("--nproc-per-node=3", *words, *SHORT)
    facts = history(tmp_path / "spirals")
    assert [fact["step"] for fact in facts if "step" in fact] == list(range(40))
    assert {fact["samples"] for fact in facts if "step" in fact} == {64}
    assert [(fact["resumed_at"], fact["world"]) for fact in facts if "resumed_at" in fact] == [(0, 2), (20, 3)]
    assert [fact["saved"] for fact in facts if "saved" in fact] == [20, 40]


def test_the_example_runs_under_torchrun_too(job, examples, tmp_path):
    words = [examples / "train_ddp.py", "--directory", tmp_path / "spirals", *SHORT]
    assert "step 40: " in job("--nproc-per-node=2", *words, launcher=("torch.distributed.run",))
