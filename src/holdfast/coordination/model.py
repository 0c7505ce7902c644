"""The data model: etcd's own, cut to what agents need to meet.

The store holds *entries*. Every transaction that changes something gives the whole store a new *revision*, one higher
than the last; an entry knows the revision that created it and the one that modified it last. A *lease* is a promise
to come back: keys that are put under it vanish together when it is not kept alive for its time to live. A *watch*
delivers everything that changes under a prefix, in order and from any revision that is still remembered.

Records are arrays on the wire, so that a thousand nodes in one of them stay small. They hold no cycles, so those of
which there are many are kept from the garbage collector (`gc=False`).
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

KEY_MAX_BYTES = 1024
"""How long a key may be."""

KEY_SHOWN_CHARS = 120
"""How much of a key a message shows. The keys of a run have as much, unless its id is long."""

VALUE_MAX_BYTES = 1 << 20
"""How long a value may be; etcd as it is installed takes requests of 1.5 MiB."""

OPERATIONS_MAX = 128
"""How many operations or compares a transaction may have, as in etcd."""

TRANSACTION_MAX_BYTES = 5 << 18
"""How many bytes of values and keys a transaction may put: 1.25 MiB, which leaves room in etcd's 1.5 MiB."""

NO_LEASE = 0

STORE_ID_BYTES = 16
"""How long the identity of an embedded store is."""


class Entry(Struct, frozen=True, array_like=True, gc=False):
    """A key and its value, with the revisions that created and last modified it."""

    key: str
    value: bytes
    created: int
    modified: int
    lease: int = NO_LEASE


class Snapshot(Struct, frozen=True, array_like=True, gc=False):
    """All entries under a prefix, in the order of their keys, as of a revision."""

    revision: int
    entries: tuple[Entry, ...]


class Change(Struct, frozen=True, array_like=True, gc=False):
    """A key that was put or deleted; without an entry it was deleted."""

    key: str
    entry: Entry | None = None


class Changes(Struct, frozen=True, array_like=True, gc=False):
    """What one transaction changed under a watched prefix."""

    revision: int
    changes: tuple[Change, ...]


class Created(Struct, frozen=True, array_like=True, tag="c"):
    """True if the key was created by this revision; 0 is for a key that is not there."""

    key: str
    revision: int


class Modified(Struct, frozen=True, array_like=True, tag="m"):
    """True if the key was last modified by this revision; 0 is for a key that is not there."""

    key: str
    revision: int


class Put(Struct, frozen=True, array_like=True, tag="p"):
    key: str
    value: bytes
    lease: int = NO_LEASE


class Delete(Struct, frozen=True, array_like=True, tag="d"):
    key: str


class DeletePrefix(Struct, frozen=True, array_like=True, tag="x"):
    prefix: str


Compare: TypeAlias = Created | Modified
Operation: TypeAlias = Put | Delete | DeletePrefix


class Transaction(Struct, frozen=True, array_like=True):
    """If all of `compares` hold, do `then`, else do `otherwise`; all of it or nothing, and as one revision.

    As in etcd, one list may name a key once: the order of operations within a revision means nothing.
    """

    compares: tuple[Compare, ...]
    then: tuple[Operation, ...]
    otherwise: tuple[Operation, ...] = ()


class Outcome(Struct, frozen=True, array_like=True):
    """Whether the compares held, and the store's revision after it."""

    succeeded: bool
    revision: int


class Lease(Struct, frozen=True, array_like=True):
    """A lease that was granted, and how long it lasts from each time that it is kept alive.

    The store may grant more than it was asked for, never less.
    """

    id: int
    ttl_s: float


def absent(key: str) -> Created:
    """True if there is no such key."""
    return Created(key, 0)


def check(transaction: Transaction) -> None:
    """Raises ValueError for what no engine accepts. Its text is short, whatever the keys are."""
    for operations in (transaction.then, transaction.otherwise):
        if max(len(operations), len(transaction.compares)) > OPERATIONS_MAX:
            raise ValueError(f"a transaction has more than {OPERATIONS_MAX} operations or compares")
        puts = [operation for operation in operations if isinstance(operation, Put)]
        if sum(len(put.key.encode()) + len(put.value) for put in puts) > TRANSACTION_MAX_BYTES:
            raise ValueError(f"a transaction puts more than {TRANSACTION_MAX_BYTES} bytes")
        prefixes = [operation.prefix for operation in operations if isinstance(operation, DeletePrefix)]
        keys = [operation.key for operation in operations if not isinstance(operation, DeletePrefix)]
        for key in (*keys, *prefixes):
            check_key(key)
        if len(set(keys)) < len(keys):
            twice = next(key for key in keys if keys.count(key) > 1)
            raise ValueError(f"a transaction names a key twice: {shown(twice)}")
        for put in puts:
            if any(map(put.key.startswith, prefixes)):
                raise ValueError(f"a transaction puts {shown(put.key)} and deletes it with a prefix")
            if len(put.value) > VALUE_MAX_BYTES:
                size = len(put.value)
                raise ValueError(f"the value of {shown(put.key)} has {size} bytes, more than {VALUE_MAX_BYTES}")
    for compare in transaction.compares:
        check_key(compare.key)


def check_key(key: str) -> None:
    if not key or len(key) > KEY_MAX_BYTES or len(key.encode(errors="surrogatepass")) > KEY_MAX_BYTES:
        raise ValueError(f"a key has 1 to {KEY_MAX_BYTES} bytes: {shown(key)}")


def shown(key: str) -> str:
    """As much of a key as a message needs."""
    text = repr(key[: KEY_SHOWN_CHARS + 1])  # of a control character it has four or more
    return text if len(text) <= KEY_SHOWN_CHARS else f"{text[:KEY_SHOWN_CHARS]}..."
