from __future__ import annotations

from argparse import ArgumentParser

import pytest

from holdfast.cli import check_env, env
from holdfast.cli.environment import as_given
from holdfast.errors import InputError


def parse(words, *names, **options):
    parser = ArgumentParser()
    parser.add_argument(*names, **options)
    return parser.parse_args(words)


class TestEnv:
    def test_without_a_variable_the_default_counts(self):
        assert parse([], "-f", "--foo", action=env, default="bar").foo == "bar"
        assert parse(["-f", "baz"], "-f", "--foo", action=env, default="bar").foo == "baz"

    def test_the_variable_goes_before_the_default_and_after_the_command_line(self, monkeypatch):
        monkeypatch.setenv("PET_FOO", "variable")
        assert parse([], "-f", "--foo", action=env, default="bar").foo == "variable"
        assert parse(["--foo", "baz"], "-f", "--foo", action=env, default="bar").foo == "baz"

    def test_text_of_the_variable_is_converted_if_it_is_needed(self, monkeypatch):
        monkeypatch.setenv("PET_FOO", "3")
        assert parse([], "--foo", action=env, type=int).foo == 3
        monkeypatch.setenv("PET_FOO", "x")
        assert parse(["--foo", "4"], "--foo", action=env, type=int).foo == 4
        with pytest.raises(SystemExit):
            parse([], "--foo", action=env, type=int)

    def test_a_required_option_may_come_from_the_variable(self, monkeypatch):
        with pytest.raises(SystemExit):
            parse([], "--foo", action=env, required=True)
        monkeypatch.setenv("PET_FOO", "here")
        assert parse([], "--foo", action=env, required=True).foo == "here"


class TestCheckEnv:
    def test_it_is_a_flag(self):
        assert parse([], "--loud", action=check_env).loud is False
        assert parse(["--loud"], "--loud", action=check_env).loud is True
        assert parse([], "--loud", action=check_env, default=True).loud is True

    @pytest.mark.parametrize(("text", "is_on"), [("1", True), ("0", False), ("2", True), ("-1", True)])
    def test_a_number_turns_it_on_or_off(self, monkeypatch, text, is_on):
        monkeypatch.setenv("PET_LOUD", text)
        assert parse([], "--loud", action=check_env).loud is is_on
        assert parse(["--loud"], "--loud", action=check_env).loud is True

    def test_off_goes_before_a_default_that_is_on(self, monkeypatch):
        monkeypatch.setenv("PET_LOUD", "0")
        assert parse([], "--loud", action=check_env, default=True).loud is False

    @pytest.mark.parametrize("text", ["true", "", "on"])
    def test_other_text_is_refused_by_the_variables_name(self, monkeypatch, text):
        monkeypatch.setenv("PET_LOUD", text)
        with pytest.raises(InputError, match=f"^PET_LOUD='{text}': write 1 for on or 0 for off$"):
            parse([], "--loud", action=check_env)


class TestAsGiven:
    def test_the_variable_that_holds_the_value_is_named(self, monkeypatch):
        monkeypatch.setenv("PET_NNODES", "x")
        assert as_given("--nnodes 'x': no") == "PET_NNODES='x': no"
        monkeypatch.setenv("PET_MAX_RESTARTS", "-1")
        assert as_given("--max-restarts -1: no") == "PET_MAX_RESTARTS=-1: no"

    def test_another_value_was_given_on_the_command_line(self, monkeypatch):
        monkeypatch.setenv("PET_NNODES", "2")
        assert as_given("--nnodes 'x': no") == "--nnodes 'x': no"
        assert as_given("--nnodes 20: no") == "--nnodes 20: no"

    def test_what_names_no_flag_stays(self, monkeypatch):
        monkeypatch.setenv("PET_SCRIPT", "x")
        assert as_given("script 'x': no") == "script 'x': no"
        assert as_given("") == ""
