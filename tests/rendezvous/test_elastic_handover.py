"""Nothing that a member says is lost on its way to the agent, whenever the agent wakes.

The member here is a script, and the agent sleeps where the test lets it: every order of what the member says and of
what the agent asks is tried. A sleep that nothing would end is a failure.
"""

from __future__ import annotations

import itertools
import select
from types import SimpleNamespace

import pytest

from holdfast.coordination.errors import StoreRefusedError
from holdfast.rendezvous import RendezvousConnectionError, RendezvousParameters
from holdfast.rendezvous.bridge import Bridge
from holdfast.rendezvous.decision import Leave, Me, Stop
from holdfast.rendezvous.elastic import ElasticRendezvous
from holdfast.rendezvous.elastic_settings import ElasticSettings
from holdfast.rendezvous.errors import RendezvousClosedError
from holdfast.rendezvous.group_listener import GroupListener
from holdfast.rendezvous.handover import Handover
from holdfast.rendezvous.records import End, EndKind, Generation, Keys, Member, StacksRequest

PATIENCE_S = 60.0


class StuckError(Exception):
    """The agent sleeps, and nothing will wake it."""


class ScriptedBridge(Bridge):
    """A bridge to nowhere: the other end runs nothing, and the agent sleeps in the test."""

    def __init__(self, sleep):
        self.is_open = True
        self.news = Handover()
        self.session = SimpleNamespace(seek=self._seek, succeed=None)
        self.seeks = 0
        self._sleep = sleep

    def _seek(self, *_):
        self.seeks += 1

    def start(self, _):
        """The script decides what follows from it."""

    def tell(self, *_):
        """The script decides what follows from it."""

    def blocking_store(self):
        """No test uses it."""

    def wait(self, deadline, meanwhile=None):
        del deadline, meanwhile
        self._sleep()


class Scripted(ElasticRendezvous):
    """An agent whose member says what a test gives it, at the moments that the test chooses.

    `said_at_once` is how much the member says each time before the agent wakes.
    """

    def __init__(self, said_at_once=()):
        params = RendezvousParameters("c10d", "localhost:1", "run", 1, 2)
        super().__init__("c10d", "run", ElasticSettings(params, {}))
        self._bridge = ScriptedBridge(self.sleep)
        self._membership = SimpleNamespace(me=Me(node="a.1"), view=None, has_joined=True)
        self._listener = GroupListener(
            *("run", Keys("run"), self._membership, None),
            tell=self._bridge.news.tell,
            start_in_loop=None,
            fencing=self._fencing,
        )
        self._listener.member = SimpleNamespace(trouble="", replaced="")
        self.script = []
        self._said_at_once = iter(said_at_once)

    @property
    def seeks(self):
        return self._bridge.seeks

    def runs(self, generation):
        """The member counts that generation as the one whose workers run here."""
        self._membership.me = Me(node="a.1", running=generation)

    def say(self, count=1):
        for _ in range(min(count, len(self.script))):
            self.script.pop(0)()

    def is_readable(self):
        return bool(select.select([self.fileno()], [], [], 0)[0])

    def sleep(self):
        """As an agent's wait does: it ends when the descriptor is readable, and only then."""
        while not self.is_readable():
            if not self.script:
                raise StuckError
            self.say(next(self._said_at_once, 1))

    def close(self):
        self._bridge.news.close()

    # What the member says

    def started(self, number):
        members = (Member("a.1", "a", "127.0.0.1", "default", 1),)

        def say():
            self.runs(number)
            self._listener.start(Generation(number, members, "127.0.0.1", 1, 0, 0))

        return say

    def stopped(self, number, reason=None):
        def say():
            self.runs(number)
            self._listener.stop(Stop(reason or f"generation {number} is broken"))

        return say

    def asked(self, number, node="b.1"):
        return lambda: self._listener.stacks(StacksRequest(number, f"request {number}", node, "a person asks"))

    def left(self, kind=EndKind.CLOSED):
        return lambda: self._listener.leave_group(Leave(End(kind, "the job is over"), "the job is over"))

    def broke(self):
        return lambda: self._listener.break_down(StoreRefusedError("not with this token"))


@pytest.fixture
def scripted():
    made = []

    def make(*said_at_once):
        made.append(Scripted(said_at_once))
        return made[-1]

    yield make
    for each in made:
        each.close()


def compositions(total):
    """Every way to say `total` things in portions of one or more."""
    for cuts in itertools.product((False, True), repeat=total - 1):
        portion, portions = 1, []
        for cut in cuts:
            if cut:
                portions.append(portion)
                portion = 1
            else:
                portion += 1
        yield (*portions, portion)


def until_over(agent):
    """As the agent's loop: it sleeps and then asks, and never asks before it has slept."""
    while True:
        agent.sleep()
        over = agent.round_over()
        if over is not None:
            return over


@pytest.mark.parametrize("portions", list(compositions(2)), ids=str)
def test_a_stop_that_follows_the_start_at_once_is_heard(scripted, portions):
    agent = scripted(*portions)
    agent.script = [agent.started(1), agent.stopped(1)]
    assert agent.next_rendezvous().generation == 1
    assert until_over(agent).reason == "generation 1 is broken"


@pytest.mark.parametrize("portions", list(compositions(6)), ids=str)
def test_round_after_round_is_broken_as_it_starts(scripted, portions):
    agent = scripted(*portions)
    for number in (1, 2, 3):
        agent.script = [agent.started(number), agent.stopped(number)]
        assert agent.next_rendezvous().generation == number
        assert until_over(agent).reason == f"generation {number} is broken"


def test_a_breakdown_that_follows_the_start_at_once_is_heard(scripted):
    agent = scripted(2)
    agent.script = [agent.started(1), agent.broke()]
    with pytest.raises(RendezvousConnectionError, match="not with this token"):
        agent.next_rendezvous()


def test_a_breakdown_ends_the_round_and_there_is_no_other(scripted):
    agent = scripted()
    agent.script = [agent.started(1), agent.stopped(1), agent.broke()]
    assert agent.next_rendezvous().generation == 1
    agent.say(2)
    assert "not with this token" in until_over(agent).reason
    with pytest.raises(RendezvousConnectionError, match="not with this token"):
        agent.next_rendezvous()
    assert agent.seeks == 1


@pytest.mark.parametrize("said_before", [0, 1])
def test_a_stop_of_the_last_round_is_not_for_the_next(scripted, said_before):
    """The workers ended by themselves, and the agent asked for a place before or after the member said stop."""
    agent = scripted()
    agent.script = [agent.started(1)]
    assert agent.next_rendezvous().generation == 1
    agent.script = [agent.stopped(1), agent.started(2)]
    agent.say(said_before)
    assert agent.next_rendezvous().generation == 2
    assert agent.round_over() is None
    assert not agent.is_readable()


ORDERS = sorted(set(itertools.permutations(("say", "say", "say", "round_over", "stacks_wanted", "round_over"))))


@pytest.mark.parametrize("order", ORDERS, ids=" ".join)
def test_whatever_the_agent_asks_between_it_does_not_sleep_over_the_end_of_its_round(scripted, order):
    agent = scripted()
    agent.script = [agent.started(1)]
    assert agent.next_rendezvous().generation == 1
    agent.script = [agent.asked(1), agent.stopped(1), agent.asked(1)]
    is_told, wishes = False, 0
    for step in order:
        if step == "say":
            agent.say()
        elif step == "round_over":
            is_told = agent.round_over() is not None or is_told
        else:
            wishes += agent.stacks_wanted() is not None
        is_stopped = len(agent.script) < 2  # the second of three
        assert is_told or not is_stopped or agent.is_readable(), "it would sleep over the stop"
    assert agent.round_over().reason == "generation 1 is broken"
    assert agent.round_over() is not None, "it stays over"
    assert wishes + (agent.stacks_wanted() is not None) >= 1
    assert agent.stacks_wanted() is None
    assert not agent.is_readable(), "all is told: an agent that is busy with its end must not spin"


@pytest.mark.parametrize("portions", list(compositions(3)), ids=str)
@pytest.mark.parametrize("is_needed_again", [False, True])
def test_a_done_node_hears_how_it_goes_on(scripted, portions, is_needed_again):
    agent = scripted(1, *portions)
    agent.script = [agent.started(1)]
    assert agent.next_rendezvous().generation == 1
    last = agent.stopped(1) if is_needed_again else agent.left(EndKind.SUCCEEDED)
    agent.script = [agent.asked(1), agent.asked(1), last]
    assert agent.wait_for_end(PATIENCE_S) is not is_needed_again
    if is_needed_again:
        assert agent.round_over().reason == "generation 1 is broken"


class Answering:
    """An agent that answers requests meanwhile, and finds out at once if the round is over while it does."""

    def __init__(self, agent):
        self.wishes = 0
        self._agent = agent

    def look(self):
        self.wishes += self._agent.stacks_wanted() is not None
        self._agent.round_over()


@pytest.mark.parametrize("portions", list(compositions(3)), ids=str)
@pytest.mark.parametrize("is_needed_again", [False, True])
def test_a_done_node_answers_meanwhile_and_still_hears_how_it_goes_on(scripted, portions, is_needed_again):
    agent = scripted(1, *portions)
    answering = Answering(agent)
    agent.do_meanwhile(answering)
    agent.script = [agent.started(1)]
    assert agent.next_rendezvous().generation == 1
    last = agent.stopped(1) if is_needed_again else agent.left(EndKind.SUCCEEDED)
    agent.script = [agent.asked(1), agent.asked(1), last]
    assert agent.wait_for_end(PATIENCE_S) is not is_needed_again
    assert answering.wishes >= 1


def test_a_request_for_stacks_is_there_once_and_only_in_its_round(scripted):
    agent = scripted()
    agent.script = [agent.started(1)]
    agent.next_rendezvous()
    agent.asked(1)()
    assert agent.is_readable()
    agent.round_over()
    assert not agent.is_readable()
    assert agent.stacks_wanted().id == "request 1"
    assert agent.stacks_wanted() is None
    agent.asked(1)()
    agent.script = [agent.started(2)]
    agent.next_rendezvous()
    assert agent.stacks_wanted() is None


def test_a_request_of_this_node_itself_is_not_answered(scripted):
    agent = scripted()
    agent.script = [agent.started(1)]
    agent.next_rendezvous()
    agent.asked(1, node="a.1")()
    assert not agent.is_readable()
    assert agent.stacks_wanted() is None


def test_the_end_is_told_also_to_an_agent_that_never_sleeps(scripted):
    agent = scripted()
    agent.script = [agent.left()]
    with pytest.raises(RendezvousClosedError, match="the job is over"):
        agent.next_rendezvous()
