"""PyTorch Lightning, which knows torchrun by its variables."""

from __future__ import annotations

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
