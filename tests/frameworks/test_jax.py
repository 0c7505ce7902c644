"""JAX, whose coordinator is at an address of its own."""

from __future__ import annotations

import re

import pytest

FRAMEWORK = "jax"


@pytest.mark.parametrize("size", [2, 4])
def test_an_all_reduce(job, programs, size):
    printed = job(f"--nproc-per-node={size}", programs / "jax_all_reduce.py")
    found = sorted(re.findall(rf"process (\d) of {size}: (\d+)", printed))
    assert found == [(str(rank), str(3 * (2**size - 1))) for rank in range(size)], printed


def test_the_example_goes_on_with_another_number_of_workers(job, examples, tmp_path):
    words = [examples / "train_jax.py", "--directory", tmp_path / "line"]
    assert "2 workers, 2 devices: y = 2." in job("--nproc-per-node=2", *words, "--steps=20")
    assert "3 workers, 3 devices: y = 3.0x + 2.0" in job("--nproc-per-node=3", *words)


def test_a_job_of_which_a_worker_fails_is_restarted(job, programs):
    """JAX waits for all others when it ends, also after a failure: a program has to bound that."""
    printed = job("--nproc-per-node=2", "--max-restarts=1", "--shutdown-timeout=1", programs / "jax_failing_once.py")
    assert sorted(re.findall(r"attempt 1: (\d) done", printed)) == ["0", "1"], printed
