"""Whose the errors of a store are, and which of them can pass."""

from __future__ import annotations

import pytest

from holdfast.coordination.errors import (
    BadAnswerError,
    CompactedError,
    CoordinationError,
    LeaseLostError,
    NoRoomError,
    StoreFullError,
    StoreRefusedError,
    StoreReplacedError,
    StoreUnavailableError,
)
from holdfast.errors.tree import Category, InfrastructureError


@pytest.mark.parametrize(
    "error", [StoreUnavailableError, StoreRefusedError, LeaseLostError, CompactedError, BadAnswerError, StoreFullError]
)
def test_a_store_is_infrastructure(error):
    assert issubclass(error, CoordinationError)
    assert issubclass(error, InfrastructureError)
    assert error("no").category is Category.INFRASTRUCTURE


def test_what_can_pass_is_unavailable_and_what_cannot_is_refused():
    assert issubclass(BadAnswerError, StoreUnavailableError)
    assert issubclass(StoreReplacedError, StoreUnavailableError)
    assert issubclass(StoreFullError, StoreRefusedError)
    for final in (StoreRefusedError, LeaseLostError, CompactedError):
        assert not issubclass(final, StoreUnavailableError)


def test_a_store_is_gone_only_if_the_error_says_so():
    assert not StoreUnavailableError("silent").is_gone
    assert StoreUnavailableError("refused", is_gone=True).is_gone
    assert StoreReplacedError("another").is_gone


def test_who_says_that_a_store_was_replaced_is_told():
    assert StoreReplacedError("another").is_proven
    assert not StoreReplacedError("another", is_proven=False).is_proven


def test_a_request_without_room_is_the_callers_to_answer_for():
    """The server must not take it for an error of the network."""
    assert issubclass(NoRoomError, ValueError)
    assert not issubclass(NoRoomError, CoordinationError)
