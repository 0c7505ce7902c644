"""Plug-ins: entry points of packages that are installed, found by name."""

from __future__ import annotations

import pytest
from installed_plugin import install_plugin

from holdfast.errors import InputError
from holdfast.plugins import load_plugin

GROUPS = ("holdfast.of_test", "torchrun.of_test")
ENTRIES = """
[holdfast.of_test]
mine = plugin_of_test:mine
both = plugin_of_test:mine
missing = plugin_of_test:no_such_name
[torchrun.of_test]
both = plugin_of_test:theirs
theirs = plugin_of_test:theirs
"""


@pytest.fixture(autouse=True)
def plugin(tmp_path, monkeypatch):
    install_plugin(tmp_path, "plugin_of_test", "mine, theirs = 'ours', 'torchs'\n", ENTRIES)
    monkeypatch.syspath_prepend(str(tmp_path))


def load(name, make=str.upper):
    return load_plugin("--option", name, GROUPS, ["built"], make)


@pytest.mark.parametrize(("name", "found"), [("mine", "OURS"), ("theirs", "TORCHS"), ("both", "OURS")])
def test_the_first_group_that_has_it_counts(name, found):
    assert load(name) == found


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(InputError) as problem:
        load("other")
    assert str(problem.value) == (
        "--option 'other': unknown name; choose from both, built, mine, missing, theirs "
        "(others are entry points of holdfast.of_test and torchrun.of_test)"
    )


def test_one_that_cannot_be_loaded_is_named_with_the_reason():
    with pytest.raises(InputError, match=r"--option 'missing' \(plugin_of_test:no_such_name\) cannot be loaded: Attr"):
        load("missing")


def test_one_of_which_nothing_can_be_made_is_named_too():
    with pytest.raises(InputError, match=r"'mine' .* cannot be loaded: ZeroDivisionError") as problem:
        load("mine", lambda _: 1 / 0)
    assert isinstance(problem.value.__cause__, ZeroDivisionError)
