"""The targets, one module for each part of holdfast that takes bytes or text from outside."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fuzz.target import Target

MODULES = (
    *("wire", "server_connection", "client_connection", "service", "torchstore", "rendezvous"),
    *("error_file", "event_log", "watchdog", "agent_requests", "stacks", "warm", "worker_page", "worker_output"),
    *("health", "command_line", "settings", "listener", "etcd"),
)


def all_targets() -> dict[str, Target]:
    """Every target by its name."""
    found: dict[str, Target] = {}
    for name in MODULES:
        targets: tuple[Target, ...] = import_module(f"fuzz.targets.{name}").TARGETS
        found.update((target.name, target) for target in targets)
    return found
