"""Lines about clients: one about each thing, and few about all."""

from __future__ import annotations

import time

import pytest
from fresh_python import run_fresh

from holdfast.torchstore import telling
from holdfast.torchstore.telling import TELL_EVERY_S, TOLD_MAX, Teller


@pytest.fixture
def told(caplog):
    return lambda: [record.getMessage() for record in caplog.records]


@pytest.fixture
def passes(monkeypatch):
    """Lets time pass for whoever looks at the clock."""
    clock, ahead = time.monotonic, [0.0]
    monkeypatch.setattr(telling.time, "monotonic", lambda: clock() + ahead[0])

    def wait(seconds):
        ahead[0] += seconds

    return wait


def test_the_same_thing_is_told_once(told):
    teller = Teller()
    for number in range(3):
        teller.tell("a", "client %d did it", number)
    teller.tell("b", "another")
    assert told() == ["client 0 did it", "another"]


def test_it_is_told_again_after_a_while(told, passes):
    teller = Teller()
    teller.tell("a", "once")
    passes(TELL_EVERY_S + 1)
    teller.tell("a", "again")
    assert told() == ["once", "again"]


def test_of_many_things_few_are_told_until_a_while_is_over(told, passes):
    teller = Teller()
    for number in range(10 * TOLD_MAX):
        teller.tell(number, "thing %d", number)
    assert told() == [f"thing {number}" for number in range(TOLD_MAX)]
    passes(TELL_EVERY_S + 1)
    teller.tell("late", "late")
    assert told()[-1] == "late"


def test_two_tellers_know_nothing_of_each_other(told):
    Teller().tell("a", "one")
    Teller().tell("a", "two")
    assert told() == ["one", "two"]


def test_without_a_descriptor_for_an_import_nothing_fails():
    done = run_fresh("""
        import os, resource
        from holdfast.torchstore.telling import Teller
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
        Teller().tell("a", "nobody hears %s", "this")
        os.write(1, b"lives")
    """)
    assert (done.returncode, done.stdout) == (0, "lives")
