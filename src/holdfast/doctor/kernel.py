"""The kernel features that holdfast itself needs. Each one is really tried."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import TYPE_CHECKING, NamedTuple

from holdfast.doctor.finding import Finding, Topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.doctor.context import Context

INSTANCES_MIN = 128
"""How many inotify instances a user should have: an agent uses one, and so do editors and desktops."""

INSTANCES_FILE = "/proc/sys/fs/inotify/max_user_instances"

_PR_GET_CHILD_SUBREAPER = 37

_topic = Topic("kernel")


class Feature(NamedTuple):
    """A kernel feature, and what is lost without it."""

    check: str
    name: str
    is_needed: bool
    without: str
    advice: str


FEATURES = (
    Feature(
        "subreaper",
        "child subreaper (prctl)",
        True,
        "processes may be left behind",
        "use Linux 3.4 or newer, and let the container's seccomp profile allow prctl",
    ),
    Feature("memfd", "memfd_create", True, "no worker can be started", "let the container's seccomp profile allow it"),
    Feature("eventfd", "eventfd", True, "agents of several machines cannot wait", "let the seccomp profile allow it"),
    Feature(
        "pidfd",
        "pidfd_open",
        False,
        "--warm and holdfast stacks cannot be used",
        "use Linux 5.3 or newer, and let the container's seccomp profile allow it",
    ),
    Feature(
        "inotify",
        "inotify",
        False,
        "logs that are shown (--tee) are polled ten times a second",
        "too many programs of this user use it: raise fs.inotify.max_user_instances (sysctl)",
    ),
    Feature(
        "proc",
        "/proc",
        True,
        "processes cannot be watched",
        "mount it (mount -t proc proc /proc), as every container does",
    ),
)


class Facts(NamedTuple):
    platform: str
    errors: dict[str, str]
    """Why each feature is missing, by `Feature.check`; "" if it is there."""

    inotify_instances: int
    """How many inotify instances a user may have; 0 if unknown."""


def check(context: Context) -> list[Finding]:  # noqa: ARG001 - the kernel is the same for every job
    return judge(probe())


def probe() -> Facts:
    tries: dict[str, Callable[[], object]] = {
        "subreaper": _try_subreaper,
        "memfd": lambda: os.close(os.memfd_create("holdfast-doctor")),
        "eventfd": lambda: os.close(os.eventfd(0)),
        "pidfd": lambda: os.close(os.pidfd_open(os.getpid())),
        "inotify": _try_inotify,
        "proc": lambda: os.stat("/proc/self/stat"),
    }
    return Facts(sys.platform, {name: _error_of(tried) for name, tried in tries.items()}, _instances())


def judge(facts: Facts) -> list[Finding]:
    if facts.platform != "linux":
        return [
            _topic.warning(
                "platform",
                f"this system is {facts.platform}: holdfast is made for Linux",
                "jobs run, but processes that a worker leaves behind may stay, and speed is not tested",
            )
        ]
    missing = [feature for feature in FEATURES if facts.errors.get(feature.check)]
    findings = [_judge_missing(feature, facts.errors[feature.check]) for feature in missing]
    present = [feature.name for feature in FEATURES if feature not in missing]
    findings.append(_topic.ok("features", f"tested, and available: {', '.join(present)}"))
    if 0 < facts.inotify_instances < INSTANCES_MIN and "inotify" not in {feature.check for feature in missing}:
        findings.append(
            _topic.note(
                "inotify-instances",
                f"this user may have {facts.inotify_instances} inotify instances",
                f"each agent uses one: sysctl fs.inotify.max_user_instances={INSTANCES_MIN} where many jobs run",
            )
        )
    return findings


def _judge_missing(feature: Feature, error: str) -> Finding:
    what = f"{feature.name} is not available ({error}): {feature.without}"
    if feature.is_needed:
        return _topic.problem(feature.check, what, feature.advice)
    return _topic.warning(feature.check, what, feature.advice)


def _error_of(tried: Callable[[], object]) -> str:
    try:
        tried()
    except OSError as error:
        return error.strerror or str(error)
    except AttributeError:
        return "Python offers it on Linux only"
    return ""


def _try_subreaper() -> None:
    answer = ctypes.c_int()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(answer), 0, 0, 0):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _try_inotify() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.inotify_init1(os.O_CLOEXEC)
    if fd < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    os.close(fd)


def _instances() -> int:
    try:
        with open(INSTANCES_FILE, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0
