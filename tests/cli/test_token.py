"""``holdfast token``."""

from __future__ import annotations

import re

import pytest

from holdfast.cli.command import main
from holdfast.coordination.token import TOKEN_MIN_BYTES, check_strength, find_token


def made(capsys):
    assert main(["token"]) == 0
    return capsys.readouterr().out


def test_it_makes_tokens_that_a_run_takes_and_no_two_alike(capsys):
    tokens = [made(capsys) for _ in range(20)]
    assert len(set(tokens)) == 20
    for token in tokens:
        assert re.fullmatch(r"[0-9a-f]{64}\n", token)
        check_strength(find_token(None, None, {"HOLDFAST_TOKEN": token}), "here")
    assert len(tokens[0]) > TOKEN_MIN_BYTES


def test_other_words_are_bad_input(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["token", "please"])
    assert capsys.readouterr().err.count("\n") == 1
