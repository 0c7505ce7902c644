"""Functions of a notebook: they are in no file, and other threads run beside them."""

from __future__ import annotations

import subprocess
import sys

import pytest

FRAMEWORK = "torch"

pytestmark = pytest.mark.torch

LINES = ["worker 0: y = 3.00x + 2.00", "worker 1: y = 3.00x + 2.00"]

KERNEL = """
import re, sys, threading
done = threading.Event()
threads = [threading.Thread(target=done.wait) for _ in range(3)]
for thread in threads:
    thread.start()
try:
    for cell in re.split("(?m)^(?=# %%)", sys.stdin.read()):
        exec(compile(cell, "<cell>", "exec"))
finally:
    done.set()
"""
"""What matters of Jupyter's: cells run one after the other in a __main__ without a file, in a process with threads."""


def test_the_example_as_a_notebook(examples, tmp_path):
    with open(examples / "notebook.py") as cells:
        ran = subprocess.run(
            [sys.executable, "-c", KERNEL],
            stdin=cells,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert (ran.returncode, ran.stdout.splitlines()) == (0, LINES), ran.stderr
