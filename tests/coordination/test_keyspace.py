"""What of the key space clients do not see: its clock, its bounds, and what is shared."""

from __future__ import annotations

import subprocess
import sys
from random import Random

import pytest

from holdfast.coordination.errors import CompactedError, LeaseLostError
from holdfast.coordination.keyspace import (
    CHANGE_OVERHEAD_BYTES,
    ENTRY_OVERHEAD_BYTES,
    EXPIRIES_SPARE,
    TTL_MAX_S,
    TTL_MIN_S,
    KeySpace,
)
from holdfast.coordination.model import STORE_ID_BYTES, Delete, DeletePrefix, Put, Transaction


def put(keyspace, key, value=b"", lease=0):
    return keyspace.transact(Transaction((), (Put(key, value, lease),))).revision


# Time


def test_time_is_what_it_is_told():
    keyspace = KeySpace()
    lease = keyspace.grant(10, now=100)
    put(keyspace, "key", lease=lease.id)
    assert keyspace.next_expiry() == 110
    assert keyspace.expire(109.9) == 110
    assert keyspace.get("key")
    assert keyspace.keep_alive(lease.id, now=105) == 10
    assert keyspace.expire(110) == 115
    assert keyspace.get("key")
    assert keyspace.expire(115) is None
    assert keyspace.get("key") is None
    assert keyspace.next_expiry() is None


def test_a_lease_whose_time_is_over_cannot_be_kept_alive_even_if_nobody_has_looked():
    keyspace = KeySpace()
    lease = keyspace.grant(10, now=0)
    with pytest.raises(LeaseLostError):
        keyspace.keep_alive(lease.id, now=10)


@pytest.mark.parametrize("ttl_s", [0, -1, TTL_MIN_S / 2, TTL_MAX_S * 2, float("nan"), float("inf")])
def test_a_lease_has_a_length_that_makes_sense(ttl_s):
    with pytest.raises(ValueError, match="a lease of"):
        KeySpace().grant(ttl_s, now=0)


def test_leases_that_came_and_went_leave_nothing_behind():
    keyspace = KeySpace()
    kept = keyspace.grant(3600, now=0)
    for now in range(10 * EXPIRIES_SPARE):
        keyspace.revoke(keyspace.grant(3600, now=now / 1000).id)
        keyspace.keep_alive(kept.id, now=now / 1000)
    assert len(keyspace._expiries) <= 2 * EXPIRIES_SPARE
    assert keyspace.expire(10) > 10
    assert keyspace.has_lease(kept.id)
    assert keyspace.expire(4000) is None
    assert not keyspace.has_lease(kept.id)


def test_the_leases_of_two_stores_have_nothing_in_common():
    """A client that reaches another store must not renew somebody else's lease there."""
    first, second = KeySpace(), KeySpace()
    ids = [keyspace.grant(10, now=0).id for keyspace in (first, second) for _ in range(1000)]
    assert len(set(ids)) == 2000
    assert min(ids) > 0
    assert 1 << 61 < max(ids) < 1 << 63
    assert first.id != second.id
    assert len(first.id) == STORE_ID_BYTES


def test_chance_is_an_argument():
    first, second = (KeySpace(random_bytes=Random(7).randbytes) for _ in range(2))
    assert first.id == second.id
    assert [first.grant(10, now=0) for _ in range(3)] == [second.grant(10, now=0) for _ in range(3)]


def test_no_number_is_given_to_two_leases_and_none_is_the_number_of_no_lease():
    said = [bytes(STORE_ID_BYTES), bytes(8), b"\2" + bytes(7), b"\2" + bytes(7), b"\4" + bytes(7)]
    keyspace = KeySpace(random_bytes=lambda _: said.pop(0))
    assert [keyspace.grant(10, now=0).id for _ in range(2)] == [1, 2]


# History


def watched(keyspace, prefix, from_revision):
    seen = []
    end = keyspace.watch(prefix, from_revision, seen.append)
    end()
    return [changes.revision for changes in seen]


def test_so_many_revisions_are_remembered():
    keyspace = KeySpace(history_max_revisions=3)
    assert [put(keyspace, "key") for _ in range(3)] == [2, 3, 4]
    assert watched(keyspace, "key", 1) == [2, 3, 4]
    put(keyspace, "key")
    assert watched(keyspace, "key", 3) == [3, 4, 5]
    assert watched(keyspace, "key", 5) == [5]
    assert watched(keyspace, "key", 6) == []
    with pytest.raises(CompactedError, match="before revision 3"):
        keyspace.watch("key", 2, print)


def test_so_many_bytes_are_remembered():
    keyspace = KeySpace(history_max_bytes=1000 + 2 * CHANGE_OVERHEAD_BYTES)
    for _ in range(5):
        put(keyspace, "k", bytes(399))
    assert watched(keyspace, "k", 5) == [5, 6]
    with pytest.raises(CompactedError):
        keyspace.watch("k", 4, print)
    put(keyspace, "k", bytes(2000))  # more than all that may be remembered
    assert watched(keyspace, "k", 8) == []
    with pytest.raises(CompactedError):
        keyspace.watch("k", 7, print)
    assert len(keyspace.get("k").value) == 2000


def test_what_is_forgotten_on_request_is_forgotten():
    keyspace = KeySpace()
    put(keyspace, "key")
    keyspace.compact()
    with pytest.raises(CompactedError):
        keyspace.watch("key", 2, print)
    assert watched(keyspace, "key", 3) == []
    put(keyspace, "key")
    assert watched(keyspace, "key", 3) == [3]


# Prefixes and watches


def test_the_greatest_characters_are_under_their_prefix():
    keyspace = KeySpace()
    last = chr(sys.maxunicode)
    for key in ("a", "a" + last, "a" + last + last, "b", last, last + "a"):
        put(keyspace, key)

    def keys(prefix):
        return [entry.key for entry in keyspace.get_prefix(prefix).entries]

    assert keys("a") == ["a", "a" + last, "a" + last + last]
    assert keys("a" + last) == ["a" + last, "a" + last + last]
    assert keys(last) == [last, last + "a"]
    assert len(keys("")) == 6


def test_all_watches_of_a_prefix_get_the_same_object():
    keyspace = KeySpace()
    one, other, narrow = [], [], []
    keyspace.watch("a", 1, one.append)
    keyspace.watch("a", 1, other.append)
    keyspace.watch("a/b", 1, narrow.append)
    keyspace.transact(Transaction((), (Put("a", b""), Put("a/b", b""), Put("c", b""))))
    assert one[0] is other[0]
    assert [change.key for change in one[0].changes] == ["a", "a/b"]
    assert [change.key for change in narrow[0].changes] == ["a/b"]


def test_a_watch_that_has_ended_costs_nothing():
    keyspace = KeySpace()
    ends = [keyspace.watch(prefix, 1, print) for prefix in ("a", "a", "bc")]
    for end in (*ends, *ends):
        end()
    assert (keyspace._watches, keyspace._lengths) == ({}, {})
    put(keyspace, "a")


def test_a_watch_may_end_others_while_it_is_told():
    keyspace = KeySpace()
    ends = []
    told = []

    def deliver(changes):
        told.append(changes.revision)
        for end in ends:
            end()

    ends.extend(keyspace.watch("key", 1, deliver) for _ in range(2))
    put(keyspace, "key")
    put(keyspace, "key")
    assert set(told) == {2}


def test_a_key_that_is_deleted_leaves_its_lease():
    keyspace = KeySpace()
    lease = keyspace.grant(10, now=0)
    put(keyspace, "key", lease=lease.id)
    keyspace.transact(Transaction((), (Delete("key"),)))
    put(keyspace, "key")
    revision = keyspace.revision
    keyspace.expire(10)
    assert keyspace.revision == revision


# How much there may be


def test_what_would_be_too_much_is_refused_and_changes_nothing():
    limit = 100 + 3 * ENTRY_OVERHEAD_BYTES
    space = KeySpace(entries_max_bytes=limit)
    space.transact(Transaction((), (Put("a", bytes(48)), Put("b", bytes(49)), Put("z", b""))))
    revision = space.revision
    for put in (Put("c", b""), Put("a", bytes(49))):
        with pytest.raises(ValueError, match=f"the store is full: it may hold {limit} bytes"):
            space.transact(Transaction((), (put,)))
    assert (space.revision, space.get("c"), len(space.get("a").value)) == (revision, None, 48)
    space.transact(Transaction((), (Delete("z"),)))
    space.transact(Transaction((), (Put("a", bytes(48)), Put("b", bytes(10)))))
    space.transact(Transaction((), (Put("c", bytes(39)),)))
    space.transact(Transaction((), (Delete("b"), Delete("c"), DeletePrefix("a"))))
    space.transact(Transaction((), (Put("d", bytes(99 + 2 * ENTRY_OVERHEAD_BYTES)),)))


def test_what_goes_with_a_lease_makes_room():
    space = KeySpace(entries_max_bytes=100 + ENTRY_OVERHEAD_BYTES)
    lease = space.grant(10.0, 0.0)
    space.transact(Transaction((), (Put("a", bytes(99), lease.id),)))
    space.expire(10.0)
    space.transact(Transaction((), (Put("a", bytes(99)),)))


def test_one_source_gets_half_of_the_leases_and_the_next_half_of_the_rest():
    space = KeySpace(leases_max=100)

    def grant_all(source):
        granted = []
        with pytest.raises(ValueError, match="too many leases"):  # noqa: PT012 - how often it does not is counted
            while True:
                granted.append(space.grant(10.0, 0.0, source).id)
        return granted

    first = grant_all("10.0.0.66")
    assert (len(first), len(grant_all("10.0.0.67"))) == (50, 25)
    with pytest.raises(ValueError, match=r"the store has 75, 50 of them from 10\.0\.0\.66; revoke some, or wait"):
        space.grant(10.0, 0.0, "10.0.0.66")
    space.revoke(first[0])
    space.revoke(first[0])
    assert space.grant(10.0, 0.0, "10.0.0.1").id
    space.expire(10.0)
    assert len(grant_all("10.0.0.66")) == 50, "leases that ran out are no longer counted"


def test_a_thousand_machines_behind_one_address_fit_with_all_their_leases_that_wait_to_run_out():
    space = KeySpace()
    for _ in range(20 * 1_000):
        space.grant(10.0, 0.0, "10.0.0.1")


def test_the_keys_that_are_left_are_in_order_however_many_go_at_once():
    space = KeySpace()
    lease = space.grant(10.0, 0.0)
    for number in range(0, 1_000, 100):
        puts = (Put(f"{key:04}", b"", lease.id if key % 3 else 0) for key in range(number, number + 100))
        space.transact(Transaction((), tuple(puts)))
    space.expire(10.0)
    left = [f"{number:04}" for number in range(0, 1_000, 3)]
    assert [entry.key for entry in space.get_prefix("").entries] == left
    space.transact(Transaction((), (DeletePrefix("00"), DeletePrefix("000"), Delete("0102"), Put("0500", b""))))
    left = sorted([key for key in left if not key.startswith("00") and key != "0102"] + ["0500"])
    assert [entry.key for entry in space.get_prefix("").entries] == left == sorted(space._entries)


GROWTH = """
import sys
from holdfast.coordination.keyspace import KeySpace, LEASE_BYTES
from holdfast.coordination.model import Put, Transaction
from holdfast.coordination.wire import Transact, decode_request, encode

def memory_bytes():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmRSS:"))

def put(*puts):  # as a client does: all that is kept was read from the network
    space.transact(decode_request(encode(Transact(Transaction((), puts)))).transaction)

what = sys.argv[1]
space = KeySpace(history_max_revisions=0 if what != "changes" else 1 << 60)
before = memory_bytes()
if what == "entries":
    for number in range(0, 100_000, 100):
        put(*(Put(f"{number + i:06}", b"1234") for i in range(100)))
elif what == "leased":
    for number in range(0, 100_000, 5):
        lease = space.grant(3600, number)
        put(*(Put(f"{number + i:06}", b"1234", lease.id) for i in range(5)))
elif what == "wide":
    for number in range(0, 20_000, 10):
        put(*(Put(f"{number + i:01000}\U0001f600", b"1234") for i in range(10)))
    space.get_prefix("")
    encode(space.get_prefix(""))
elif what == "changes":
    for number in range(50_000):
        put(Put("key", b"1234"))
elif what == "leases":
    for number in range(40_000):
        space.grant(3600.0 + number, number)
print(memory_bytes() - before, space._entries_bytes + space._history_bytes + LEASE_BYTES * len(space._leases))
"""


@pytest.mark.parametrize("what", ["entries", "leased", "wide", "changes", "leases"])
def test_the_store_counts_no_less_than_it_costs(what):
    """In a process of its own, by what the kernel says of it."""
    said = subprocess.run([sys.executable, "-c", GROWTH, what], check=True, capture_output=True, text=True).stdout
    cost, counted = map(int, said.split())
    assert 4 << 20 < cost <= counted
