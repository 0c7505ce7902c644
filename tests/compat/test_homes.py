"""The table against the installed torch, and against programs that import its names."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.compat.homes import HOMES, PARTIAL, PROGRAMS

NAMES = """
import importlib, json, sys, types
ELASTIC = "torch.distributed.elastic."
found = {}
for short in json.load(sys.stdin):
    module = importlib.import_module("torch.distributed." + short)
    homes = {
        name: getattr(value, "__module__", None) or ""
        for name, value in vars(module).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    found[short] = [
        name for name, home in homes.items()
        if home.startswith((ELASTIC, "torch.distributed.launch", module.__name__))
        and not home.startswith(ELASTIC + "utils")
    ]
json.dump(found, sys.stdout)
"""
"""Prints the names that a module of torch's has from the launcher and its parts, its own or imported."""

MISSING = {
    "elastic.events.get_logging_handler": "`event_handler` makes handlers of events, which need no logger",
    "elastic.events.handlers.get_logging_handler": "likewise",
    "elastic.multiprocessing.api.SubprocessHandler": "a keeper starts the processes",
    "elastic.multiprocessing.api.get_std_cm": "streams are redirected where a process starts",
    "elastic.multiprocessing.api.get_subprocess_handler": "a keeper starts the processes",
    "elastic.multiprocessing.redirects.get_libc": "an internal of its `redirect`",
    "elastic.multiprocessing.tail_log.tail_logfile": "an internal of its `TailLog`",
    "elastic.rendezvous.registry.create_handler": "belongs to its own dynamic rendezvous",
    "elastic.rendezvous.registry.handler_registry": "is called `rendezvous_handler_registry` everywhere else",
    "elastic.rendezvous.static_tcp_rendezvous.StaticTCPRendezvous": "`create_rdzv_handler` makes the handler",
    "elastic.timer.file_based_local_timer.log_debug_info_for_expired_timers": "the server logs what expired",
}
"""What a module of torch's may have without a counterpart here, and why."""

_IMPORT = re.compile(
    r"^\s*from torch\.distributed\.((?:run|launch|launcher|elastic)[\w.]*) import (?:\(([^)]*)\)|(.*))$", re.MULTILINE
)


def test_modules_without_a_counterpart_for_all_are_in_the_table():
    assert set(HOMES) > PARTIAL
    assert set(HOMES) > set(PROGRAMS)


def test_every_home_is_there():
    for home in {home for homes in HOMES.values() for home in homes}:
        assert importlib.import_module(home)


@pytest.mark.torch
def test_every_name_of_torch_has_a_counterpart_or_a_reason():
    asked = json.dumps(sorted(set(HOMES) - PARTIAL))
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", NAMES],
        input=asked,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    missing = {
        f"{short}.{name}"
        for short, names in json.loads(ran.stdout).items()
        for name in names
        if not hasattr(importlib.import_module(f"holdfast.compat.{short}"), name)
    }
    assert missing <= set(MISSING)


@pytest.mark.torch
@pytest.mark.parametrize("package", ["torch", "accelerate", "lightning"])
def test_every_name_that_a_package_imports_is_there(package):
    spec = importlib.util.find_spec(package)
    if spec is None:
        pytest.skip(f"needs {package}")
    root = Path(spec.origin).parent
    replaced = root / "distributed"
    imported = 0
    for path in root.rglob("*.py"):
        if path.is_relative_to(replaced / "elastic") or path.is_relative_to(replaced / "launcher"):
            continue
        text = path.read_text(errors="replace")
        if path.parent == replaced or "torch.distributed." not in text:
            continue
        for found in _IMPORT.finditer(text):
            if found[1] not in HOMES:
                continue
            for word in (found[2] or found[3]).split(","):
                name = word.split("#")[0].split(" as ")[0].strip()
                if name:
                    imported += 1
                    assert hasattr(importlib.import_module(f"holdfast.compat.{found[1]}"), name), f"{path}: {name}"
    assert imported or package == "lightning"
