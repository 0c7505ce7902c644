"""An etcd that is broken, or that somebody else plays: whatever it answers is refused with one line, or is harmless."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from rogue_etcd import Refusal, RogueEtcd, header, honest

from holdfast.coordination import etcd_messages as messages
from holdfast.coordination.errors import BadAnswerError, CompactedError, CoordinationError, StoreUnavailableError
from holdfast.coordination.etcd import EtcdStore
from holdfast.coordination.etcd_answers import ANSWER_MAX_BYTES, FIELDS_MAX, LEAST_TTL_MAX_S
from holdfast.coordination.model import Put, Transaction
from holdfast.coordination.queued_watch import BACKLOG_MAX_BYTES, CHANGE_BYTES

LONG_S = 120.0
ANSWER_TIMEOUT_S = 60.0
"""Nobody is to give up a member that is only slow."""

LINE_MAX_CHARS = 1_000
MIB = 1 << 20
I64_MAX = (1 << 63) - 1
NO_MESSAGE = b"\xff" * 50


def run(story):
    async def tell():
        async with asyncio.timeout(LONG_S):
            return await story

    return asyncio.run(tell())


REQUESTS = {
    "Range": lambda store: store.get_prefix(""),
    "Txn": lambda store: store.transact(Transaction((), (Put("a", b"1"),))),
    "LeaseGrant": lambda store: store.grant(5),
    "LeaseKeepAlive": lambda store: store.keep_alive(7),
    "LeaseRevoke": lambda store: store.revoke(7),
    "Watch": lambda store: anext(store.watch("", 1)),
    "Status": lambda store: store.transact(Transaction((), (Put("a", b"1"),))),
}
"""What makes a store send a request of each kind."""


def error_of(method, said, **options):
    """What a store raises that hears this: one line, whatever it was."""

    async def story():
        with RogueEtcd(**{method: said}) as rogue:
            async with EtcdStore([rogue.endpoint], answer_timeout_s=ANSWER_TIMEOUT_S, **options) as store:
                with pytest.raises(CoordinationError) as raised:
                    await REQUESTS.get(method, REQUESTS["Range"])(store)
                return raised.value

    error = run(story())
    assert str(error).startswith("etcd at 127.0.0.1:")
    assert len(str(error)) < LINE_MAX_CHARS
    assert str(error).isprintable()
    return error


def kv(**fields):
    return messages.KeyValue(**{"key": b"/holdfast/a", "create_revision": 1, "mod_revision": 1, **fields})


def entries(*kvs):
    return messages.RangeResponse(header=header(), kvs=kvs)


def granted(lease, ttl):
    return messages.LeaseGrantResponse(header=header(), ID=lease, TTL=ttl)


def events(*kvs, **fields):
    return messages.WatchResponse(header=header(), events=[messages.Event(kv=each) for each in kvs], **fields)


@pytest.mark.parametrize("said", [NO_MESSAGE, b""])
@pytest.mark.parametrize("method", REQUESTS)
def test_an_answer_that_is_no_message_or_has_no_header_is_no_answer(method, said, caplog):
    error = error_of(method, said)
    assert isinstance(error, BadAnswerError)
    assert ("has no header" if said == b"" else "cannot be read") in str(error)
    assert not [record for record in caplog.records if record.name.startswith("grpc")]  # nor its traceback


BAD = {
    "lease -1": ("LeaseGrant", granted(-1, 5)),
    "lease 0": ("LeaseGrant", granted(0, 5)),
    "a lease that is over": ("LeaseGrant", granted(7, 0)),
    "a lease of less than was asked for": ("LeaseGrant", granted(7, 4)),
    "a lease for ever": ("LeaseGrant", granted(7, 1 << 62)),
    "a lease of more than any cluster needs": ("LeaseGrant", granted(7, LEAST_TTL_MAX_S + 1)),
    "a renewal for ever": ("LeaseKeepAlive", messages.LeaseKeepAliveResponse(header=header(), TTL=1 << 62)),
    "a renewal of less than nothing": ("LeaseKeepAlive", messages.LeaseKeepAliveResponse(header=header(), TTL=-1)),
    "a revision before the first": ("Range", messages.RangeResponse(header=header(-1))),
    "a revision with none after it": ("Txn", messages.TxnResponse(header=header(I64_MAX), succeeded=True)),
    "an entry that was never made": ("Range", entries(kv(create_revision=-5))),
    "an entry of a revision below 0": ("Range", entries(kv(mod_revision=-7))),
    "an entry of a lease below 0": ("Range", entries(kv(), kv(lease=-1))),
    "somebody else's key": ("Range", entries(kv(key=b"x"))),
    "a key behind ours": ("Range", entries(kv(key=b"/holdfast0"))),
    "a change of a revision below 0": ("Watch", events(kv(mod_revision=-7))),
    "a change with no revision after it": ("Watch", events(kv(mod_revision=I64_MAX))),
    "a change of somebody else's key": ("Watch", events(kv(key=b"/other"))),
    "changes forgotten below 0": ("Watch", messages.WatchResponse(header=header(), compact_revision=-1)),
}


@pytest.mark.parametrize("case", BAD)
def test_an_answer_that_cannot_be_is_no_answer(case):
    assert isinstance(error_of(*BAD[case]), BadAnswerError)


@pytest.mark.parametrize("token", ["two\nlines", "\u20ac", "x" * 20_000, "\x7f"])
def test_a_token_that_no_request_can_carry_is_no_answer(token):
    said = messages.AuthenticateResponse(header=header(), token=token)
    error = error_of("Authenticate", said, user="ann", password="secret")
    assert isinstance(error, BadAnswerError)


def test_the_lease_of_a_slow_cluster_may_be_longer_than_was_asked_for():
    async def story():
        with RogueEtcd(LeaseGrant=granted(7, LEAST_TTL_MAX_S)) as etcd:
            async with EtcdStore([etcd.endpoint]) as store:
                return await store.grant(5)

    assert run(story()).ttl_s == LEAST_TTL_MAX_S


def test_a_renewal_holds_no_longer_than_what_was_granted():
    async def story():
        renewed = messages.LeaseKeepAliveResponse(header=header(), TTL=80_000)
        with RogueEtcd(LeaseGrant=granted(7, 5), LeaseKeepAlive=renewed) as rogue:
            async with EtcdStore([rogue.endpoint]) as store:
                lease = await store.grant(5)
                return await store.keep_alive(lease.id)

    assert run(story()) == 5


def test_another_member_is_asked_when_one_answers_what_cannot_be():
    async def story():
        with RogueEtcd(Txn=NO_MESSAGE) as rogue, RogueEtcd() as other:
            async with EtcdStore([rogue.endpoint, other.endpoint]) as store:
                with pytest.raises(StoreUnavailableError):
                    await REQUESTS["Txn"](store)
                assert (await REQUESTS["Txn"](store)).succeeded

    run(story())


def test_a_request_of_a_member_that_was_given_up_meanwhile_is_one_without_an_answer():
    async def story():
        with RogueEtcd() as etcd:
            async with EtcdStore([etcd.endpoint]) as store:
                member = await store._connection.member()
                await member.channel.close()
                with pytest.raises(StoreUnavailableError, match="was given up"):
                    await REQUESTS["Txn"](store)
                assert (await REQUESTS["Txn"](store)).succeeded

    run(story())


def test_a_message_has_a_limit():
    error = error_of("Range", entries(kv(value=bytes(ANSWER_MAX_BYTES))))
    assert isinstance(error, BadAnswerError)
    assert str(error).endswith(f"it sent more than the {ANSWER_MAX_BYTES >> 20} MiB that an answer may have")


def test_a_message_of_countless_empty_entries_is_not_read():
    said = honest("Range").SerializeToString() + b"\x12\x00" * FIELDS_MAX
    assert "cannot be read" in str(error_of("Range", said))


def test_a_large_job_is_read_whole():
    kvs = [kv(key=b"/holdfast/%d" % number, value=bytes(4096)) for number in range(3_000)]

    async def story():
        with RogueEtcd(Range=entries(*kvs)) as etcd:
            async with EtcdStore([etcd.endpoint], answer_timeout_s=ANSWER_TIMEOUT_S) as store:
                return await store.get_prefix("")

    assert len(run(story()).entries) == len(kvs)


def test_a_watch_that_nobody_reads_holds_so_many_bytes():
    batches = BACKLOG_MAX_BYTES // MIB + 10

    def flood():
        for number in range(batches):
            yield events(kv(value=bytes(MIB), mod_revision=20 + number))

    async def story():
        with RogueEtcd(Watch=flood()) as rogue:
            async with EtcdStore([rogue.endpoint], answer_timeout_s=ANSWER_TIMEOUT_S) as store:
                watch = store.watch("", 1)
                await watch.reading
                fitting = BACKLOG_MAX_BYTES // (MIB + CHANGE_BYTES)
                assert [(await anext(watch)).revision for _ in range(fitting)] == list(range(20, 20 + fitting))
                with pytest.raises(CompactedError):
                    await anext(watch)

    run(story())


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("Watch", messages.WatchResponse(header=header(), canceled=True, cancel_reason="\x1b[2J" + "A" * (5 << 20))),
        ("Watch", messages.WatchResponse(header=header(), canceled=True, cancel_reason="one\ntwo\u2028three\u202e")),
        *(
            (method, Refusal(code, text))
            for method in ("Range", "Watch", "LeaseGrant")
            for code in (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNKNOWN, grpc.StatusCode.RESOURCE_EXHAUSTED)
            for text in ("\x1b]0;x\x07\x1b[2J" + "A" * 3_000, "etcdserver: request is too large\x1b[2J")
        ),
    ],
)
def test_what_it_says_is_cut_and_plays_no_tricks(method, said):
    error_of(method, said)
