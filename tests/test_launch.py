"""``python -m holdfast.launch`` is what ``python -m torch.distributed.launch`` is."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(("options", "expected"), [([], "0 --local-rank=0 x"), (["--use-env"], "0 x")])
def test_a_worker_gets_its_rank_as_an_argument_unless_it_reads_its_environment(tmp_path, options, expected):
    script = tmp_path / "script.py"
    script.write_text("import os, sys; print(os.environ['LOCAL_RANK'], *sys.argv[1:])")
    words = [sys.executable, "-W", "ignore", "-m", "holdfast.launch", *options, str(script), "x"]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout) == (0, f"{expected}\n"), ran.stderr
