"""Which member of a cluster is asked, which is kept, and which is given up. The members say what a test wants."""

from __future__ import annotations

import asyncio
import socket
import threading

import grpc
import pytest
from rogue_etcd import Refusal, RogueEtcd, header

from holdfast.coordination import etcd_messages as messages
from holdfast.coordination.errors import BadAnswerError, StoreRefusedError, StoreUnavailableError
from holdfast.coordination.etcd_connection import NEEDS_LEADER, EtcdConnection
from holdfast.coordination.etcd_errors import (
    InsecureError,
    NoLeaderError,
    NotDoneError,
    OldTokenError,
    OtherClusterError,
)
from holdfast.errors.tree import InputError

LONG_S = 120.0
PATIENT_S = 60.0
"""An answer timeout with which no member that is only slow is given up."""

HASTY_S = 6.0
"""An answer timeout with which an answer is soon overdue."""

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
BROKEN = Refusal(UNAVAILABLE, "Socket closed")
NO_LEADER = Refusal(UNAVAILABLE, "etcdserver: no leader")
TIMED_OUT = Refusal(UNAVAILABLE, "etcdserver: request timed out")
OVERLOADED = Refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, "etcdserver: too many requests")
NOT_PERMITTED = Refusal(grpc.StatusCode.PERMISSION_DENIED, "etcdserver: permission denied")
OLD_TOKEN = Refusal(grpc.StatusCode.UNAUTHENTICATED, "etcdserver: invalid auth token")
NO_PASSWORDS = Refusal(grpc.StatusCode.FAILED_PRECONDITION, "etcdserver: authentication is not enabled")
BAD_CERTIFICATE = Refusal(UNAVAILABLE, "tls: bad certificate")


class Played(RogueEtcd):
    """A member that keeps what it was asked, says each of `once` before `said`, and is silent where it is told to."""

    def __init__(self, **said):
        self.asked = []
        self.metadata = []
        self.once = {}
        self._silent = {}
        self._news = threading.Condition()
        super().__init__(**said)

    def __exit__(self, *error):
        self.speak()
        super().__exit__(*error)

    def be_silent(self, *methods):
        self._silent = dict.fromkeys(methods, threading.Event())

    def speak(self):
        for may_speak in self._silent.values():
            may_speak.set()

    def wait_until_asked(self, method, times):
        with self._news:
            assert self._news.wait_for(lambda: self.asked.count(method) >= times, LONG_S)

    def answer(self, method, context):
        with self._news:
            self.asked.append(method)
            self.metadata.append(tuple(pair for pair in context.invocation_metadata() if pair[0] != "user-agent"))
            self._news.notify_all()
        if method in self._silent:
            self._silent[method].wait(LONG_S)
        if method in self.once:
            refusal = self.once.pop(method)
            context.abort(refusal.code, refusal.details)
        return super().answer(method, context)


def read(member):
    return member.methods.range(messages.RangeRequest(key=b"a"))


def write(member):
    return member.methods.transact(messages.TxnRequest())


def told(story, *members, answer_timeout_s=PATIENT_S, credentials=None):
    """Tell a story about the connection to these members."""

    async def tell():
        endpoints = [member.endpoint for member in members]
        connection = EtcdConnection(endpoints, credentials, None, answer_timeout_s)
        try:
            async with asyncio.timeout(LONG_S):
                await story(connection)
        finally:
            for member in members:
                member.speak()
            await connection.close()

    asyncio.run(tell())


async def until_asked(member, method, times):
    await asyncio.to_thread(member.wait_until_asked, method, times)


@pytest.fixture
def a():
    with Played() as member:
        yield member


@pytest.fixture
def b():
    with Played() as member:
        yield member


# Which member is asked


def test_the_first_member_that_answers_is_used_and_no_other_is_asked(a, b):
    async def story(connection):
        assert (await connection.member()).endpoint == a.endpoint
        await connection.request(read, may_repeat=True)
        await connection.request(write)
        assert (a.asked, b.asked) == (["Status", "Range", "Txn"], [])

    told(story, a, b)


def test_a_member_that_is_named_twice_is_asked_once(a):
    a.said["Range"] = NOT_PERMITTED

    async def story(connection):
        with pytest.raises(StoreRefusedError):
            await connection.request(read, may_repeat=True)
        assert a.asked == ["Range"]

    told(story, a, a)


def test_the_next_member_is_used_when_a_connection_breaks(a, b):
    async def story(connection):
        await connection.member()
        a.said["Range"] = BROKEN
        await connection.request(read, may_repeat=True)
        del a.said["Range"]
        await connection.request(read, may_repeat=True)
        assert (a.asked.count("Range"), b.asked.count("Range")) == (1, 2)
        assert (await connection.member()).endpoint == b.endpoint

    told(story, a, b)


def test_a_member_that_answers_with_an_error_is_used_again(a, b):
    """An error of etcd's own shows that the connection works; a watch on it must not break."""

    async def story(connection):
        member = await connection.member()
        a.once["Range"] = TIMED_OUT
        await connection.request(read, may_repeat=True)
        await connection.request(read, may_repeat=True)
        assert (a.asked.count("Range"), b.asked.count("Range")) == (2, 1)
        assert await connection.member() is member

    told(story, a, b)


def test_another_member_is_asked_too_when_an_answer_is_overdue(a, b):
    a.be_silent("Range")

    async def story(connection):
        await connection.request(read, may_repeat=True)
        assert (a.asked, b.asked) == (["Range"], ["Range"])

    told(story, a, b, answer_timeout_s=HASTY_S)


def test_what_must_not_be_done_twice_is_sent_to_one_member_however_slow(a, b):
    async def story(connection):
        await connection.member()
        a.be_silent("Txn")
        request = asyncio.ensure_future(connection.request(write))
        await until_asked(a, "Status", times=2)  # the answer was overdue, and a sign of life was asked for
        a.speak()
        await request
        assert (a.asked.count("Txn"), b.asked) == (1, [])
        assert (await connection.member()).endpoint == a.endpoint

    told(story, a, b, answer_timeout_s=HASTY_S)


def test_a_member_that_gives_no_sign_of_life_is_given_up_with_its_requests(a, b):
    async def story(connection):
        await connection.member()
        a.be_silent("Txn", "Status")
        with pytest.raises(StoreUnavailableError, match=f"etcd at 127.0.0.1:{a.endpoint[1]} was given up"):
            await connection.request(write)
        await connection.request(write)
        assert (a.asked.count("Txn"), b.asked) == (1, ["Status", "Txn"])

    told(story, a, b, answer_timeout_s=HASTY_S)


def test_a_member_that_answers_with_nonsense_is_given_up(a, b):
    async def story(connection):
        await connection.member()
        a.said["Txn"] = b"\xff" * 9
        with pytest.raises(BadAnswerError):
            await connection.request(write)
        assert (await connection.member()).endpoint == b.endpoint

    told(story, a, b)


# Members that cannot serve


@pytest.mark.parametrize(
    "status",
    [NO_LEADER, messages.StatusResponse(header=header(), version="3.5.0", leader=1, isLearner=True)],
    ids=["no leader", "learner"],
)
def test_a_member_that_cannot_serve_is_passed_over(a, b, status):
    a.said["Status"] = status

    async def story(connection):
        assert (await connection.member()).endpoint == b.endpoint

    told(story, a, b)


def test_a_member_that_has_lost_its_leader_is_left_for_one_that_has_one(a, b):
    async def story(connection):
        await connection.member()
        a.said.update(Range=NO_LEADER, Status=NO_LEADER)
        await connection.request(read, may_repeat=True)
        assert (await connection.member()).endpoint == b.endpoint
        a.said.clear()
        await connection.request(read, may_repeat=True)
        assert b.asked.count("Range") == 2

    told(story, a, b)


def test_a_member_that_has_found_a_leader_again_is_kept(a, b):
    async def story(connection):
        member = await connection.member()
        a.once["Range"] = NO_LEADER
        await connection.request(read, may_repeat=True)
        assert b.asked == ["Range"]
        assert await connection.member() is member

    told(story, a, b)


def test_only_a_request_that_was_certainly_not_carried_out_is_sent_again(a):
    async def story(connection):
        await connection.member()
        a.once["Txn"] = OVERLOADED
        await connection.request(write)
        assert a.asked.count("Txn") == 2
        a.once["Txn"] = TIMED_OUT
        with pytest.raises(StoreUnavailableError, match="request timed out"):
            await connection.request(write)
        assert a.asked.count("Txn") == 3

    told(story, a)


@pytest.mark.parametrize(("request_to", "may_repeat"), [(read, True), (write, False)])
def test_a_member_that_cannot_serve_is_asked_until_the_time_is_over(a, request_to, may_repeat):
    a.said.update(Range=OVERLOADED, Txn=OVERLOADED)

    async def story(connection):
        with pytest.raises(NotDoneError, match="is overloaded"):
            await connection.request(request_to, may_repeat=may_repeat)
        assert len([method for method in a.asked if method != "Status"]) > 1

    told(story, a, answer_timeout_s=2.0)


def test_what_no_member_answers_is_one_line_that_names_all(a, b):
    for member in (a, b):
        member.be_silent("Status")

    async def story(connection):
        names = f"127.0.0.1:{a.endpoint[1]}, 127.0.0.1:{b.endpoint[1]}"
        with pytest.raises(StoreUnavailableError, match=rf"^etcd at {names} does not answer within 0\.5 s$"):
            await connection.member()

    told(story, a, b, answer_timeout_s=0.5)


def test_a_refusal_says_more_than_a_member_that_is_down(a, b):
    a.said["Range"] = NOT_PERMITTED
    b.said["Range"] = BROKEN

    async def story(connection):
        with pytest.raises(StoreRefusedError, match="refuses access"):
            await connection.request(read, may_repeat=True)

    told(story, b, a)


# The cluster


def test_a_member_of_another_cluster_is_given_up_and_the_right_one_is_asked(a, b):
    async def story(connection):
        await connection.request(read, may_repeat=True)
        other = messages.ResponseHeader(cluster_id=2, revision=10, raft_term=9)
        a.said["Range"] = messages.RangeResponse(header=other)
        answer = await connection.request(read, may_repeat=True)
        assert answer.header.cluster_id == 1
        assert (await connection.member()).endpoint == b.endpoint
        assert connection.term == 1, "the other cluster's elections are none of ours"

    told(story, a, b)


def test_a_cluster_that_was_replaced_is_refused_once_no_other_member_is_left(a):
    async def story(connection):
        await connection.member()
        other = messages.ResponseHeader(cluster_id=2, revision=10, raft_term=1)
        a.said["Txn"] = messages.TxnResponse(header=other, succeeded=True)
        a.said["Status"] = messages.StatusResponse(header=other, version="3.5.0", leader=1)
        with pytest.raises(StoreUnavailableError, match="belongs to the cluster 2, and this job started in 1"):
            await connection.request(write)
        with pytest.raises(OtherClusterError, match="start the job again with another --rdzv-id"):
            await connection.request(write)

    told(story, a)


def test_the_highest_term_is_remembered(a):
    async def story(connection):
        for term in (3, 2):
            said = messages.ResponseHeader(cluster_id=1, revision=10, raft_term=term)
            a.said["Range"] = messages.RangeResponse(header=said)
            await connection.request(read, may_repeat=True)
        assert connection.term == 3

    told(story, a)


def test_a_certificate_that_fails_later_is_the_networks_fault_and_not_ours(a):
    async def story(connection):
        a.said["Range"] = BAD_CERTIFICATE
        with pytest.raises(InsecureError):
            await connection.request(read, may_repeat=True)
        del a.said["Range"]
        await connection.request(read, may_repeat=True)
        a.said["Range"] = BAD_CERTIFICATE
        with pytest.raises(StoreUnavailableError, match="no secure connection"):
            await connection.request(read, may_repeat=True)

    told(story, a)


# Passwords


def test_every_request_wants_a_leader_and_has_the_token_once_there_is_one(a):
    async def story(connection):
        await connection.member()
        assert a.asked == ["Authenticate", "Status"]
        assert a.metadata[0] == (NEEDS_LEADER,)
        assert connection.metadata == (NEEDS_LEADER, ("token", "token.1"))
        assert a.metadata[1] == connection.metadata

    told(story, a, credentials=("user", "password"))


def test_without_a_password_nobody_logs_in(a):
    a.said["Range"] = OLD_TOKEN

    async def story(connection):
        with pytest.raises(OldTokenError):
            await connection.request(read, may_repeat=True)
        assert a.asked == ["Range"]
        assert connection.metadata == (NEEDS_LEADER,)

    told(story, a)


def test_a_token_that_is_no_longer_accepted_is_replaced_and_the_request_repeated(a):
    async def story(connection):
        await connection.member()
        a.once["Txn"] = OLD_TOKEN
        a.said["Authenticate"] = messages.AuthenticateResponse(header=header(), token="token.2")
        await connection.request(write)
        assert a.asked == ["Authenticate", "Status", "Txn", "Authenticate", "Txn"]
        assert connection.metadata == (NEEDS_LEADER, ("token", "token.2"))

    told(story, a, credentials=("user", "password"))


def test_a_cluster_without_passwords_is_used_without_a_token(a):
    a.said["Authenticate"] = NO_PASSWORDS

    async def story(connection):
        await connection.request(read, may_repeat=True)
        await connection.request(read, may_repeat=True)
        assert a.asked == ["Authenticate", "Range", "Range"]
        assert connection.metadata == (NEEDS_LEADER,)

    told(story, a, credentials=("user", "password"))


def test_a_user_who_may_not_ask_for_the_status_can_use_the_member(a):
    a.said["Status"] = NOT_PERMITTED

    async def story(connection):
        assert (await connection.member()).endpoint == a.endpoint
        await connection.request(write)

    told(story, a)


# The end


def test_a_connection_that_is_closed_ends_what_is_under_way_and_takes_nothing_new(a):
    async def story(connection):
        await connection.member()
        a.be_silent("Txn")
        request = asyncio.ensure_future(connection.request(write))
        await until_asked(a, "Txn", times=1)
        await connection.close()
        with pytest.raises(StoreUnavailableError, match="was given up"):
            await request
        for ask in (connection.member(), connection.request(read, may_repeat=True), connection.request(write)):
            with pytest.raises(StoreUnavailableError, match="the store was closed"):
                await ask

    told(story, a)


def test_errors_of_one_request_are_ours_and_a_cancelled_caller_is_cancelled(a):
    async def story(connection):
        member = await connection.member()
        a.said["Range"] = NO_LEADER
        with pytest.raises(NoLeaderError), connection.errors_of(member):
            await read(member)
        assert not member.can_serve
        a.be_silent("Txn")
        request = asyncio.ensure_future(connection.request(write))
        await until_asked(a, "Txn", times=1)
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        a.speak()
        assert await connection.member() is member

    told(story, a)


# What it is made from


def test_it_needs_an_endpoint_and_sends_no_password_in_plain_text():
    with pytest.raises(InputError, match="no endpoint"):
        EtcdConnection([], None, None, 1.0)
    with pytest.raises(InputError, match=r"sent to 192\.0\.2\.1 in plain text"):
        EtcdConnection([("127.0.0.1", 1), ("192.0.2.1", 1)], ("user", "password"), None, 1.0)


def test_the_local_address_is_that_of_the_way_to_a_member():
    async def story():
        with socket.create_server(("127.0.0.1", 0)) as server:
            connection = EtcdConnection([server.getsockname()], None, None, 1.0)
            assert connection.local_address() == "127.0.0.1"
            await connection.close()
        connection = EtcdConnection([("no.such.host.invalid", 1)], None, None, 1.0)
        assert connection.local_address() is None
        await connection.close()

    asyncio.run(story())
