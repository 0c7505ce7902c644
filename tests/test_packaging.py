"""What an installation gets."""

from __future__ import annotations

import tomllib
from importlib.metadata import metadata, requires, version
from pathlib import Path

import holdfast

ROOT = Path(__file__).parent.parent


def test_the_version_is_a_literal():
    assert version("holdfast") == holdfast.__version__
    assert f'__version__ = "{holdfast.__version__}"\n' in (ROOT / "src/holdfast/__init__.py").read_text()


def test_the_base_install_needs_the_records_only():
    base = [requirement for requirement in requires("holdfast") if "extra ==" not in requirement]
    assert [requirement.split(">")[0] for requirement in base] == ["msgspec"]


def test_it_is_typed_and_has_a_permissive_licence():
    assert (ROOT / "src/holdfast/py.typed").exists()
    assert metadata("holdfast")["License-Expression"] == "MIT"


def test_the_newest_change_is_that_of_this_version():
    assert f"## {holdfast.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_ci_runs_what_people_run():
    assert "make test" in (ROOT / ".ci/run").read_text()
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"] == ">=3.11"
