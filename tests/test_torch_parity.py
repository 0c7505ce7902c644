"""Every public name of torch's launcher, its elastic agents and their parts has a counterpart here that takes the same
calls, or an entry with a reason in one of the two tables below.

The installed torch is asked, so an upgrade of torch shows what is new there.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch

SURFACE = Path(__file__).parent / "support" / "public_surface.py"

ELASTIC = "torch.distributed.elastic."
HOMES = {
    "torch.distributed.launcher": ("holdfast.launcher",),
    "torch.distributed.launcher.api": ("holdfast.launcher",),
    "torch.distributed.run": ("holdfast.cli", "holdfast.launcher", "holdfast.processes", "holdfast.errors"),
    "torch.distributed.launch": ("holdfast.cli.legacy",),
    "torch.distributed.argparse_util": ("holdfast.cli",),
    f"{ELASTIC}agent.server": ("holdfast.agent",),
    f"{ELASTIC}agent.server.api": ("holdfast.agent",),
    f"{ELASTIC}agent.server.local_elastic_agent": ("holdfast.agent",),
    f"{ELASTIC}agent.server.health_check_server": ("holdfast.agent",),
    f"{ELASTIC}multiprocessing": ("holdfast.processes", "holdfast.errors"),
    f"{ELASTIC}multiprocessing.api": ("holdfast.processes",),
    f"{ELASTIC}multiprocessing.redirects": ("holdfast.processes",),
    f"{ELASTIC}multiprocessing.tail_log": ("holdfast.processes",),
    f"{ELASTIC}multiprocessing.errors": ("holdfast.errors",),
    f"{ELASTIC}multiprocessing.errors.error_handler": ("holdfast.errors",),
    f"{ELASTIC}multiprocessing.errors.handlers": ("holdfast.errors",),
    f"{ELASTIC}rendezvous": ("holdfast.rendezvous", "holdfast.rendezvous.registry"),
    f"{ELASTIC}rendezvous.api": ("holdfast.rendezvous", "holdfast.rendezvous.registry"),
    f"{ELASTIC}rendezvous.registry": ("holdfast.rendezvous",),
    f"{ELASTIC}rendezvous.utils": ("holdfast.rendezvous",),
    f"{ELASTIC}rendezvous.static_tcp_rendezvous": ("holdfast.rendezvous", "holdfast.rendezvous.static"),
    f"{ELASTIC}rendezvous.dynamic_rendezvous": ("holdfast.rendezvous",),
    f"{ELASTIC}timer": ("holdfast.watchdog",),
    f"{ELASTIC}timer.api": ("holdfast.watchdog",),
    f"{ELASTIC}timer.local_timer": ("holdfast.watchdog",),
    f"{ELASTIC}timer.file_based_local_timer": ("holdfast.watchdog",),
    f"{ELASTIC}events": ("holdfast.events",),
    f"{ELASTIC}events.api": ("holdfast.events",),
    f"{ELASTIC}events.handlers": ("holdfast.events",),
    f"{ELASTIC}metrics": ("holdfast.metrics",),
    f"{ELASTIC}metrics.api": ("holdfast.metrics",),
}
"""Where the public names of torch's modules are here."""

_PARTS = "a part of torch's own rendezvous, which keeps pickles in a store and polls them: write a RendezvousHandler"

MISSING: dict[str, str] = {
    "DynamicRendezvousHandler": _PARTS,
    "RendezvousBackend": _PARTS,
    "RendezvousSettings": _PARTS,
    "RendezvousTimeout": _PARTS,
    "create_handler": _PARTS,
    "StaticTCPRendezvous": "create_rdzv_handler makes it: one node and several have different classes here",
    "REMAINDER": "a name of argparse that torch's module imports",
    "get_logger": "loggers here are for holdfast's own modules: a program uses logging",
    "macros": "${local_rank} in an argument is replaced by the agent alone",
    "get_logging_handler": "events go to functions, which event_handler finds and set_event_handler sets",
    "get_libc": "a detail of how torch redirects descriptors: holdfast needs no C library for it",
    "get_std_cm": "a detail of how torch's workers redirect their streams: here the keeper does it before they start",
    "tail_logfile": "a detail of TailLog, which is woken by the kernel here and does not poll",
}
"""Names of torch's that have no counterpart, and why."""

_CLOSE = "(self, death_sig=empty, timeout=30) became (self, death_sig=empty, timeout=empty)"
_CLOSE_REASON = "without a timeout it is the set's own shutdown_timeout, which is 30 s unless the caller said otherwise"

DIFFERENT: dict[str, str] = {
    f"PContext.close: {_CLOSE}": _CLOSE_REASON,
    f"MultiprocessContext.close: {_CLOSE}": _CLOSE_REASON,
    f"SubprocessContext.close: {_CLOSE}": _CLOSE_REASON,
    "TailLog: (name, log_files, dst, log_line_prefixes=empty, interval_sec=0.1, log_line_filter=function) became "
    "(name, log_files, dst, log_line_prefixes=empty, interval_sec=0.1, log_line_filter=empty)": (
        "None keeps all lines, as torch's default function does, and costs no call for each line"
    ),
}
"""What differs on purpose about a name that is here, and why: ``name: difference`` as the test words it."""


def surface(modules: list[tuple[tuple[str, ...], list[str]]]) -> dict[str, dict[str, dict[str, object] | None]]:
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", str(SURFACE)],
        input=json.dumps(modules),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.fixture(scope="module")
def pairs():
    """Each of torch's names with its module: what it is there, and what it is here."""
    theirs = surface([((module,), []) for module in HOMES])
    found = {}
    for module, homes in HOMES.items():
        names = list(theirs[module])
        ours = surface([(homes, names)])[homes[0]]
        for name in names:
            found[module, name] = (theirs[module][name], ours[name])
    return found


def differences(name: str, theirs: dict[str, object], ours: dict[str, object]) -> list[str]:
    """What a caller of torch's name would stumble over here."""
    if theirs["kind"] != ours["kind"]:
        return [f"{name}: is a {ours['kind']}, not a {theirs['kind']}"]
    found = []
    if theirs["kind"] == "constant" and theirs["value"] != ours["value"]:
        found.append(f"{name}: is {ours['value']}, not {theirs['value']}")
    found += call_differences(name, theirs.get("parameters"), ours.get("parameters"))
    lost = [base for base in theirs.get("bases", ()) if base not in ours["bases"]]
    found += [f"{name}: is no {base}" for base in lost]
    found += [f"{name}: has no field {field}" for field in theirs.get("fields", ()) if field not in ours["fields"]]
    if "members" in theirs:
        found += [
            f"{name}: {member} is {ours['members'].get(member)}, not {value}"
            for member, value in theirs["members"].items()
            if ours["members"].get(member) != value
        ]
    for method, call in theirs.get("methods", {}).items():
        if method not in ours["methods"]:
            found.append(f"{name}.{method}: is missing")
        elif "attribute" in (call, ours["methods"][method]):
            if call != ours["methods"][method]:
                found.append(f"{name}.{method}: is not an attribute on both sides")
        else:
            found += call_differences(f"{name}.{method}", call, ours["methods"][method])
    return found


def call_differences(name: str, theirs: list[list[str]] | None, ours: list[list[str]] | None) -> list[str]:
    if theirs is None or ours is None:
        return []
    own = ours[len(theirs) :]
    found = [f"{name}: ({show(theirs)}) became ({show(ours)})"] if ours[: len(theirs)] != theirs else []
    if any(default == "required" and not kind.startswith("VAR_") for _, kind, default in own):
        found.append(f"{name}: ({show(theirs)}) became ({show(ours)}): an argument of ours is required")
    return found


def show(parameters: list[list[str]]) -> str:
    shown = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}
    return ", ".join(
        shown.get(kind, "") + name + ("" if default == "required" else f"={default}")
        for name, kind, default in parameters
    )


def test_every_public_name_has_a_counterpart_or_a_reason(pairs):
    missing = {name for (_, name), (_, ours) in pairs.items() if ours is None}
    assert missing == MISSING.keys()


def test_every_counterpart_takes_the_same_calls_or_there_is_a_reason(pairs):
    different = {
        difference
        for (_, name), (theirs, ours) in pairs.items()
        if ours is not None
        for difference in differences(name, theirs, ours)
    }
    assert sorted(different) == sorted(DIFFERENT)


def test_every_difference_has_a_reason():
    assert all(len(reason.split()) > 3 for reason in (*MISSING.values(), *DIFFERENT.values()))
