"""Python code in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

DEADLINE_S = 120


def run_fresh(code, module_path="", *, without=(), **environment):
    """Run it with additions to the environment and to the module path, and some names not inherited."""
    inherited = {name: value for name, value in os.environ.items() if name not in without}
    path = os.pathsep.join(filter(None, [str(module_path), inherited.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**inherited, "PYTHONPATH": path, **{name: os.fspath(value) for name, value in environment.items()}},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
