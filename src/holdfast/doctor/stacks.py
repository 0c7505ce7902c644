"""What ``holdfast stacks`` can see of a worker that does not answer. Really tried, on a child process of our own."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from holdfast import procfs
from holdfast.doctor.finding import Finding, Topic
from holdfast.stacks.parse import SOURCE
from holdfast.stacks.spy import find_py_spy, spy

if TYPE_CHECKING:
    from holdfast.doctor.context import Context

TRIAL_MAX_S = 6.0
"""How long py-spy may take. It takes 20 ms, and more on a busy machine."""

YAMA = "/proc/sys/kernel/yama/ptrace_scope"

CAP_SYS_PTRACE = 19

_CHILD = "import sys; print('ready', flush=True); sys.stdin.read()"

_topic = Topic("stacks")


class Facts(NamedTuple):
    py_spy: str | None
    """The path of py-spy."""

    is_seen: bool
    """Whether py-spy could read the stack of another process."""

    reason: str = ""
    """Why py-spy could not."""

    ptrace_scope: int | None = None
    """The setting of the kernel's yama module: 0 allows all own processes, 1 children, 2 root, 3 nothing; None without
    it."""

    has_capability: bool = False
    """Whether the process has CAP_SYS_PTRACE."""


def check(context: Context) -> list[Finding]:  # noqa: ARG001 - the same for every job
    return [judge(probe())]


def probe() -> Facts:
    py_spy = find_py_spy()
    text = _stacks_of_a_child() if py_spy else ""
    is_seen = f"{SOURCE}py-spy" in text
    reason = "" if is_seen else text.rpartition("; ")[2].strip()
    return Facts(py_spy, is_seen, reason, _ptrace_scope(), _has_capability())


def judge(facts: Facts) -> Finding:
    by_signal = "workers that answer a signal are always shown"
    if facts.py_spy is None:
        return _topic.note(
            "ptrace",
            f"py-spy is not installed: for a stopped or stuck worker, only its state is shown; {by_signal}",
            f"install holdfast with its extra stacks{_rights(facts)}",
        )
    if facts.is_seen:
        return _topic.ok("ptrace", "py-spy can read another process: stuck workers are shown, too")
    return _topic.note(
        "ptrace",
        f"py-spy cannot read another process ({facts.reason or 'no reason given'}); {by_signal}",
        "be root, or " + (_rights(facts).removeprefix("; ") or "allow it: docker run --cap-add SYS_PTRACE"),
    )


def _rights(facts: Facts) -> str:
    """What a person has to do so that py-spy may read stacks."""
    if facts.ptrace_scope and not facts.has_capability:
        return (
            f"; kernel.yama.ptrace_scope is {facts.ptrace_scope}: sysctl kernel.yama.ptrace_scope=0, or in a container "
            "--cap-add SYS_PTRACE"
        )
    return ""


def _stacks_of_a_child() -> str:
    # Isolated mode: the user's sitecustomize must not run for this.
    with subprocess.Popen(  # noqa: S603 - our own arguments
        [sys.executable, "-I", "-c", _CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        try:
            assert child.stdout is not None
            child.stdout.readline()
            return spy(child.pid, TRIAL_MAX_S)
        finally:
            child.kill()


def _ptrace_scope() -> int | None:
    with suppress(OSError, ValueError), open(YAMA, encoding="ascii") as file:
        return int(file.read())
    return None


def _has_capability() -> bool:
    return bool(procfs.status(procfs.SELF).bits("CapEff") >> CAP_SYS_PTRACE & 1)
