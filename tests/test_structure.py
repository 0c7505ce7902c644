"""The shape of the source: every module has a test file of its own, and nothing grows without end."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src/holdfast"
MODULES = sorted(SOURCE.rglob("*.py"))

LINES_MAX = 450
METHODS_MAX = 25

ELSEWHERE = {
    "_lazy.py": "test_lazy.py",
    "worker/startup/sitecustomize.py": "worker/test_sitecustomize.py",
    "cli/startup/sitecustomize.py": "cli/test_exec.py",
}
"""Modules whose tests are not at the mirrored place: a leading underscore is no word, and `startup` is no package."""


def name_of(path):
    return path.relative_to(SOURCE).as_posix()


def mirrored(path):
    name = name_of(path)
    return ROOT / "tests" / ELSEWHERE.get(name, f"{Path(name).parent.as_posix()}/test_{path.name}")


@pytest.mark.parametrize("path", [path for path in MODULES if not path.name.startswith("__")], ids=name_of)
def test_a_module_has_a_test_file_of_its_own(path):
    """`__init__` and `__main__` hold no logic; `test_exports` and the tests of the command have them."""
    assert mirrored(path).exists()


def test_exceptions_are_modules_that_are_there():
    assert set(ELSEWHERE) <= set(map(name_of, MODULES))


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_fits_into_a_head(path):
    text = path.read_text()
    assert len(text.splitlines()) <= LINES_MAX
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef):
            methods = [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
            assert len(methods) <= METHODS_MAX, node.name
