"""The demo does what it is for. That the commands of the README run is tested in docs/test_commands.py."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_demo_crashes_once_and_finishes(tmp_path):
    command = re.search(r"^demo:.*\n\t\$\(BIN\)/(.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1].split()
    ran = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr
    first, second = ({f"[default{rank}]:worker {rank} of 4, attempt {n}" for rank in range(4)} for n in range(2))
    done = {f"[default{rank}]:done, loss 0.0625" for rank in range(4)}
    # On a busy machine the others may not have begun when the one crashes, or be done already.
    assert set(ran.stdout.splitlines()) - first == second | done
    assert "[default2]:worker 2 of 4, attempt 0" in ran.stdout
    assert "rank 2 failed: RuntimeError: the cosmic ray" in ran.stderr
    assert "restart 1 of 1" in ran.stderr
