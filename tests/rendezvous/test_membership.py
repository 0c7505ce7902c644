"""The automaton around the rules: what it asks of a store, and what it makes of answers that come late or never."""

from __future__ import annotations

from itertools import count

import msgspec
import pytest
from simulated_agent import offer

from holdfast.coordination.keyspace import KeySpace
from holdfast.coordination.model import Changes, Delete, Outcome, Put, Transaction
from holdfast.errors.kind import FailureKind
from holdfast.rendezvous.decision import LEASE_LOST, Leave, Settings, Start, Stop
from holdfast.rendezvous.elastic_settings import answer_timeout_s
from holdfast.rendezvous.membership import (
    FENCE_AT,
    GONE_AT,
    RETRY_S,
    STOP_AT,
    UNREADABLE_MAX,
    Follow,
    Grant,
    KeepAlive,
    Membership,
    Transact,
)
from holdfast.rendezvous.records import End, EndKind, Failure, Generation, Keys, encode

KEYS = Keys("job")
TTL_S = 10.0


class Talk:
    """A membership, a real key space, and the effects that were not carried out yet. Tests move the time."""

    def __init__(self, *, settings=None, store_may_return=True, ttl_s=TTL_S, keep_alive_s=2.5):
        self.now = 0.0
        numbers = count()  # 0 is the store's own, so leases are 1, 2, 3
        self.keyspace = KeySpace(random_bytes=lambda size: (next(numbers) << 1).to_bytes(size, "little"))
        self.membership = Membership(
            KEYS,
            settings or Settings(min_nodes=1, max_nodes=1),
            "a",
            ttl_s=ttl_s,
            keep_alive_s=keep_alive_s,
            store_may_return=store_may_return,
        )
        self.open = []
        self._end_watch = None

    def step(self):
        effects = self.membership.step(self.now)
        self.open += effects
        return effects

    def seek(self):
        self.membership.seek(offer("a", 29500), self.now)
        return self.step()

    def take(self, kind):
        """The oldest effect of a kind, which is no longer open."""
        effect = next(effect for effect in self.open if isinstance(effect, kind))
        self.open.remove(effect)
        return effect

    def read(self):
        prefix = self.take(Follow).prefix
        snapshot = self.keyspace.get_prefix(prefix)
        self.membership.read(snapshot, prefix)
        if self._end_watch is not None:
            self._end_watch()
        self._end_watch = self.keyspace.watch(
            prefix, snapshot.revision + 1, lambda changes: self.membership.changed(changes, prefix)
        )
        return self.step()

    def grant(self):
        self.membership.granted(self.keyspace.grant(self.take(Grant).ttl_s, self.now), self.now)
        return self.step()

    def transact(self):
        """The store carries out the transaction, and answers."""
        self.membership.answered(self.keyspace.transact(self.take(Transact).transaction))
        return self.step()

    def run(self):
        """Up to workers that run."""
        self.seek()
        self.read()
        self.grant()
        self.transact()  # join
        self.transact()  # lead
        self.read()
        effects = self.transact()  # generation
        assert [type(effect) for effect in effects] == [Start]
        self.open.clear()


@pytest.fixture
def talk():
    return Talk()


def kinds(effects):
    return [type(effect) for effect in effects]


def test_others_are_told_of_the_lease_that_was_granted(talk):
    """etcd grants whole seconds, and 2 s at least. If the store loses its data, others wait for that time."""
    talk.seek()
    talk.read()
    longer_s = 1.5 * talk.take(Grant).ttl_s
    talk.membership.granted(talk.keyspace.grant(longer_s, talk.now), talk.now)
    talk.step()
    talk.transact()  # join
    talk.transact()  # lead
    talk.read()
    made = talk.take(Transact).transaction.then[0]
    assert msgspec.json.decode(made.value, type=Generation).lease_s == longer_s
    assert talk.membership.fence_at < talk.now + longer_s


def test_it_reads_before_it_writes(talk):
    assert talk.seek() == [Follow(KEYS.shared)]
    assert talk.step() == []
    assert talk.read() == [Grant(TTL_S)]


def test_it_makes_one_request_at_a_time(talk):
    talk.seek()
    talk.read()
    assert talk.step() == []
    assert kinds(talk.grant()) == [Transact]
    assert talk.step() == []


def test_a_leader_follows_the_whole_group(talk):
    talk.seek()
    talk.read()
    talk.grant()
    assert [effect.what for effect in talk.transact()] == ["lead"]
    assert talk.transact() == [Follow(KEYS.group)]


def test_what_it_changed_itself_it_does_not_propose_again_before_it_sees_it(talk):
    talk.seek()
    talk.read()
    talk.grant()
    talk._end_watch()
    talk.transact()
    claim = talk.take(Transact)
    talk.membership.answered(talk.keyspace.transact(claim.transaction))
    assert talk.step() == []
    talk.open.append(Follow(KEYS.shared))
    assert talk.read() == [Follow(KEYS.group)]


def test_what_was_refused_is_proposed_again_only_when_something_has_changed(talk):
    talk.seek()
    talk.read()
    talk.grant()
    talk._end_watch()
    talk.transact()
    claim = talk.take(Transact)
    talk.keyspace.transact(Transaction((), (Put(KEYS.leader, b"b.1"),)))
    talk.membership.answered(talk.keyspace.transact(claim.transaction))
    assert talk.step() == []
    talk.membership.changed(Changes(talk.keyspace.revision, ()), KEYS.shared)
    assert talk.step() == [claim]


def test_it_tries_again_a_while_after_a_request_without_an_answer(talk):
    talk.seek()
    talk.read()
    talk.membership.unavailable(talk.take(Grant), talk.now)
    assert talk.step() == []
    assert talk.membership.wake_at == RETRY_S
    talk.now = RETRY_S
    assert talk.step() == [Grant(TTL_S)]


def test_a_registration_that_was_carried_out_without_an_answer_is_found_and_brought_up_to_date(talk):
    talk.seek()
    talk.read()
    talk.grant()
    join = talk.take(Transact)
    talk.keyspace.transact(join.transaction)
    talk.membership.unavailable(join, talk.now)
    talk.now = RETRY_S
    talk.step()
    assert [effect.what for effect in talk.transact()] == ["ready"]
    assert [effect.what for effect in talk.transact()] == ["lead"]
    assert [entry.key for entry in talk.keyspace.get_prefix(KEYS.nodes).entries] == [KEYS.node("a.1")]


def test_a_lease_counts_from_when_its_renewal_was_sent(talk):
    talk.run()
    talk.now = 2.5
    assert talk.step() == [KeepAlive(1)]
    assert talk.step() == []
    talk.now = 4.0
    talk.membership.kept(TTL_S, 2.5)
    assert talk.membership.fence_at == 2.5 + TTL_S * FENCE_AT
    assert talk.membership.me.stop_by == 2.5 + TTL_S * STOP_AT
    talk.step()
    assert talk.membership.wake_at == 5.0


def test_it_tells_workers_to_stop_before_they_are_killed_and_before_the_lease_ends(talk):
    talk.run()
    talk.now = 2.5
    talk.step()
    talk.now = TTL_S * STOP_AT
    assert kinds(talk.step()) == [Stop]
    assert talk.now < talk.membership.fence_at < TTL_S


def test_workers_are_told_to_stop_once(talk):
    talk.run()
    talk.membership.lease_lost(KeepAlive(1))
    assert talk.step() == [Stop(LEASE_LOST), Follow(KEYS.shared)]
    assert talk.step() == []


def test_another_lease_is_another_node(talk):
    talk.run()
    talk.keyspace.revoke(1)
    talk.membership.lease_lost(KeepAlive(1))
    talk.step()
    talk.seek()
    talk.read()
    talk.grant()
    assert talk.membership.me.node == "a.2"


def test_a_lease_that_is_lost_leaves_the_request_that_is_under_way_alone(talk):
    talk.seek()
    talk.read()
    talk.grant()
    join = talk.take(Transact)
    talk.membership.lease_lost(KeepAlive(1))
    assert talk.step() == []
    talk.membership.answered(talk.keyspace.transact(join.transaction))
    assert talk.membership.me.published is None
    assert talk.step() == [Grant(TTL_S)]
    assert talk.step() == []


def test_news_of_a_lease_that_is_long_gone_is_no_news(talk):
    talk.seek()
    talk.read()
    talk.grant()
    talk.membership.lease_lost(talk.take(Transact))
    talk.step()
    talk.grant()
    talk.membership.lease_lost(KeepAlive(1))
    assert talk.membership.me.lease == 2


def test_the_word_that_a_generation_is_done_counts_for_no_other(talk):
    talk.run()
    talk.membership.succeed()
    talk.step()
    done = talk.take(Transact)
    talk.seek()
    talk.membership.answered(talk.keyspace.transact(done.transaction))
    assert not talk.membership.me.is_done_published


def test_a_place_that_refuses_connections_is_no_store_any_more_when_it_did_for_too_long():
    talk = Talk(store_may_return=False)
    talk.run()
    began = talk.now
    talk.membership.unavailable(KeepAlive(1), talk.now, is_gone=True)
    assert talk.step() == []  # anybody on the way can refuse in its name
    talk.now = began + TTL_S * GONE_AT - 0.1
    talk.membership.unavailable(KeepAlive(1), talk.now, is_gone=True)
    assert Stop not in kinds(talk.step())
    talk.now = began + TTL_S * GONE_AT
    assert Stop not in kinds(talk.step()), "the next attempt may succeed: it is not over yet"
    talk.membership.unavailable(KeepAlive(1), talk.now, is_gone=True)
    assert [effect.reason for effect in talk.step() if isinstance(effect, Stop)] == ["the job's store is gone"]


def test_a_store_that_was_replaced_by_one_that_knows_the_token_is_gone_at_once():
    """Workers of its job must not run beside those of the next one for longer than it takes to hear of it."""
    talk = Talk(store_may_return=False)
    talk.run()
    talk.membership.unavailable(KeepAlive(1), talk.now, is_gone=True, is_proven=True)
    assert [effect.reason for effect in talk.step() if isinstance(effect, Stop)] == ["the job's store is gone"]


def test_a_place_that_may_have_a_store_again_is_waited_for():
    talk = Talk(store_may_return=True)
    talk.run()
    talk.membership.unavailable(KeepAlive(1), talk.now, is_gone=True)
    talk.now += TTL_S * STOP_AT
    assert [effect.reason for effect in talk.step() if isinstance(effect, Stop)] == [
        "the store cannot be reached; the others will count this node as lost"
    ]


def test_a_place_that_was_taken_for_gone_and_answers_again_is_there():
    talk = Talk(store_may_return=False)
    talk.run()
    talk.membership.unavailable(KeepAlive(1), talk.now, is_gone=True)
    talk.step()
    talk.membership.kept(TTL_S, talk.now + 1.0)
    talk.now += TTL_S * GONE_AT
    assert Stop not in kinds(talk.step())
    assert not talk.membership.me.store_is_gone


def test_a_place_that_falls_silent_after_a_refusal_is_not_gone():
    """Somebody on the way has said a word, and then cut the line: the store may come back."""
    talk = Talk(store_may_return=False)
    talk.run()
    talk.membership.unavailable(KeepAlive(1), talk.now, is_gone=True)
    talk.membership.unavailable(KeepAlive(1), talk.now)
    talk.now += TTL_S * GONE_AT
    talk.step()
    assert not talk.membership.me.store_is_gone


def test_silence_before_a_refusal_is_no_refusal():
    talk = Talk(store_may_return=False)
    talk.run()
    talk.membership.unavailable(KeepAlive(1), talk.now)
    talk.now += TTL_S * GONE_AT
    talk.membership.unavailable(KeepAlive(1), talk.now, is_gone=True)
    talk.step()
    assert not talk.membership.me.store_is_gone


def test_a_renewal_that_was_silent_for_long_is_repeated_at_once_and_a_refused_one_after_a_pause(talk):
    talk.run()
    talk.now = talk.membership.wake_at
    assert KeepAlive in kinds(talk.step())
    talk.membership.unavailable(talk.take(KeepAlive), talk.now)
    talk.step()
    assert talk.membership.wake_at == talk.now + RETRY_S
    talk.now += RETRY_S
    assert KeepAlive in kinds(talk.step())
    talk.now += TTL_S / 3
    talk.membership.unavailable(talk.take(KeepAlive), talk.now)
    assert KeepAlive in kinds(talk.step())


@pytest.mark.parametrize("attempts", [2, 3, 8])
def test_one_lost_answer_leaves_time_for_another_try(attempts):
    ttl_s = 1.0 * attempts
    talk = Talk(ttl_s=ttl_s, keep_alive_s=1.0)
    talk.run()
    talk.now = sent_at = talk.membership.wake_at
    talk.step()
    talk.now += answer_timeout_s(ttl_s)
    talk.membership.unavailable(talk.take(KeepAlive), talk.now)
    assert KeepAlive in kinds(talk.step())
    assert talk.now + ttl_s * 0.05 < talk.membership.me.stop_by, f"renewed at {sent_at} s"


def test_a_store_whose_records_can_never_be_read_is_given_up(talk):
    talk.seek()
    talk.read()
    talk.membership.unreadable(UNREADABLE_MAX)
    assert Leave not in kinds(talk.step())
    talk.membership.unreadable(1)
    (left,) = [effect for effect in talk.step() if isinstance(effect, Leave)]
    assert "are unreadable" in left.reason


def test_a_node_without_a_lease_believes_that_the_store_is_gone_as_late():
    talk = Talk(store_may_return=False)
    talk.seek()
    talk.read()
    talk.membership.unavailable(talk.take(Grant), talk.now, is_gone=True)
    assert Leave not in kinds(talk.step())
    talk.now += TTL_S * GONE_AT
    talk.membership.unavailable(Grant(TTL_S), talk.now, is_gone=True)
    assert Leave in kinds(talk.step())


def test_a_place_where_there_was_no_store_yet_may_have_one_later():
    talk = Talk(store_may_return=False)
    talk.seek()
    talk.membership.unavailable(Follow(KEYS.shared), talk.now, is_gone=True)
    assert talk.step() == []
    assert talk.membership.wake_at == 600.0


def test_who_has_left_does_nothing_any_more(talk):
    talk.seek()
    end = End(EndKind.SUCCEEDED, "well")
    talk.keyspace.transact(Transaction((), (Put(KEYS.end, encode(end)),)))
    assert talk.read() == [Leave(end, "well")]
    assert talk.step() == []
    assert talk.membership.wake_at is None


def test_answers_about_what_is_no_longer_followed_are_ignored(talk):
    talk.seek()
    talk.membership.read(talk.keyspace.get_prefix(KEYS.group), KEYS.group)
    talk.membership.changed(Changes(9, ()), KEYS.group)
    assert talk.membership.view is None


def test_a_failure_without_workers_is_none(talk):
    talk.seek()
    talk.membership.fail(None)
    assert talk.membership.me.failure is None


def failed(rank, kind=FailureKind.EXCEPTION, others=0):
    return Failure("a.1", "a", rank, rank, 77, 1, "why", 1.0, kind=kind, others=others)


def test_the_cause_takes_the_place_of_a_victim_that_was_told_of_first(talk):
    talk.run()
    talk.membership.fail(failed(1, FailureKind.COMMUNICATION))
    talk.membership.fail(failed(0))
    talk.membership.fail(failed(1, FailureKind.COMMUNICATION))
    assert talk.membership.me.failure == failed(0)


def test_how_many_others_failed_is_learnt_although_another_was_told_of_first(talk):
    talk.run()
    talk.membership.fail(failed(1))
    talk.membership.fail(failed(0, others=1))
    assert talk.membership.me.failure == failed(1, others=1)


def test_closing_ends_the_job_for_all(talk):
    talk.run()
    talk.membership.close(End(EndKind.CLOSED, "cannot go on"))
    assert [effect.what for effect in talk.step()] == ["close: cannot go on"]
    assert talk.transact() == [Leave(End(EndKind.CLOSED, "cannot go on"), "cannot go on")]


def test_an_answer_to_nothing_is_harmless(talk):
    talk.seek()
    talk.membership.answered(Outcome(succeeded=True, revision=2))
    assert talk.step() == []


# The store has lost the record


def test_a_fence_that_was_final_is_not_the_next_generations(talk):
    talk.run()
    talk.keyspace.transact(Transaction((), (Delete(KEYS.generation),)))
    (stop,) = [effect for effect in talk.step() if isinstance(effect, Stop)]
    assert stop.is_final
    fence_at = talk.membership.fence_at
    talk.now += 5.0
    talk.membership.kept(TTL_S, talk.now)
    assert talk.membership.fence_at == fence_at
    talk.seek()
    assert talk.membership.fence_at == talk.now + TTL_S * FENCE_AT


def test_a_node_knows_by_its_own_clock_that_its_lease_has_lapsed_until_it_starts_again(talk):
    talk.run()
    talk.now += TTL_S - 0.1
    talk.membership.kept(TTL_S, talk.now)
    assert not talk.membership.me.has_lapsed
    talk.now += TTL_S
    talk.membership.kept(TTL_S, talk.now)
    assert talk.membership.me.has_lapsed
    talk.now += 0.1
    talk.membership.kept(TTL_S, talk.now)
    assert talk.membership.me.has_lapsed, "a lease that holds again does not tell what was missed"


def test_what_had_nothing_to_delete_is_not_waited_for(talk):
    """Another run may have moved the store's revision, and nothing that we follow will ever reach it."""
    talk.run()
    assert talk.membership._is_followed((Put(KEYS.short, b""),))
    assert not talk.membership._is_followed((Delete(KEYS.short),))
