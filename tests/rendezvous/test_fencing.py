"""A lease moves the fence of the workers, and the last will always names the present one."""

from __future__ import annotations

import os

import pytest

from holdfast.coordination import last_will
from holdfast.coordination.access import EmbeddedAccess
from holdfast.rendezvous.fencing import Fencing
from holdfast.rendezvous.last_will import LeaseWill


@pytest.fixture
def fencing():
    made = Fencing(lambda: LeaseWill(EmbeddedAccess("node0", 29400, b"secret"), 1.0, 3.0))
    yield made
    made.close(is_thread_over=True)


def named(will):
    return last_will.read(will.fd)[0]


def test_every_renewal_moves_the_fence(fencing):
    fences = []
    fencing.on_lease(fences.append)
    assert fences == [], "there is no lease yet"
    fencing.begin(0, float("inf"))
    assert fences == [], "no workers run while a place is sought"
    fencing.renewed(7, 1.0)
    fencing.renewed(7, 2.0)
    assert fences == [1.0, 2.0]


def test_a_new_set_is_given_the_present_fence_and_an_old_one_hears_no_more(fencing):
    old, new = [], []
    fencing.on_lease(old.append)
    fencing.renewed(7, 1.0)
    fencing.on_lease(new.append)
    fencing.renewed(7, 2.0)
    fencing.on_lease(None)
    fencing.renewed(7, 3.0)
    assert (old, new) == ([1.0], [1.0, 2.0])


def test_the_fence_of_a_place_that_is_sought_is_known(fencing):
    fences = []
    fencing.begin(7, 5.0)
    fencing.on_lease(fences.append)
    assert fences == [5.0]


def test_the_will_names_the_present_lease(fencing):
    assert fencing.last_will() is None
    fencing.renewed(7, 1.0)
    will = fencing.last_will()
    assert named(will) == 7
    fencing.renewed(8, 2.0)
    assert named(will) == 8
    assert fencing.last_will() is will


@pytest.mark.parametrize("is_thread_over", [True, False])
def test_the_will_is_closed_only_if_no_thread_may_write_to_it(fencing, is_thread_over):
    fencing.renewed(7, 1.0)
    will = fencing.last_will()
    fencing.close(is_thread_over=is_thread_over)
    assert fencing.last_will() is None
    if is_thread_over:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(will.fd)
    else:
        assert named(will) == 7
        will.close()
