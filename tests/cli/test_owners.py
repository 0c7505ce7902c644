"""A warning about directories that somebody else could have filled."""

from __future__ import annotations

import os

import pytest

from holdfast.cli.owners import warn_of_other_owners

NOBODY = 65534
NAMELESS = 54321


@pytest.fixture
def directory_of(tmp_path):
    def make(uid, name):
        path = tmp_path / name
        path.mkdir()
        os.chown(path, uid, -1)
        return str(path)

    return make


def test_nothing_is_said_of_ones_own(tmp_path, capfd):
    warn_of_other_owners("holdfast report", [str(tmp_path), str(tmp_path / "missing")])
    assert capfd.readouterr().err == ""


@pytest.mark.root
def test_the_owner_is_named(directory_of, capfd):
    path = directory_of(NOBODY, "theirs")
    warn_of_other_owners("holdfast report", [path])
    assert capfd.readouterr().err == (
        f"holdfast report: {path!r} belongs to the user 'nobody', not to you: its content may be forged\n"
    )


@pytest.mark.root
def test_several_are_one_line_and_a_user_may_have_no_name(directory_of, capfd):
    paths = [directory_of(NAMELESS, "a"), directory_of(NOBODY, "b")]
    warn_of_other_owners("holdfast runs", paths)
    (line,) = capfd.readouterr().err.splitlines()
    assert f"{paths[0]!r} (and 1 more) belongs to the user with the id {NAMELESS}, not to you" in line
