"""What an installation gets, what is locked, and what is released."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import metadata, requires, version
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement

import holdfast

ROOT = Path(__file__).parent.parent


def test_the_version_is_a_literal():
    assert version("holdfast") == holdfast.__version__
    assert f'__version__ = "{holdfast.__version__}"\n' in (ROOT / "src/holdfast/__init__.py").read_text()


def needed_by_base():
    return [requirement for requirement in requires("holdfast") if "extra ==" not in requirement]


def test_the_base_install_needs_the_records_and_the_certificates_only():
    assert sorted(Requirement(needed).name for needed in needed_by_base()) == ["cryptography", "msgspec"]


def test_it_is_typed_and_has_a_permissive_licence():
    assert (ROOT / "src/holdfast/py.typed").exists()
    assert metadata("holdfast")["License-Expression"] == "MIT"


def test_the_newest_change_is_that_of_this_version():
    assert f"## {holdfast.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_ci_runs_what_people_run():
    assert "make test" in (ROOT / ".ci/run").read_text()
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"] == ">=3.11"


@pytest.fixture
def project(tmp_path):
    """A copy of what decides about the locks."""
    for name in ("scripts", "requirements"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def check_of_locks(project):
    done = run(sys.executable, project / "scripts/lock.py", "--check")
    return done.returncode, done.stderr.splitlines()


def run(*command, **options):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, **options)


def test_the_locks_are_current():
    assert check_of_locks(ROOT) == (0, [])


@pytest.mark.parametrize(
    ("old", "new", "lock"),
    [
        ("\ndependencies = [", '\ndependencies = ["msgspec>0.1", ', "runtime"),
        ("[project.optional-dependencies]\n", '[project.optional-dependencies]\nmore = ["numpy"]\n', "test"),
        ("\ncheck = [", '\ncheck = ["packaging", ', "check"),
        ("\ntest = [", '\ntest = ["numpy", ', "test"),
        ("\ntorch = [", '\ntorch = ["numpy", ', "test"),
        ("\nrelease = [", '\nrelease = ["packaging", ', "release"),
        ("\nrequires = [", '\nrequires = ["packaging", ', "build"),
    ],
)
def test_locks_that_an_edit_of_pyproject_has_outdated_are_named(project, old, new, lock):
    edit(project / "pyproject.toml", old, new)
    code, said = check_of_locks(project)
    assert code == 1
    assert said == [f"requirements/{lock}.txt: not made from the pyproject.toml that is here; run `make lock`"]


def test_a_newer_python_outdates_every_lock(project):
    edit(project / "pyproject.toml", 'requires-python = ">=3.11"', 'requires-python = ">=3.12"')
    code, said = check_of_locks(project)
    assert code == 1
    assert len(said) == len(list((ROOT / "requirements").glob("*.txt")))


@pytest.mark.parametrize(
    ("pattern", "new", "complaint"),
    [
        (r"^# inputs: .*$", "# inputs: none", "not made from the pyproject.toml that is here"),
        (r"^hatchling==\S+", "hatchling==0.1", "has no version for hatchling"),
        (r"^packaging==\S+", "packaging==0.1", "packaging is "),
        (r"^packaging==\S+", "packaging>=20", "neither a pin nor a hash: 'packaging>=20"),
        (r"(?<= \\\n)    --hash=.*\n    --hash=.*\n", "", "has no hash"),
        (r"\Z", "--extra-index-url nowhere\n", "neither a pin nor a hash: '--extra-index-url nowhere'"),
        (r"\Z", "    # via https://nowhere\n", "names a place to take packages from"),
        (r"\Z", "torch==2.13.0 \\\n    --hash=sha256:" + 64 * "0" + "\n", "torch must not be locked"),
        (r"\Z", "nvidia-new==1 \\\n    --hash=sha256:" + 64 * "0" + "\n", "nvidia-new must not be locked"),
    ],
)
def test_a_lock_that_pip_could_not_trust_is_refused(project, pattern, new, complaint):
    path = project / "requirements/build.txt"
    text, count = re.subn(pattern, new, path.read_text(), count=1, flags=re.MULTILINE)
    assert count == 1
    path.write_text(text)
    code, said = check_of_locks(project)
    assert code == 1
    assert complaint in "\n".join(said)


def test_a_lock_that_nothing_makes_is_refused(project):
    (project / "requirements/more.txt").write_text("")
    assert check_of_locks(project) == (1, ["requirements/more.txt: nothing makes this file; remove it"])


@pytest.mark.parametrize("lock", ["runtime", "build", "check", "test", "release"])
def test_what_is_installed_here_is_what_is_locked(lock):
    pinned = re.findall(
        r"^(\S+?==\S+?)(?: ; (.+?))? \\$", (ROOT / f"requirements/{lock}.txt").read_text(), re.MULTILINE
    )
    here = [pin for pin, marker in pinned if not marker or Marker(marker).evaluate()]
    assert here
    assert [f"{name}=={version(name)}" for name in (pin.split("==")[0] for pin in here)] == here


def test_what_is_installed_here_fits_together():
    done = run(sys.executable, "-m", "pip", "--disable-pip-version-check", "check")
    assert (done.returncode, done.stdout) == (0, "No broken requirements found.\n")


@pytest.fixture(scope="module")
def committed(tmp_path_factory):
    """A repository whose last commit is what is here, committed or not."""
    place = tmp_path_factory.mktemp("repository")
    files = run("git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard").stdout
    for name in filter(None, files.split("\0")):
        if (ROOT / name).exists():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, place / name)
    assert run("git", "init", "--quiet", place).returncode == 0
    commit(place)
    return place


def commit(repository):
    assert run("git", "-C", repository, "add", "--all").returncode == 0
    who = ("-c", "user.name=a test", "-c", "user.email=", "-c", "commit.gpgsign=false")
    done = run("git", "-C", repository, *who, "commit", "--quiet", "--message", "all of it")
    assert done.returncode == 0, done.stderr


def release(repository, into):
    script = repository / "scripts/release.py"
    return run(sys.executable, script, "--wheels", Path(sys.prefix, "wheels"), "--into", into)


@pytest.fixture(scope="module")
def released(committed, tmp_path_factory):
    into = tmp_path_factory.mktemp("release") / "dist"
    done = release(committed, into)
    assert done.returncode == 0, done.stdout + done.stderr
    return into


RELEASE = f"holdfast-{holdfast.__version__}"


def test_a_release_is_two_packages_a_list_of_parts_and_checksums(released):
    names = [f"{RELEASE}-py3-none-any.whl", f"{RELEASE}.cdx.json", f"{RELEASE}.tar.gz"]
    assert sorted(path.name for path in released.iterdir()) == ["SHA256SUMS", *names]
    sums = run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=released)
    assert (sums.returncode, sums.stdout) == (0, "".join(f"{name}: OK\n" for name in names))


def test_a_wheel_has_every_module_and_nothing_else(released):
    source = ROOT / "src"
    files = [path for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    package = {str(path.relative_to(source)) for path in files}
    with zipfile.ZipFile(released / f"{RELEASE}-py3-none-any.whl") as wheel:
        members = {member for member in wheel.namelist() if not member.startswith(f"{RELEASE}.dist-info/")}
        assert wheel.read(f"{RELEASE}.dist-info/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
    assert members == package
    assert "holdfast/py.typed" in members


def test_the_list_of_parts_has_the_locked_versions_and_no_path(released):
    text = (released / f"{RELEASE}.cdx.json").read_text()
    parts = json.loads(text)
    assert parts["bomFormat"] == "CycloneDX"
    assert (parts["metadata"]["component"]["name"], parts["metadata"]["component"]["version"]) == tuple(
        RELEASE.split("-")
    )
    locked = re.findall(r"^(\S+)==(\S+)", (ROOT / "requirements/runtime.txt").read_text(), re.MULTILINE)
    assert {(part["name"], part["version"]) for part in parts["components"]} <= set(locked)
    assert {Requirement(needed).name for needed in needed_by_base()} <= {part["name"] for part in parts["components"]}
    assert "file:" not in text
    assert "/tmp" not in text


@pytest.fixture
def broken(committed, tmp_path):
    """A clone to be spoiled."""
    assert run("git", "clone", "--quiet", committed, tmp_path / "clone").returncode == 0
    return tmp_path / "clone"


def test_uncommitted_changes_are_not_released(broken):
    (broken / "README.md").write_text("another one")
    done = release(broken, broken / "dist")
    assert done.returncode == 1
    assert "commit or stash them:\n M README.md" in done.stderr
    assert not (broken / "dist").exists()


def test_builds_that_differ_are_not_released(broken):
    (broken / "hatch_build.py").write_text(
        "import os\n"
        "from hatchling.builders.hooks.plugin.interface import BuildHookInterface\n\n\n"
        "class Hook(BuildHookInterface):\n"
        "    def initialize(self, version, build_data):\n"
        "        with open(os.path.join(self.root, 'src/holdfast/py.typed'), 'w') as file:\n"
        "            file.write(os.environ['TZ'])\n"
    )
    edit(
        broken / "pyproject.toml",
        "[tool.hatch.build.targets.wheel]\n",
        "[tool.hatch.build.targets.wheel.hooks.custom]\n\n[tool.hatch.build.targets.wheel]\n",
    )
    edit(broken / "pyproject.toml", 'include = ["/src"', 'include = ["/hatch_build.py", "/src"')
    commit(broken)
    done = release(broken, broken / "dist")
    assert done.returncode == 1
    assert f"{RELEASE}-py3-none-any.whl: two builds of the same commit differ" in done.stderr
    assert not (broken / "dist").exists()


def test_packages_with_too_much_or_too_little_are_not_released(broken):
    (broken / "src/holdfast/test_stray.py").write_text("")
    edit(
        broken / "pyproject.toml",
        'packages = ["src/holdfast"]\n',
        'packages = ["src/holdfast"]\nexclude = ["py.typed"]\nforce-include = { "LICENSE" = "holdfast/LICENSE" }\n',
    )
    edit(broken / "pyproject.toml", 'license-files = ["LICENSE"]', "license-files = []")
    commit(broken)
    done = release(broken, broken / "dist")
    assert done.returncode == 1
    wheel = f"{RELEASE}-py3-none-any.whl"
    assert f"{wheel}: holdfast/py.typed is missing" in done.stderr
    assert f"{wheel}: {RELEASE}.dist-info/licenses/LICENSE is missing" in done.stderr
    assert f"{wheel}: holdfast/LICENSE does not belong there" in done.stderr
    assert f"{wheel}: holdfast/test_stray.py is not for users" in done.stderr
    assert f"{RELEASE}.tar.gz: {RELEASE}/src/holdfast/test_stray.py is not for users" in done.stderr
    assert not (broken / "dist").exists()
