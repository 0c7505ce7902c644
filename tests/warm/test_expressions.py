"""The facts about a value that its text shows, without running the program."""

from __future__ import annotations

import ast
import os
import sys

import pytest

from holdfast.warm.expressions import UnknownError, dotted, value_of

NAMES = {"__file__": "/srv/app/train.py", "ROOT": "/srv"}


def parsed(text):
    return ast.parse(text, mode="eval").body


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("'a' + 'b'", "ab"),
        ("sys.version_info >= (3, 11)", True),
        ("sys.platform == 'win32'", False),
        ("not TYPE_CHECKING", True),
        ("os.path.dirname(os.path.abspath(__file__))", "/srv/app"),
        ("os.path.join(ROOT, 'lib')", "/srv/lib"),
        ("Path(__file__).parent / 'lib'", "/srv/app/lib"),
        ("Path(__file__).parents[1]", "/srv"),
        ("str(Path(ROOT).joinpath('lib', 'x'))", "/srv/lib/x"),
    ],
)
def test_what_usually_stands_before_imports(text, value):
    assert value_of(parsed(text), NAMES) == value


def test_the_directory_and_the_python_are_those_of_this_process():
    assert value_of(parsed("os.getcwd()"), {}) == os.getcwd()
    assert value_of(parsed("sys.version_info"), {}) == sys.version_info


@pytest.mark.parametrize(
    "text",
    ["unknown", "open('x')", "1 / 0", "'a' < 1", "os.path.join()", "f(1)", "[1]", "x.y", "os.path.join(ROOT, a=1)"],
)
def test_the_rest_is_unknown(text):
    with pytest.raises(UnknownError):
        value_of(parsed(text), NAMES)


def test_a_text_that_is_nested_too_deeply_is_unknown():
    deep = parsed("'a'")
    for _ in range(sys.getrecursionlimit()):
        deep = ast.UnaryOp(ast.Not(), deep)
    with pytest.raises(UnknownError):
        value_of(deep, {})


def test_names_as_they_are_written():
    assert dotted(parsed("os.environ")) == "os.environ"
    assert dotted(parsed("f().x")) == ""
