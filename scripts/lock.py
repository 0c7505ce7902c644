"""Lock what development, CI and releases install: every package at one version, with the hashes of its files.

`make lock` writes `requirements/*.txt` from pyproject.toml and needs the network. Pins that still fit are kept;
`make lock UPGRADE=all` or `UPGRADE="ruff mypy"` takes the newest. `--check` needs no network: it says whether the locks
were made from the pyproject.toml that is there, and whether pip can trust them.

One resolution covers all locks, every Python that the project supports and every platform, so that all locks can be
installed together and everybody has the versions that CI has. Differences between platforms are markers.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

ROOT = Path(__file__).parent.parent
LOCKS = ROOT / "requirements"

NOT_LOCKED = ("torch",)
"""Tests compare with torch, and any build of it will do: for a processor or for CUDA. They have different hashes."""

NOT_NEEDED = (
    "cuda-bindings",
    "cuda-toolkit",
    "nvidia-cudnn-cu13",
    "nvidia-cusparselt-cu13",
    "nvidia-nccl-cu13",
    "nvidia-nvshmem-cu13",
    "triton",
)
"""What torch's build for CUDA needs beyond the other one. Where pip chooses that build, it brings them along."""

SOURCES = {
    "runtime": "the dependencies of the project",
    "build": "the requirements of the build system",
    "check": "the dependency group check",
    "test": "all extras, the dependency group test, and what torch needs beside CUDA",
    "release": "the dependency group release",
    "lock": "the dependency group lock",
    "pip": "the dependency group pip",
}

PIN = re.compile(r"^([A-Za-z0-9._-]+==[^\s;\\]+(?: ; [^\\]+?)?)(?: \\)?$", re.MULTILINE)
HASH = re.compile(r"^    --hash=sha256:[0-9a-f]{64}(?: \\)?$", re.MULTILINE)
DIGEST = re.compile(r"^# inputs: sha256:([0-9a-f]{64})$", re.MULTILINE)


class Pin(NamedTuple):
    """A package at one version, where its marker holds."""

    name: str
    version: str
    marker: str
    hashes: int


def inputs(project: Mapping[str, Any]) -> dict[str, list[str]]:
    """The requirements that each lock is made from, as pyproject.toml has them."""
    name = canonicalize_name(project["project"]["name"])
    groups = project["dependency-groups"]
    extras = [wanted for extra in project["project"]["optional-dependencies"].values() for wanted in extra]
    return {
        "runtime": project["project"]["dependencies"],
        "build": project["build-system"]["requires"],
        "check": groups["check"],
        "test": [
            *(wanted for wanted in extras if canonicalize_name(Requirement(wanted).name) != name),
            *groups["test"],
            *groups["torch"],
        ],
        "release": groups["release"],
        "lock": groups["lock"],
        "pip": groups["pip"],
    }


def oldest_python(project: Mapping[str, Any]) -> str:
    """The oldest Python that the project supports, which decides the versions."""
    return str(project["project"]["requires-python"]).removeprefix(">=")


def digest(requirements: Iterable[str], python: str) -> str:
    """What tells whether a lock was made from these requirements."""
    text = "\n".join([python, *NOT_LOCKED, *NOT_NEEDED, "", *sorted(requirements)])
    return hashlib.sha256(text.encode()).hexdigest()


def pins(lock: str) -> Iterator[Pin]:
    """The pins of a lock's text."""
    found = list(PIN.finditer(lock))
    ends = [*(match.start() for match in found[1:]), len(lock)]
    for match, end in zip(found, ends, strict=True):
        requirement, _, marker = match[1].partition(" ; ")
        name, version = requirement.split("==")
        yield Pin(canonicalize_name(name), version, marker, len(HASH.findall(lock, match.end(), end)))


def complaints(project: Mapping[str, Any], locks: Mapping[str, str]) -> Iterator[str]:
    """What is wrong with the locks, a line each; nothing if they are current."""
    python = oldest_python(project)
    versions: dict[tuple[str, str], tuple[str, str]] = {}
    for lock, requirements in inputs(project).items():
        text = locks.get(lock, "")
        recorded = DIGEST.search(text)
        if recorded is None or recorded[1] != digest(requirements, python):
            yield f"requirements/{lock}.txt: not made from the pyproject.toml that is here; run `make lock`"
        pinned = list(pins(text))
        yield from _unmet(lock, requirements, pinned)
        yield from _untrusted(lock, text, pinned)
        for pin in pinned:
            other, version = versions.setdefault((pin.name, pin.marker), (lock, pin.version))
            if version != pin.version:
                yield (
                    f"requirements/{lock}.txt: {pin.name} is {pin.version}, and {version} in "
                    f"requirements/{other}.txt; run `make lock`"
                )
    for lock in sorted(locks.keys() - inputs(project).keys()):
        yield f"requirements/{lock}.txt: nothing makes this file; remove it"


def _unmet(lock: str, requirements: Iterable[str], pinned: Sequence[Pin]) -> Iterator[str]:
    """The requirements that no pin satisfies."""
    for text in requirements:
        wanted = Requirement(text)
        name = canonicalize_name(wanted.name)
        if name not in NOT_LOCKED and not any(
            pin.name == name and wanted.specifier.contains(pin.version, prereleases=True) for pin in pinned
        ):
            yield f"requirements/{lock}.txt: has no version for {text}; run `make lock`"


def _untrusted(lock: str, text: str, pinned: Sequence[Pin]) -> Iterator[str]:
    """What pip could take from somewhere else, or without knowing what it gets."""
    for line in text.splitlines():
        if not line.startswith("#") and not PIN.match(line) and not HASH.match(line) and not line.startswith("    # "):
            yield f"requirements/{lock}.txt: neither a pin nor a hash: {line!r}; run `make lock`"
        elif "://" in line:
            yield f"requirements/{lock}.txt: names a place to take packages from: {line!r}; run `make lock`"
    for pin in pinned:
        if not pin.hashes:
            yield f"requirements/{lock}.txt: {pin.name}=={pin.version} has no hash; run `make lock`"
        if pin.name in NOT_LOCKED or pin.name.startswith(("nvidia-", "cuda-")) or pin.name in NOT_NEEDED:
            yield f"requirements/{lock}.txt: {pin.name} must not be locked; add it to NOT_NEEDED in scripts/lock.py"


def compiled(requirements: Iterable[str], python: str, before: Iterable[str], *, hashes: bool) -> str:
    """The pins for all of the requirements and what they need, the ones from before wherever they fit."""
    with tempfile.TemporaryDirectory() as directory:
        output = Path(directory, "lock.txt")
        output.write_text("".join(f"{pin}\n" for pin in before))
        excluded = Path(directory, "excluded.txt")
        excluded.write_text("".join(f"{name}\n" for name in NOT_NEEDED))
        command = [sys.executable, "-m", "uv", "pip", "compile", "-", "--quiet", "--no-config", "--no-header"]
        command += ["--universal", "--python-version", python, "--fork-strategy", "fewest", "--only-binary", ":all:"]
        command += ["--excludes", str(excluded), "--output-file", str(output)]
        command += [word for name in NOT_LOCKED for word in ("--no-emit-package", name)]
        command += ["--generate-hashes"] if hashes else []
        given = "".join(f"{requirement}\n" for requirement in requirements)
        subprocess.run(command, input=given, text=True, check=True, stdout=subprocess.DEVNULL)
        return output.read_text()


def write(project: Mapping[str, Any], upgrade: Sequence[str]) -> None:
    """Make all locks."""
    python = oldest_python(project)
    wanted = inputs(project)
    upgraded = {canonicalize_name(name) for name in upgrade}
    before = {pin for text in _locks().values() for pin in PIN.findall(text)}
    kept = {pin for pin in before if "all" not in upgraded and canonicalize_name(pin.split("==")[0]) not in upgraded}
    everything = [requirement for requirements in wanted.values() for requirement in requirements]
    whole = PIN.findall(compiled(everything, python, sorted(kept), hashes=False))
    LOCKS.mkdir(exist_ok=True)
    for lock, requirements in wanted.items():
        body = compiled(requirements, python, whole, hashes=True)
        body = re.sub(r"\n*# The following packages were excluded from the output:\n(# \S+\n)+", "\n", body)
        (LOCKS / f"{lock}.txt").write_text(
            f"# Made by `make lock` from pyproject.toml: {SOURCES[lock]}. Do not edit.\n"
            f"# inputs: sha256:{digest(requirements, python)}\n{body}"
        )


def _locks() -> dict[str, str]:
    return {path.stem: path.read_text() for path in LOCKS.glob("*.txt")}


def main() -> None:
    """Make the locks, or check them."""
    parser = argparse.ArgumentParser(description="Lock what development, CI and releases install.")
    parser.add_argument("--check", action="store_true", help="only say whether the locks are current")
    parser.add_argument("--upgrade", nargs="*", default=[], metavar="NAME", help="take the newest of these, or of all")
    arguments = parser.parse_args()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    if not arguments.check:
        write(project, arguments.upgrade)
    if found := list(complaints(project, _locks())):
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
