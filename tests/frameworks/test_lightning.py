"""PyTorch Lightning, which knows torchrun by its variables."""

from __future__ import annotations

import re
import sys

import pytest

FRAMEWORK = "lightning"

pytestmark = pytest.mark.torch


def test_the_example_fits_in_a_store_of_its_own(job, examples, tmp_path):
    """As the page has it, the agent serves the store."""
    printed = job(
        "--store-host=rank0", "--nproc-per-node=2", examples / "train_lightning.py", "--directory", tmp_path / "line"
    )
    assert "2 workers: y = 3.0x + 2.0" in printed


def test_the_example_goes_on_with_another_number_of_workers(job, examples, tmp_path):
    words = [examples / "train_lightning.py", "--directory", tmp_path / "line"]
    assert "2 workers: y = 2." in job("--nproc-per-node=2", *words, "--epochs=5")
    assert "1 workers: y = 3.0x + 2.0" in job("--nproc-per-node=1", *words)


def test_its_own_launcher_starts_holdfast(job, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import os, lightning\n"
        "fabric = lightning.Fabric()\n"
        "os.write(1, f'worker {fabric.global_rank}: {\"HOLDFAST_WORKER_PAGE\" in os.environ}\\n'.encode())\n"
    )
    words = ["-m", "lightning.fabric.cli", "--accelerator=cpu", "--devices=2", "--strategy=ddp", script]
    printed = job(sys.executable, *words, launcher=("holdfast", "exec"))
    assert sorted(re.findall(r"worker (\d): True", printed)) == ["0", "1"], printed
