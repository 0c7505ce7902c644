"""Run all checks at once, with a time limit. A check that fails or takes too long is a finding like any other."""

from __future__ import annotations

import time
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING

from holdfast.doctor import (
    accelerators,
    address,
    clock,
    endpoint,
    environment,
    etcd,
    files,
    kernel,
    limits,
    memory,
    names,
    stacks,
    versions,
)
from holdfast.doctor.finding import Finding, State

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from holdfast.doctor.context import Context

    Check: TypeAlias = Callable[[Context], list[Finding]]

WHOLE_MAX_S = 10.0
"""How long all checks together may take. Each check bounds its own work, but a name look-up cannot be bounded."""

CHECKS: dict[str, Check] = {
    "versions": versions.check,
    "names": names.check,
    "address": address.check,
    "endpoint": endpoint.check,
    "etcd": etcd.check,
    "clock": clock.check,
    "limits": limits.check,
    "memory": memory.check,
    "files": files.check,
    "kernel": kernel.check,
    "stacks": stacks.check,
    "accelerators": accelerators.check,
    "environment": environment.check,
}
"""The checks by topic, in the order in which they are shown."""


def examine(
    context: Context, topics: Sequence[str] = (), checks: dict[str, Check] = CHECKS, limit_s: float = WHOLE_MAX_S
) -> list[Finding]:
    """The findings of all checks, or of some topics, in the order of the topics.

    It never raises, and returns within `limit_s`, whatever the machine does.
    """
    chosen = {name: check for name, check in checks.items() if not topics or name in topics}
    done: SimpleQueue[tuple[str, list[Finding]]] = SimpleQueue()
    deadline = time.monotonic() + limit_s
    for name, check in chosen.items():
        # A daemon thread: if it is stuck in the kernel, the process can still end.
        Thread(target=_carry_out, args=(name, check, context, done), name=f"doctor {name}", daemon=True).start()
    found: dict[str, list[Finding]] = {}
    while len(found) < len(chosen):
        try:
            name, findings = done.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            break
        found[name] = findings
    return [finding for name in chosen for finding in found.get(name, [_late(name, limit_s)])]


def _carry_out(name: str, check: Check, context: Context, done: SimpleQueue[tuple[str, list[Finding]]]) -> None:
    try:
        findings = check(context)
    except Exception as error:  # noqa: BLE001 - a check that fails on a strange machine is a finding
        findings = [_failed(name, error)]
    done.put((name, findings))


def _late(name: str, limit_s: float) -> Finding:
    return Finding(
        name,
        "unfinished",
        State.WARNING,
        f"the check did not finish within {limit_s:g} s",
        "something does not answer: a name server, a mounted file system; the other topics may show which",
    )


def _failed(name: str, error: Exception) -> Finding:
    return Finding(
        name,
        "unfinished",
        State.WARNING,
        f"the check failed: {type(error).__name__}: {error}",
        "unless the machine is broken, this is a bug in holdfast: please report it",
    )
