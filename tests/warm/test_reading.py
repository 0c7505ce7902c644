"""What a program imports, found by reading it."""

from __future__ import annotations

import textwrap

import pytest

from holdfast.warm.reading import FILES_MAX, files_of_module, imports_of


@pytest.fixture
def project(tmp_path):
    def write(**files):
        for name, text in files.items():
            path = tmp_path / f"{name.replace('__', '/', 1)}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(textwrap.dedent(text))
        return [str(tmp_path / "train.py")], [str(tmp_path)]

    return write


def test_imports_at_the_top_level(project):
    train = """
        import os, torch.nn as nn
        from numpy import array, linalg
        from torch.utils.data import *
        try:
            import fast
        except ImportError:
            import slow
        finally:
            import last
        with open("x"):
            import inside
        if True:
            import conditional
        else:
            import otherwise
        def f():
            import not_this
        class C:
            import nor_this
        """
    found = imports_of(*project(train=train))
    assert list(found) == [
        *("os", "torch.nn", "numpy", "torch.utils.data"),
        *("fast", "slow", "last", "inside", "conditional", "otherwise"),
    ]
    assert found["numpy"] == ("array", "linalg")
    assert found["torch.utils.data"] == ()


def test_imports_for_types_alone_are_left_out(project):
    train = """
        import typing
        from typing import TYPE_CHECKING
        if TYPE_CHECKING:
            import heavy
        if typing.TYPE_CHECKING:
            import heavy
        else:
            import light
        """
    assert imports_of(*project(train=train)) == {"typing": ("TYPE_CHECKING",), "light": ()}


def test_modules_of_the_project_are_read_and_left_out(project):
    found = imports_of(
        *project(
            train="import model\nfrom data import loading\nimport data.cache\n",
            model="import torch\nimport train\n",
            data____init__="import numpy\n",
            data__loading="from . import cache\nfrom .files import *\nfrom ..model import x\nimport pandas\n",
            data__cache="import zlib\n",
            data__files="import bz2\nfrom .. import nothing\nfrom ....... import above\n",
        )
    )
    assert sorted(found) == ["bz2", "numpy", "pandas", "torch", "zlib"]


@pytest.mark.parametrize("text", ["def f(:\n", "\0", "import os\n" * 3, ""])
def test_whatever_the_file_holds_nothing_is_raised(project, text):
    assert imports_of(*project(train=text)) in ({}, {"os": ()})


def test_a_file_that_is_not_there_imports_nothing(tmp_path):
    assert imports_of([str(tmp_path / "missing.py"), ""], [str(tmp_path)]) == {}


def test_a_project_of_any_size_is_read_in_bounded_time(project):
    files = {f"m{n}": f"import m{n + 1}\n" for n in range(FILES_MAX + 100)}
    assert imports_of(*project(train="import m0\n", **files)) == {}


def test_the_files_of_a_module(project, tmp_path):
    project(pkg____init__="", pkg____main__="", pkg__train="", alone="")
    roots = [str(tmp_path)]
    package = [str(tmp_path / "pkg" / "__init__.py")]
    assert files_of_module("pkg.train", roots) == [*package, str(tmp_path / "pkg" / "train.py")]
    assert files_of_module("pkg", roots) == [*package, str(tmp_path / "pkg" / "__main__.py")]
    assert files_of_module("alone", roots) == [str(tmp_path / "alone.py")]
    assert files_of_module("missing", roots) == []
