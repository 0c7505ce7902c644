from __future__ import annotations

import json

import pytest

from holdfast.errors import (
    Category,
    ChildFailedError,
    HoldfastError,
    InfrastructureError,
    InputError,
    PlatformError,
    UserError,
)


@pytest.mark.parametrize(
    ("error", "parents", "category"),
    [
        (UserError, [HoldfastError], Category.USER),
        (InputError, [UserError, ValueError], Category.USER),
        (ChildFailedError, [UserError], Category.USER),
        (PlatformError, [HoldfastError], Category.PLATFORM),
        (InfrastructureError, [HoldfastError], Category.INFRASTRUCTURE),
        (HoldfastError, [Exception], Category.PLATFORM),
    ],
)
def test_every_error_says_whose_it_is(error, parents, category):
    assert all(issubclass(error, parent) for parent in parents)
    assert error.category is category


def test_the_three_kinds_are_told_apart_by_class():
    kinds = [UserError, PlatformError, InfrastructureError]
    assert not any(issubclass(one, other) for one in kinds for other in kinds if one is not other)


def test_a_category_is_a_plain_word_outside_python():
    assert json.dumps(list(Category)) == '["user", "platform", "infrastructure"]'
