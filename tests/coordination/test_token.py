"""Where the token comes from."""

from __future__ import annotations

import pytest

from holdfast.coordination.token import TOKEN_MAX_BYTES, find_token
from holdfast.errors.tree import InputError


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "token"
    path.write_bytes(b"  from a file\n")
    path.chmod(0o600)
    return str(path)


def test_the_first_place_that_has_a_token_counts(file, tmp_path, capsys):
    other = tmp_path / "other"
    other.write_text("from the environment's file")
    other.chmod(0o600)
    environ = {"HOLDFAST_TOKEN": "from the environment", "HOLDFAST_TOKEN_FILE": str(other)}
    assert find_token("given", file, environ) == b"given"
    assert find_token(None, file, environ) == b"from a file"
    assert find_token(None, None, environ) == b"from the environment"
    del environ["HOLDFAST_TOKEN"]
    assert find_token(None, None, environ) == b"from the environment's file"
    assert find_token(None, None, {}) == b""
    assert capsys.readouterr().err == ""


def test_an_environment_variable_that_is_empty_is_none(file):
    assert find_token(None, None, {"HOLDFAST_TOKEN": "", "HOLDFAST_TOKEN_FILE": ""}) == b""
    assert find_token(None, None, {"HOLDFAST_TOKEN": "", "HOLDFAST_TOKEN_FILE": file}) == b"from a file"


def test_a_token_is_text_of_any_kind():
    assert find_token("s\u00e9cret", None, {}) == "s\u00e9cret".encode()
    assert find_token(None, None, {"HOLDFAST_TOKEN": "\udcff"}) == b"\xff"


@pytest.mark.parametrize("content", [b"", b" \n", b"x" * (TOKEN_MAX_BYTES + 1)], ids=["empty", "blank", "too long"])
def test_a_file_without_a_token_is_an_error_that_names_it(tmp_path, content):
    path = tmp_path / "token"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(InputError, match=f"token_file in --rdzv-conf, '{path}'"):
        find_token(None, str(path), {})
    with pytest.raises(InputError, match=f"HOLDFAST_TOKEN_FILE, '{path}'"):
        find_token(None, None, {"HOLDFAST_TOKEN_FILE": str(path)})


def test_who_has_an_empty_token_learns_how_to_make_one():
    with pytest.raises(InputError, match=r"^token in --rdzv-conf: the token is empty; make one with `holdfast token`"):
        find_token("", None, {})


def test_a_file_that_cannot_be_read_is_an_error_that_names_it(tmp_path):
    with pytest.raises(InputError, match=r"HOLDFAST_TOKEN_FILE: .*/missing': No such file"):
        find_token(None, None, {"HOLDFAST_TOKEN_FILE": f"{tmp_path}/missing"})
    with pytest.raises(InputError, match="Is a directory"):
        find_token(None, str(tmp_path), {})


@pytest.mark.parametrize("given", ["", "  ", "x" * (TOKEN_MAX_BYTES + 1)])
def test_a_bad_token_on_the_command_line_is_an_error(given):
    with pytest.raises(InputError, match="token in --rdzv-conf: "):
        find_token(given, None, {"HOLDFAST_TOKEN": "good"})


def test_a_file_that_everybody_may_read_is_used_and_remarked_on(tmp_path, capsys):
    path = tmp_path / "token"
    path.write_text("secret")
    path.chmod(0o644)
    assert find_token(None, str(path), {}) == b"secret"
    message = capsys.readouterr().err
    assert str(path) in message
    assert "chmod 600" in message
    assert "secret" not in message
