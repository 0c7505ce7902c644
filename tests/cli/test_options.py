"""The table of options, and how it hangs together with the settings of a job."""

from __future__ import annotations

from argparse import ArgumentTypeError

import pytest

from holdfast.cli.configuration import config_from_args
from holdfast.cli.options import GROUPS, OWN_OPTIONS, Option, comma_separated, number, one_of, whole_number
from holdfast.cli.parser import parse_args
from holdfast.settings import JobSettings

SETTINGS = [option for option in OWN_OPTIONS if option.dest != "warm_imports"]


@pytest.mark.parametrize("option", SETTINGS, ids=repr)
def test_an_option_of_ours_is_a_setting_with_the_same_default(option):
    assert option.dest in JobSettings.names()
    default = False if option.is_flag else option.default
    assert getattr(JobSettings, option.dest) == default


@pytest.mark.parametrize("option", SETTINGS, ids=repr)
def test_an_option_of_ours_reaches_the_settings_by_its_name(option, script):
    others = {"store_host": "rank0", "restart_policy": "always"}
    given = [] if option.is_flag else [others.get(option.dest, "7")]
    config, _, _ = config_from_args(parse_args([option.names[-1], *given, script()]))
    expected = True if option.is_flag else others.get(option.dest, 7.0)
    assert getattr(config.settings(), option.dest) == expected


def test_the_imports_of_a_warm_start_include_it(script):
    config, _, _ = config_from_args(parse_args(["--warm-imports", "torch,numpy", script()]))
    assert config.warm == ["torch", "numpy"]


def test_no_option_is_there_twice():
    spellings = [spelling for options in GROUPS.values() for option in options for spelling in option.spellings]
    assert len(spellings) == len(set(spellings))


def test_both_spellings_of_a_name():
    option = Option("-x", "--two-words", metavar="N", help="")
    assert option.spellings == ("-x", "--two-words", "--two_words")
    assert (option.dest, option.is_flag) == ("two_words", False)


def test_a_comma_that_belongs_to_an_item_is_written_twice():
    assert comma_separated("a,b,,c,d") == ["a", "b,c", "d"]


@pytest.mark.parametrize(
    ("convert", "text"), [(whole_number, "1.5"), (number, "many"), (one_of("agent", "rank0"), "rank1")]
)
def test_a_value_that_cannot_be_converted_is_quoted(convert, text):
    with pytest.raises(ArgumentTypeError, match=f"^{text!r}: "):
        convert(text)
