"""What the README and the example show is what happens."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def run(script, cwd):
    return subprocess.run([sys.executable, script], cwd=cwd, capture_output=True, text=True, timeout=120, check=False)


def test_the_first_job_of_the_readme(tmp_path):
    (source,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (tmp_path / "job.py").write_text(source)
    ran = run("job.py", tmp_path)
    assert (ran.returncode, ran.stdout) == (0, "{0: 0.0, 1: 0.5, 2: 1.0, 3: 1.5}\n"), ran.stderr


def test_the_demo_crashes_once_and_finishes(tmp_path):
    command = re.search(r"^demo:.*\n\t\$\(BIN\)/(.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1].split()
    ran = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert sorted(ran.stdout.splitlines()) == sorted(
        [f"[default{rank}]:worker {rank} of 4, attempt {attempt}" for rank in range(4) for attempt in range(2)]
        + [f"[default{rank}]:done, loss 0.0625" for rank in range(4)]
    )
    assert "rank 2 failed: RuntimeError: the cosmic ray" in ran.stderr
    assert "restart 1 of 1" in ran.stderr
