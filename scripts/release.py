"""Build a release of the last commit into `dist`: wheel, sdist, SBOM (CycloneDX) and SHA256SUMS. `make release`.

The commit is built twice, in surroundings that differ in all that must not matter, and both builds have to be the same
to the byte. So everybody who has the commit and the locks can build it again and compare. Nothing is fetched: the tools
are those of `requirements/release.txt` and `requirements/build.txt`, the packages of the SBOM those of
`requirements/runtime.txt`, which `make` has put into a directory (`--wheels`).
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from email.parser import BytesParser
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from packaging.metadata import Metadata
from packaging.requirements import Requirement

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet

ROOT = Path(__file__).parent.parent

NEVER_SHIPPED = ("test", "tests", "__pycache__", "conftest.py")
"""Names of files and directories that no package of ours has."""


class Surroundings(NamedTuple):
    """What differs between two builds, and must not be seen in what they build."""

    directory: str
    umask: int
    environment: dict[str, str]
    through_sdist: bool


BUILDS = (
    Surroundings("one", 0o022, {"TZ": "UTC", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "1"}, through_sdist=True),
    Surroundings("two/deeper", 0o077, {"TZ": "Asia/Tokyo", "LC_ALL": "C", "PYTHONHASHSEED": "2"}, through_sdist=False),
)
"""The first wheel is built from the sdist, as those do who install from it; the second from the source itself."""


class ReleaseError(Exception):
    """There will be no release; the message says why."""


def git(*words: str) -> bytes:
    """What git says about the repository."""
    return subprocess.run(["git", "-C", ROOT, *words], check=True, stdout=subprocess.PIPE).stdout


def build(surroundings: Surroundings, scratch: Path, date: str) -> dict[str, Path]:
    """The files that a build of the last commit makes, by their names."""
    source = scratch / surroundings.directory / "source"
    made = scratch / surroundings.directory / "made"
    with tarfile.open(fileobj=io.BytesIO(git("archive", "HEAD"))) as archive:
        archive.extractall(source, filter="data")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(made), str(source)]
    command += [] if surroundings.through_sdist else ["--sdist", "--wheel"]
    environment = os.environ | surroundings.environment | {"SOURCE_DATE_EPOCH": date}
    done = subprocess.run(
        command,
        env=environment,
        umask=surroundings.umask,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        raise ReleaseError(f"the build failed:\n{done.stdout}{done.stderr}")
    return {path.name: path for path in sorted(made.iterdir())}


def sha256(path: Path) -> str:
    """The checksum of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def differences(first: dict[str, Path], second: dict[str, Path]) -> Iterator[str]:
    """What is not the same in two builds."""
    for name in sorted(first.keys() | second.keys()):
        if not (name in first and name in second):
            yield f"{name}: only one of two builds made it"
        elif sha256(first[name]) != sha256(second[name]):
            yield f"{name}: two builds of the same commit differ; compare {first[name].name} member by member"


def tracked(*places: str) -> set[str]:
    """The files of the last commit below these places."""
    return set(git("ls-tree", "-r", "-z", "--name-only", "HEAD", "--", *places).decode().split("\0")) - {""}


def mismatches(name: str, members: AbstractSet[str], expected: AbstractSet[str]) -> Iterator[str]:
    """What a package has too much, and what it lacks."""
    yield from (f"{name}: {member} is missing" for member in sorted(expected - members))
    yield from (f"{name}: {member} does not belong there" for member in sorted(members - expected))
    for member in sorted(members & expected):
        parts = PurePosixPath(member).parts
        if any(part in NEVER_SHIPPED or part.startswith("test_") for part in parts) or member.endswith((".pyc", ".so")):
            yield f"{name}: {member} is not for users; keep it out of the package"


def wheel_complaints(wheel: Path, release: str) -> Iterator[str]:
    """What is wrong with the wheel: it has the package, its licence and its metadata, and nothing else."""
    package = {path.removeprefix("src/") for path in tracked("src")} | {"holdfast/py.typed"}
    information = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}
    with zipfile.ZipFile(wheel) as archive:
        members = set(archive.namelist())
        yield from mismatches(wheel.name, members, package | {f"{release}.dist-info/{name}" for name in information})
        if f"{release}.dist-info/METADATA" in members:
            yield from metadata_complaints(wheel.name, archive.read(f"{release}.dist-info/METADATA"))


def sdist_complaints(sdist: Path, release: str) -> Iterator[str]:
    """What is wrong with the sdist: it has what a wheel is built from, what people read, and nothing else."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    included = project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    files = tracked(".gitignore", "pyproject.toml", *(place.removeprefix("/") for place in included))
    with tarfile.open(sdist) as archive:
        members = {member.name for member in archive if not member.isdir()}
    yield from mismatches(sdist.name, members, {f"{release}/{path}" for path in files | {"LICENSE", "PKG-INFO"}})


def metadata_complaints(name: str, text: bytes) -> Iterator[str]:
    """What a package index would refuse, and what differs from pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    try:
        metadata = Metadata.from_email(text, validate=True)
    except ExceptionGroup as invalid:
        yield from (f"{name}: the metadata is invalid: {problem}" for problem in invalid.exceptions)
        return
    if metadata.license_expression != project["license"]:
        yield f"{name}: the licence is {metadata.license_expression}, and {project['license']} in pyproject.toml"
    if str(metadata.requires_python) != project["requires-python"]:
        yield f"{name}: needs Python {metadata.requires_python}, and {project['requires-python']} in pyproject.toml"
    if BytesParser().parsebytes(text)["Description-Content-Type"] != "text/markdown" or not metadata.description:
        yield f"{name}: has no description; see readme in pyproject.toml"
    needed = {str(wanted) for wanted in metadata.requires_dist or () if "extra ==" not in str(wanted)}
    if needed != {str(Requirement(wanted)) for wanted in project["dependencies"]}:
        yield f"{name}: needs {sorted(needed)}, and {project['dependencies']} in pyproject.toml"


def write_sbom(sbom: Path, scratch: Path, wheels: Path, made: Path, date: str) -> None:
    """List what an installation of the wheel consists of, from one with the locked versions."""
    place = scratch / "installation"
    python = f"{place}/bin/python"
    venv.create(place, with_pip=False)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python, "install", "--quiet"]
    pip += ["--no-deps", "--no-index", "--no-compile", "--only-binary", ":all:", "--find-links"]
    subprocess.run([*pip, wheels, "--require-hashes", "--requirement", ROOT / "requirements/runtime.txt"], check=True)
    # By its name, as users install it: an installation from a path remembers the path, and the SBOM would name it.
    subprocess.run([*pip, made, "holdfast"], check=True)
    said = subprocess.run([place / "bin/holdfast", "--version"], check=True, stdout=subprocess.PIPE, text=True).stdout
    version = said.split()[-1]
    named = scratch / "pyproject.toml"
    named.write_text((ROOT / "pyproject.toml").read_text().replace('dynamic = ["version"]', f'version = "{version}"'))
    command = [sys.executable, "-m", "cyclonedx_py", "environment", "--output-format", "JSON", "--output-reproducible"]
    command += ["--mc-type", "application", "--pyproject", str(named), "--output-file", str(sbom)]
    subprocess.run([*command, python], env=os.environ | {"SOURCE_DATE_EPOCH": date}, check=True)


def release(into: Path, wheels: Path) -> None:
    """Build, check, and put into a directory what users get."""
    if changed := git("status", "--porcelain").decode():
        raise ReleaseError(f"a release is built from a commit, and these are in none; commit or stash them:\n{changed}")
    date = git("log", "-1", "--format=%ct").decode().strip()
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        first, second = (build(surroundings, scratch, date) for surroundings in BUILDS)
        (wheel,) = (path for name, path in first.items() if name.endswith(".whl"))
        (sdist,) = (path for name, path in first.items() if name.endswith(".tar.gz"))
        name = sdist.name.removesuffix(".tar.gz")
        found = [*differences(first, second), *wheel_complaints(wheel, name), *sdist_complaints(sdist, name)]
        if found:
            raise ReleaseError("\n".join(found))
        sbom = wheel.with_name(f"{name}.cdx.json")
        write_sbom(sbom, scratch, wheels, wheel.parent, date)
        shutil.rmtree(into, ignore_errors=True)
        into.mkdir(parents=True)
        for path in (wheel, sdist, sbom):
            shutil.copyfile(path, into / path.name)
        sums = "".join(f"{sha256(path)}  {path.name}\n" for path in sorted((wheel, sdist, sbom)))
        (into / "SHA256SUMS").write_text(sums)
    print(f"{name}, built twice from the last commit with the same result, is in {into}:\n{sums}", end="")


def main() -> None:
    """Build a release, or say why not."""
    parser = argparse.ArgumentParser(description="Build a release of the last commit.")
    parser.add_argument("--into", type=Path, default=ROOT / "dist", help="the directory to replace")
    parser.add_argument("--wheels", type=Path, required=True, help="where the wheels of requirements/runtime.txt are")
    arguments = parser.parse_args()
    try:
        release(arguments.into, arguments.wheels)
    except (ReleaseError, subprocess.CalledProcessError) as reason:
        sys.exit(f"no release: {reason}")


if __name__ == "__main__":
    main()
