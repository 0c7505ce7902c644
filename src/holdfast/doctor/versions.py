"""Installed versions, missing extras, and whether the command in the PATH is the expected one."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from typing import TYPE_CHECKING, NamedTuple

from holdfast.doctor.finding import Finding, Topic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.doctor.context import Context

KERNEL_GOOD = (5, 3)
"""The first Linux with everything that holdfast uses (pidfd_open)."""

FRAMEWORKS = ("torch", "accelerate", "lightning", "jax", "numpy")

EXTRAS = {
    "cloudpickle": ("notebook", "running notebook functions in workers"),
    "grpcio": ("etcd", "--rdzv-backend etcd"),
    "protobuf": ("etcd", "--rdzv-backend etcd"),
    "py-spy": ("stacks", "stacks of workers that do not answer"),
}
"""The extra that installs each package, and its purpose."""

COMMAND = "holdfast"

_topic = Topic("versions")


class Facts(NamedTuple):
    python: str
    kernel: str
    libc: str
    packages: Mapping[str, str]
    """The versions of installed packages, by name."""

    commands: tuple[str, ...]
    """The files called holdfast in the PATH, in its order; links are resolved."""

    interpreter: str
    python_on_path: str
    """The path of python3 in the PATH; "" for none."""

    prefix: str
    """The prefix of this interpreter's packages."""


def check(context: Context) -> list[Finding]:
    return judge(probe(context.environ), context.version)


def probe(environ: Mapping[str, str]) -> Facts:
    packages = {name: found for name in (*FRAMEWORKS, *EXTRAS) if (found := _installed(name))}
    path = environ.get("PATH", os.defpath)
    commands = dict.fromkeys(map(os.path.realpath, _on_path(COMMAND, path)))
    pythons = _on_path("python3", path)
    return Facts(
        platform.python_version(),
        platform.release(),
        " ".join(platform.libc_ver()).strip() or "unknown",
        packages,
        tuple(commands),
        sys.executable,
        pythons[0] if pythons else "",
        sys.prefix,
    )


def judge(facts: Facts, version: str) -> list[Finding]:
    findings = [
        _topic.ok("holdfast", f"holdfast {version}, Python {facts.python} ({facts.interpreter}), {facts.libc}"),
        _judge_kernel(facts.kernel),
    ]
    frameworks = [f"{name} {facts.packages[name]}" for name in FRAMEWORKS if name in facts.packages]
    findings.append(_topic.ok("frameworks", f"installed: {', '.join(frameworks) or 'no framework'}"))
    missing = {name: use for name, use in EXTRAS.items() if name not in facts.packages}
    if missing:
        uses = "; ".join(f"{name} is for {use}" for name, (_, use) in missing.items())
        *first, last = dict.fromkeys(extra for extra, _ in missing.values())
        extras = f"extras {', '.join(first)} and {last}" if first else f"extra {last}"
        advice = f"install holdfast with its {extras}, if you need {'them' if first else 'it'}"
        findings.append(_topic.note("extras", f"not installed: {uses}", advice))
    else:
        findings.append(_topic.ok("extras", f"installed: {', '.join(EXTRAS)}"))
    return [*findings, *_judge_path(facts)]


def _judge_kernel(release: str) -> Finding:
    numbers = tuple(int(part) for part in release.split("-", maxsplit=1)[0].split(".")[:2] if part.isdecimal())
    if platform.system() == "Linux" and numbers < KERNEL_GOOD:
        return _topic.note("kernel", f"Linux {release}", "from 5.3 on, --warm and holdfast stacks work, too")
    return _topic.ok("kernel", f"{platform.system()} {release}")


def _judge_path(facts: Facts) -> list[Finding]:
    findings = []
    if len(facts.commands) > 1:
        findings.append(
            _topic.warning(
                "command",
                f"there are several commands called {COMMAND}: {', '.join(facts.commands)}",
                "the first one is run; remove the others from the PATH, and make sure that all machines run the same",
            )
        )
    if facts.python_on_path and not _is_same(facts.python_on_path, facts):
        findings.append(
            _topic.note(
                "python",
                f"workers run {facts.interpreter}, and python3 in the PATH is {facts.python_on_path}",
                "workers do not see what is installed there; set PYTHON_EXEC to use another interpreter",
            )
        )
    return findings


def _is_same(path: str, facts: Facts) -> bool:
    """Whether a command uses the same packages: a virtual environment's interpreter is a link to the system's."""
    return os.path.dirname(os.path.realpath(os.path.dirname(path))) == os.path.realpath(facts.prefix)


def _on_path(name: str, path: str) -> list[str]:
    places = [os.path.join(directory, name) for directory in path.split(os.pathsep) if directory]
    return [place for place in places if os.path.isfile(place) and os.access(place, os.X_OK)]


def _installed(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
