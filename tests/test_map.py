"""ARCHITECTURE.md is the map of the source: it names every module, and everything that it names exists."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src/holdfast"
TEXT = (ROOT / "ARCHITECTURE.md").read_text()
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", TEXT, re.DOTALL | re.MULTILINE))
PACKAGES = sorted(path.parent.name for path in SOURCE.glob("*/__init__.py"))
BESIDE = ("chaos", "fuzz", "scripts")

MODULES = {
    path: path.read_text()
    for folder in ("src", "benchmarks", "chaos", "fuzz")
    for path in (ROOT / folder).rglob("*.py")
}
WORDS = {path: set(re.findall(r"\w+", text)) for path, text in MODULES.items()}
FOREIGN = {"TimeoutStopSec", "WatchdogSec"}
"""Names of other projects."""


def names_in(text):
    """What stands in backticks, outside of pictures."""
    return set(re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL)))


def layers_of(lines):
    return [set(re.findall(r"\w+", line.replace("holdfast.", ""))) for line in lines]


def test_the_picture_of_the_layers_is_what_is_enforced():
    picture = re.search(r"```\n(.*?)```", SECTIONS["Layers"], re.DOTALL)[1].splitlines()
    drawn = layers_of(re.split(r"  +", line)[0] for line in picture if line[0] != " ")
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert drawn == layers_of(contracts[0]["layers"])
    assert set.union(*drawn) == {path.stem for path in SOURCE.glob("*.py")} - {"__init__"} | set(PACKAGES)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_is_named_in_the_section_of_its_package(package):
    text = "\n".join(text for title, text in SECTIONS.items() if f"holdfast.{package}" in title.split(", "))
    modules = {path.stem for path in (SOURCE / package).rglob("*.py")} - {"__init__"}
    assert modules - {Path(name).stem for name in names_in(text)} == set()


@pytest.mark.parametrize("folder", BESIDE)
def test_every_module_beside_the_package_is_named(folder):
    modules = {path.stem for path in (ROOT / folder).glob("*.py") if not path.stem.startswith("__")}
    assert modules - {Path(name).stem for name in names_in(SECTIONS["Beside the package"])} == set()


@pytest.mark.parametrize("name", sorted(name for name in names_in(TEXT) if re.fullmatch(r"\w+([./]\w+)*", name)))
def test_a_name_in_the_map_exists(name):
    parts = re.split(r"[./]", name)
    if len(parts) == 1:
        is_plain = name.isalpha() and name.islower()  # any word, such as a command
        assert is_plain or name in FOREIGN or any(name in words for words in WORDS.values())
        return
    is_path = any((folder / f"{name}{end}").exists() for folder in (ROOT, SOURCE) for end in ("", ".py"))
    is_in_source = any(name in text for text in MODULES.values())  # a file, a key, or a name of the standard library
    assert is_path or is_in_source or any(has(path, parts) for path in MODULES)


def has(path, parts):
    """Whether `parts` are this module and names in it (`package/module.Name`), or a class in it and its attributes."""
    place = [part for part in path.relative_to(ROOT).with_suffix("").parts if part != "__init__"]
    for length in range(len(parts), 0, -1):
        if place[-length:] == parts[:length]:
            return WORDS[path].issuperset(parts[length:])
    return re.search(rf"^class {parts[0]}\b", MODULES[path], re.MULTILINE) and WORDS[path].issuperset(parts)
