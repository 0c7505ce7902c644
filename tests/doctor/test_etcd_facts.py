"""What the doctor asks an etcd, with members that say what a test wants. Real clusters are in test_etcd.py."""

from __future__ import annotations

import grpc
import pytest
from rogue_etcd import Refusal, RogueEtcd, header

from holdfast.coordination import etcd_messages as messages
from holdfast.doctor.context import Meeting, TlsFiles
from holdfast.doctor.etcd_facts import MEMBERS_MAX, Status, probe
from holdfast.doctor.network import Reach
from holdfast.rendezvous.hosting import free_port

NOT_PERMITTED = Refusal(grpc.StatusCode.PERMISSION_DENIED, "etcdserver: permission denied")
NO_LEADER = Refusal(grpc.StatusCode.UNAVAILABLE, "etcdserver: no leader")


def facts_of(*endpoints, **fields):
    return probe(Meeting("etcd", endpoints, ttl_s=5.0, **fields))


def closed():
    return "127.0.0.1", free_port("127.0.0.1")


def test_the_status_of_a_member_has_its_alarms_and_the_size_of_its_cluster():
    alarms = [messages.AlarmMember(alarm=number) for number in (1, 2, 9)]
    said = {
        "Status": messages.StatusResponse(header=header(), version="3.5.0\x1b", leader=7, dbSize=1234),
        "Alarm": messages.AlarmResponse(header=header(), alarms=alarms),
        "MemberList": messages.MemberListResponse(header=header(), members=[messages.Member()] * 3),
    }
    with RogueEtcd(**said) as etcd:
        (member,) = facts_of(etcd.endpoint).members
    version, *rest = member.status
    assert rest == [7, 1, 1234, 3, ("NOSPACE", "CORRUPT", "9")]
    assert version.isprintable()
    assert (member.place, member.error) == (f"127.0.0.1:{etcd.endpoint[1]}", "")


def test_a_user_who_may_not_ask_for_more_still_gets_the_status():
    with RogueEtcd(Alarm=NOT_PERMITTED, MemberList=NOT_PERMITTED) as etcd:
        (member,) = facts_of(etcd.endpoint).members
    assert member.status == Status("3.5.0", 1, 1, 0, members=None, alarms=())


def test_a_key_that_was_written_and_is_not_there_is_told():
    """A member of no cluster, or a proxy, may say yes to everything."""
    with RogueEtcd() as etcd:
        assert facts_of(etcd.endpoint).trial.error == "a key that was written is not there"


@pytest.mark.parametrize(
    ("refusal", "is_refused", "words"), [(NOT_PERMITTED, True, "refuses access"), (NO_LEADER, False, "has no leader")]
)
def test_a_trial_tells_a_refusal_from_an_outage(refusal, is_refused, words):
    with RogueEtcd(LeaseGrant=refusal) as etcd:
        trial = facts_of(etcd.endpoint).trial
    assert (trial.is_refused, words in trial.error) == (is_refused, True)


def test_a_member_without_a_leader_has_no_status_and_there_is_no_trial():
    with RogueEtcd(Status=NO_LEADER) as etcd:
        facts = facts_of(etcd.endpoint)
    (member,) = facts.members
    assert (member.status, member.speaks_tls, facts.trial) == (None, False, None)
    assert "has no leader" in member.error


def test_each_member_is_looked_at_and_one_that_is_down_is_asked_nothing():
    with RogueEtcd() as etcd:
        down, up = facts_of(closed(), etcd.endpoint).members
    assert (down.attempt.reach, down.status, down.error) == (Reach.REFUSED, None, "")
    assert (up.attempt.reach, up.status.version) == (Reach.CONNECTED, "3.5.0")


def test_so_many_endpoints_are_looked_at():
    assert len(facts_of(*([closed()] * (MEMBERS_MAX + 1))).members) == MEMBERS_MAX


def test_without_usable_certificates_members_are_only_connected_to():
    with RogueEtcd() as etcd:
        facts = facts_of(etcd.endpoint, tls=TlsFiles("/no/such/file", None, None))
    assert "/no/such/file" in facts.client_error
    (member,) = facts.members
    assert (member.attempt.reach, member.status, facts.trial) == (Reach.CONNECTED, None, None)
