"""Compares the training with an undisturbed one, for the record."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from chaos.world import EXAMPLE, HERE

if TYPE_CHECKING:
    from pathlib import Path

    from chaos.record import Record

COMPARE_MAX_S = 1800


def compare(record: Record, training: Path) -> None:
    """Make all steps again in a process of its own, and record how far its result is from the storm's."""
    ran = subprocess.run(
        [sys.executable, "-m", "chaos.recompute", training, EXAMPLE],
        capture_output=True,
        text=True,
        cwd=HERE.parent,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=COMPARE_MAX_S,
        check=False,
    )
    if ran.returncode:
        record.add("result", error=ran.stderr[-2000:])
    else:
        record.add("result", **json.loads(ran.stdout))
