"""What an agent knows of its round and its job, by the events that it has read."""

from __future__ import annotations

import select

import pytest

from holdfast.rendezvous.handover import Broke, Ended, Handover, Left, Reached, Recorded, Started, Stopped
from holdfast.rendezvous.records import End, EndKind, Generation, Member

END = End(EndKind.CLOSED, "somebody closed it")


@pytest.fixture
def news():
    made = Handover()
    yield made
    made.close()


def started(number):
    members = (Member("a.1", "a", "127.0.0.1", "default", 1),)
    return Started(Generation(number, members, "127.0.0.1", 1, 0, 0), 0, None)


def is_readable(news):
    return bool(select.select([news], [], [], 0)[0])


def test_nothing_is_known_before_it_is_read(news):
    news.tell(Reached())
    assert is_readable(news)
    assert not news.is_reached
    news.take_in()
    assert news.is_reached
    assert not is_readable(news)


def test_success_is_recorded_for_its_own_round_only(news):
    news.tell(Recorded(1))
    news.take_in()
    assert not news.is_recorded, "there is no round"
    news.tell(started(1))
    news.tell(Recorded(1))
    news.take_in()
    assert news.is_recorded
    news.seek()
    assert not news.is_recorded
    news.tell(Recorded(1))
    news.tell(started(2))
    news.tell(Recorded(1))
    news.take_in()
    assert not news.is_recorded


def test_the_end_of_the_job_is_no_end_of_the_round_and_outlasts_it(news):
    news.tell(started(1))
    news.tell(Ended(END))
    assert news.tell_end() is None
    assert news.end == END
    news.seek()
    news.take_in()
    assert news.end == END
    assert not is_readable(news)


def test_the_first_error_is_the_cause(news):
    first = Broke(ValueError("first"))
    news.tell(first)
    news.tell(Broke(ValueError("second")))
    assert news.tell_end() is first


def test_of_several_reasons_the_most_final_one_counts(news):
    news.tell(started(1))
    news.tell(Stopped(1, "broken", may_finish=False))
    assert news.tell_end() == Stopped(1, "broken", may_finish=False)
    news.tell(Left(END, "closed"))
    assert news.tell_end() == Left(END, "closed")
