"""What a program imports, and does before that, found by reading it."""

from __future__ import annotations

import textwrap

import pytest

from holdfast.warm.reading import FILES_MAX, IMPORT, files_of_module, read


@pytest.fixture
def project(tmp_path):
    def write(**files):
        for name, text in files.items():
            path = tmp_path / f"{name.replace('__', '/', 1)}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(textwrap.dedent(text))
        main = str(tmp_path / "train.py")
        return read([main], [str(tmp_path)], main)

    return write


def steps(reading):
    return [step.name if step.kind == IMPORT else (step.kind, step.name, step.value) for step in reading.steps]


def test_imports_at_the_top_level(project):
    train = """
        import os, torch.nn as nn
        from numpy import array, linalg
        from torch.utils.data import *
        try:
            import fast
        except ImportError:
            import slow
        else:
            import after
        finally:
            import last
        with open("x"):
            import inside
        def f():
            import not_this
        class C:
            import nor_this
        """
    found = project(train=train).imports()
    assert list(found) == [
        *("os", "torch.nn", "numpy", "torch.utils.data"),
        *("fast", "after", "last", "inside"),
    ]
    assert found["numpy"] == ("array", "linalg")
    assert found["torch.utils.data"] == ()


def test_of_what_is_conditional_only_what_is_certain(project):
    train = """
        import typing, sys
        from typing import TYPE_CHECKING
        if TYPE_CHECKING:
            import heavy
        if typing.TYPE_CHECKING:
            import heavy
        else:
            import light
        if sys.version_info >= (3, 11) and f():
            import unclear
        if sys.version_info >= (3, 11):
            import new
        elif sys.platform == "linux":
            import old
        if not sys.platform == "linux":
            import other
        if True:
            import certain
        if f():
            import unclear
        else:
            import unclear
        while f():
            import unclear
        if __name__ == "__main__":
            import own
            import of_main
        """
    own = "if __name__ == '__main__':\n    import not_of_main\nelse:\n    import of_own\n"
    found = project(train=train, own=own).imports()
    assert list(found) == ["typing", "sys", "light", "new", "certain", "of_own", "of_main"]


def test_modules_of_the_project_are_read_where_they_are_imported_and_left_out(project):
    found = project(
        train="import first\nimport model\nimport last\nfrom data import loading\nimport data.cache\n",
        model="import torch\nimport train\n",
        data____init__="import numpy\n",
        data__loading="from . import cache\nfrom .files import *\nfrom ..model import x\nimport pandas\n",
        data__cache="import zlib\n",
        data__files="import bz2\nfrom .. import nothing\nfrom ....... import above\n",
    )
    assert list(found.imports()) == ["first", "torch", "last", "numpy", "zlib", "bz2", "pandas"]


def test_variables_that_are_set_before_an_import(project):
    train = """
        import os
        from os import environ
        HOME = "/srv"
        os.environ["A"] = "1"
        os.environ["PLACE"] = os.path.join(HOME, "models")
        os.environ.setdefault("B", "")
        os.environ.update({"C": "2"}, )
        environ.update(D=str(3))
        del os.environ["E"]
        os.environ.pop("F", None)
        import torch
        os.environ.get("G"), "H" in os.environ
        """
    reading = project(train=train)
    assert steps(reading) == [
        *("os", "os", ("set", "A", "1"), ("set", "PLACE", "/srv/models"), ("set default", "B", "")),
        *(("set", "C", "2"), ("set", "D", "3"), ("unset", "E", ""), ("unset", "F", ""), "torch"),
    ]
    assert reading.left == ""


@pytest.mark.parametrize(
    "place",
    [
        "'{here}/src'",
        "os.path.join(os.path.dirname(os.path.abspath(__file__)), 'src')",
        "str(Path(__file__).resolve().parent / 'src')",
        "str(pathlib.Path(__file__).parents[0].joinpath('src'))",
        "ROOT + '/src'",
    ],
)
def test_directories_that_come_before_others(project, tmp_path, place):
    """They are the project's own, too."""
    train = (
        f"ROOT = os.path.dirname(__file__)\nsys.path.insert(0, {place.format(here=tmp_path)})\nimport model\nimport z\n"
    )
    reading = project(train=train, src__model="import torch\n")
    assert reading.places == [str(tmp_path / "src")]
    assert list(reading.imports()) == ["torch", "z"]


def test_directories_that_come_after_all_others_change_nothing(project):
    reading = project(train="import sys\nsys.path.append(f())\nsys.path += g()\nsys.path.extend(h())\nimport torch\n")
    assert (list(reading.imports()), reading.left) == (["sys", "torch"], "")


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("os.environ['A'] = f()", "os.environ"),
        ("os.environ[name] = 'a'", "os.environ"),
        ("os.environ.update(settings)", "os.environ"),
        ("os.environ.update(**settings)", "os.environ"),
        ("old = os.environ.pop('A')", "os.environ"),
        ("os.putenv('A', '1')", "os.environ"),
        ("for name in names:\n    os.environ[name] = '1'", "os.environ"),
        ("if f():\n    os.environ['A'] = '1'", "os.environ"),
        ("try:\n    import a\nexcept ImportError:\n    os.environ['A'] = '1'", "os.environ"),
        ("def prepare():\n    os.environ['A'] = '1'\nprepare()", "os.environ"),
        ("sys.path.insert(0, f())", "sys.path"),
        ("sys.path = [f(), *sys.path]", "sys.path"),
        ("sys.path[0] = '/srv'", "sys.path"),
        ("sys.modules['torch'] = None", "sys.modules"),
        ("place = '/srv'\nplace = f()\nsys.path.insert(0, place)", "sys.path"),
    ],
)
def test_what_cannot_be_told_ends_the_list(project, tmp_path, statement, what):
    reading = project(train=f"import os, sys\nimport before\n{statement}\nimport json\nimport torch\n")
    assert [name for name in reading.imports() if name != "a"] == ["os", "sys", "before"]
    path, _, text = reading.left.partition(":")
    assert path == str(tmp_path / "train.py")
    assert text.endswith(f" changes {what}")
    after_all = project(train=f"import os, sys\nimport before\n{statement}\nimport json\n")
    assert after_all.left == "", "nothing that is installed comes after it"


def test_functions_that_nobody_calls_change_nothing(project):
    reading = project(train="def f():\n    os.environ['A'] = g()\nh = lambda: sys.path.clear()\nimport torch\n")
    assert (list(reading.imports()), reading.left) == (["torch"], "")


@pytest.mark.parametrize("text", ["def f(:\n", "\0", "import os\n" * 3, "", f"x = {'-' * 5000}1\n"])
def test_whatever_the_file_holds_nothing_is_raised(project, text):
    assert project(train=text).imports() in ({}, {"os": ()})


def test_a_file_that_is_not_there_imports_nothing(tmp_path):
    assert read([str(tmp_path / "missing.py"), ""], [str(tmp_path)]).imports() == {}


def test_a_project_of_any_size_is_read_in_bounded_time(project):
    files = {f"m{n}": f"import m{n + 1}\n" for n in range(FILES_MAX + 100)}
    reading = project(train="import m0\n", **files)
    assert reading.imports() == {}
    assert len(reading.files) == FILES_MAX


def test_the_files_of_a_module(project, tmp_path):
    project(pkg____init__="", pkg____main__="", pkg__train="", alone="")
    roots = [str(tmp_path)]
    package = [str(tmp_path / "pkg" / "__init__.py")]
    assert files_of_module("pkg.train", roots) == [*package, str(tmp_path / "pkg" / "train.py")]
    assert files_of_module("pkg", roots) == [*package, str(tmp_path / "pkg" / "__main__.py")]
    assert files_of_module("alone", roots) == [str(tmp_path / "alone.py")]
    assert files_of_module("missing", roots) == []
