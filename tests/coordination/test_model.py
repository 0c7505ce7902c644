"""What every engine accepts, and the size of what goes over the wire."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.coordination.model import (
    KEY_MAX_BYTES,
    KEY_SHOWN_CHARS,
    OPERATIONS_MAX,
    TRANSACTION_MAX_BYTES,
    VALUE_MAX_BYTES,
    Created,
    Delete,
    DeletePrefix,
    Modified,
    Put,
    Transaction,
    absent,
    check,
    check_key,
    shown,
)

MESSAGE_MAX_CHARS = 400
LONGEST = "k" * KEY_MAX_BYTES
REST_BYTES = TRANSACTION_MAX_BYTES - VALUE_MAX_BYTES - 2


def puts(count):
    return tuple(Put(str(number), b"") for number in range(count))


@pytest.mark.parametrize(
    "transaction",
    [
        Transaction((), ()),
        Transaction((), puts(OPERATIONS_MAX), puts(OPERATIONS_MAX)),
        Transaction((absent("a"),) * OPERATIONS_MAX, ()),
        Transaction((absent(LONGEST),), (Put(LONGEST, b""),), (Delete(LONGEST),)),
        Transaction((), (Put("a", bytes(VALUE_MAX_BYTES)), Put("b", bytes(REST_BYTES)))),
        Transaction((), (Put("a", b""), DeletePrefix("b"), DeletePrefix("b/"))),
        Transaction((), (Put("a", b""),), (Delete("a"),)),
    ],
)
def test_what_is_within_the_limits_is_accepted(transaction):
    check(transaction)


@pytest.mark.parametrize(
    ("transaction", "words"),
    [
        (Transaction((), puts(OPERATIONS_MAX + 1)), "more than 128 operations"),
        (Transaction((), (), puts(OPERATIONS_MAX + 1)), "more than 128 operations"),
        (Transaction((absent("a"),) * (OPERATIONS_MAX + 1), ()), "more than 128 operations or compares"),
        (Transaction((), (Put("a", bytes(VALUE_MAX_BYTES)), Put("b", bytes(REST_BYTES + 1)))), "more than 1310720"),
        (Transaction((), (Put("a", bytes(VALUE_MAX_BYTES + 1)),)), "the value of 'a' has 1048577 bytes"),
        (Transaction((), (Put("", b""),)), "a key has 1 to 1024 bytes"),
        (Transaction((), (Delete(LONGEST + "k"),)), "a key has 1 to 1024 bytes"),
        (Transaction((), (DeletePrefix(""),)), "a key has 1 to 1024 bytes"),
        (Transaction((Modified(LONGEST + "k", 0),), ()), "a key has 1 to 1024 bytes"),
        (Transaction((), (Put("a" * 1000, b""), Delete("a" * 1000))), "names a key twice: 'aaa"),
        (Transaction((), (), (Put("a/b", b""), DeletePrefix("a/"))), "puts 'a/b' and deletes it with a prefix"),
    ],
)
def test_what_no_engine_accepts_is_refused_in_a_short_line(transaction, words):
    with pytest.raises(ValueError, match=words) as raised:
        check(transaction)
    assert len(str(raised.value)) < MESSAGE_MAX_CHARS


@pytest.mark.parametrize(
    ("key", "is_good"),
    [
        ("ä" * (KEY_MAX_BYTES // 2), True),
        ("ä" * (KEY_MAX_BYTES // 2) + "a", False),
        ("\udcff", True),
        ("x" * 10**7, False),
    ],
)
def test_keys_are_counted_in_bytes(key, is_good):
    if is_good:
        check_key(key)
        return
    with pytest.raises(ValueError, match="a key has 1 to 1024 bytes") as raised:
        check_key(key)
    assert len(str(raised.value)) < MESSAGE_MAX_CHARS


def test_a_key_is_shown_in_short_and_without_control_characters():
    assert shown("a/b") == "'a/b'"
    assert shown("\x1b\n").isprintable()
    assert len(shown("\0" * 10**6)) == KEY_SHOWN_CHARS + len("...")


def test_a_key_that_does_not_exist_has_the_revision_0():
    assert absent("a") == Created("a", 0)


def test_a_transaction_is_read_as_it_was_written_and_kinds_are_told_apart():
    everything = Transaction(
        (Created("a", 1), Modified("a", 2)), (Put("a", b"\0", 7), Delete("b"), DeletePrefix("c")), (Put("d", b""),)
    )
    wire = msgspec.msgpack.encode(everything)
    assert msgspec.msgpack.decode(wire, type=Transaction) == everything
    assert b"prefix" not in wire, "fields have no names on the wire"
