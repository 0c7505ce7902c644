"""What a backend is made from."""

from __future__ import annotations

import pytest

from holdfast.errors.tree import InputError
from holdfast.rendezvous.parameters import RendezvousParameters


def parameters(**settings):
    return RendezvousParameters("mine", "host:1", "run", 1, 2, **settings)


@pytest.mark.parametrize(
    ("value", "expected"), [("1", True), ("False", False), (True, True), ("on", True), (None, None)]
)
def test_parameters_as_bool(value, expected):
    assert parameters(key=value).get_as_bool("key") is expected
    assert parameters().get_as_bool("key", True) is True
    with pytest.raises(InputError, match="key=maybe"):
        parameters(key="maybe").get_as_bool("key")


def test_parameters_as_int():
    assert parameters(key="7").get_as_int("key") == 7
    assert parameters().get_as_int("key", 3) == 3
    with pytest.raises(InputError, match="key=x"):
        parameters(key="x").get_as_int("key")


@pytest.mark.parametrize("value", ["1.5", float("inf"), [], object()])
def test_what_is_no_whole_number_is_refused(value):
    with pytest.raises(InputError, match="write a whole number"):
        parameters(key=value).get_as_int("key")


@pytest.mark.parametrize(
    ("backend", "nodes", "words"),
    [("", (1, 1), "no rendezvous backend"), ("c10d", (0, 1), "min_nodes"), ("c10d", (3, 2), "max_nodes")],
)
def test_what_cannot_be_a_rendezvous_is_refused(backend, nodes, words):
    with pytest.raises(InputError, match=words):
        RendezvousParameters(backend, "host:1", "run", *nodes)


def test_settings_are_returned_as_they_were_given():
    given = parameters(key="7", other=None)
    assert (given.get("key"), given.get("other", 1), given.get("missing", 1)) == ("7", None, 1)
    assert (given.backend, given.endpoint, given.run_id, given.min_nodes, given.max_nodes) == (
        "mine",
        "host:1",
        "run",
        1,
        2,
    )
    assert (given.local_addr, parameters(local_addr="10.0.0.1").local_addr) == (None, "10.0.0.1")


def test_secrets_are_not_shown():
    assert "hunter2" not in repr(parameters(password="hunter2"))
    assert "key=" not in repr(parameters(key="seven"))
    assert "seven" in repr(parameters(key="seven"))
