"""The tests' networks of namespaces and the jobs on them, for scenarios that need several machines."""

from __future__ import annotations

import os
import shutil
import sys
from importlib import import_module
from typing import Any

from benchmarks.workplace import BenchmarkError

_SUPPORT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests", "support")

TOKEN_AND_OWN_STORE = {"HOLDFAST_TOKEN": "the token of the benchmark", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""The environment of agents: holdfast's secret, and a torchrun that a node can join without splitting the job."""


def load() -> tuple[Any, Any]:
    """The modules `network` and `job_nodes` of the tests."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        raise BenchmarkError("networks of namespaces need root and the command ip (package iproute2)")
    if _SUPPORT not in sys.path:
        sys.path.insert(0, _SUPPORT)
    return import_module("network"), import_module("job_nodes")
