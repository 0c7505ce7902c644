"""Hugging Face Accelerate. A machine without a GPU has to be named as such: that is its rule under any launcher."""

from __future__ import annotations

import re
import sys

import pytest

FRAMEWORK = "accelerate"

pytestmark = pytest.mark.torch


def test_the_script_with_which_accelerate_tests_a_launcher(job, store_host):
    script = "accelerate.test_utils.scripts.test_script"
    printed = job(store_host, "--nproc-per-node=2", "-m", script, ACCELERATE_USE_CPU="true")
    assert "DistributedType.MULTI_CPU  Backend: gloo" in printed
    assert sorted(re.findall(r"Process index: (\d)\nLocal process index: (\d)", printed)) == [("0", "0"), ("1", "1")]
    assert "Training yielded the same results on one CPU or distributed setup with batch split." in printed


def test_the_example_goes_on_with_another_number_of_workers(job, examples, tmp_path):
    words = [examples / "train_accelerate.py", "--directory", tmp_path / "line"]
    assert "2 workers: y = 2." in job("--nproc-per-node=2", *words, "--epochs=5")
    assert "1 workers: y = 3.0x + 2.0" in job("--nproc-per-node=1", *words)
    assert len(list((tmp_path / "line").iterdir())) == 20


def test_its_own_launcher_starts_holdfast(job, programs):
    options = ["--multi_gpu", "--num_processes=2", "--num_machines=1", "--mixed_precision=no", "--dynamo_backend=no"]
    words = [sys.executable, "-m", "accelerate.commands.launch", *options, programs / "all_reduce.py"]
    printed = job(*words, launcher=("holdfast", "exec"))
    assert sorted(re.findall(r"rank (\d): sum 2, page, holdfast", printed)) == ["0", "1"], printed
