"""The data model: a subset of etcd's, with what agents need to meet.

The store holds *entries*. Every transaction that changes something gives the whole store a new *revision*, one higher
than the last; an entry knows the revision that created it and the one that modified it last. A *lease* has to be kept
alive: keys that are put under it vanish together when it is not renewed within its time to live. A *watch* delivers
everything that changes under a prefix, in order and from any revision that is still remembered.

Records are arrays on the wire, so that a record of a thousand nodes stays small. They hold no cycles, so the garbage
collector does not track the frequent ones (`gc=False`).
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

KEY_MAX_BYTES = 1024
"""The length limit of a key."""

KEY_SHOWN_CHARS = 120
"""How much of a key a message shows. A run's keys fit, unless its id is long."""

VALUE_MAX_BYTES = 1 << 20
"""The size limit of a value. By default etcd accepts requests of 1.5 MiB."""

OPERATIONS_MAX = 128
"""The number of operations or compares that a transaction may have, as in etcd."""

TRANSACTION_MAX_BYTES = 5 << 18
"""The limit of the keys and values that a transaction puts: 1.25 MiB, which leaves room in etcd's 1.5 MiB."""

NO_LEASE = 0

STORE_ID_BYTES = 16
"""The length of an embedded store's identity."""


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
    """A key that was put or deleted. `entry` is None if it was deleted."""

    key: str
    entry: Entry | None = None


class Changes(Struct, frozen=True, array_like=True, gc=False):
    """The changes of one transaction under a watched prefix."""

    revision: int
    changes: tuple[Change, ...]


class Created(Struct, frozen=True, array_like=True, tag="c"):
    """True if this revision created the key; 0 means that the key does not exist."""

    key: str
    revision: int


class Modified(Struct, frozen=True, array_like=True, tag="m"):
    """True if this revision was the last to modify the key; 0 means that the key does not exist."""

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
    """If all of `compares` hold, do `then`, else do `otherwise`: atomically, and as one revision.

    As in etcd, one list may name a key only once: operations within a revision have no order.
    """

    compares: tuple[Compare, ...]
    then: tuple[Operation, ...]
    otherwise: tuple[Operation, ...] = ()


class Outcome(Struct, frozen=True, array_like=True):
    """Whether the compares held, and the store's revision afterwards."""

    succeeded: bool
    revision: int


class Lease(Struct, frozen=True, array_like=True):
    """A granted lease, and how long it lasts after each renewal.

    The store may grant a longer lease than requested, never a shorter one.
    """

    id: int
    ttl_s: float


def absent(key: str) -> Created:
    """True if the key does not exist."""
    return Created(key, 0)


def check(transaction: Transaction) -> None:
    """Raise ValueError for a transaction that no engine accepts. The message is short, whatever the keys are."""
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
    """The part of a key that a message shows."""
    text = repr(key[: KEY_SHOWN_CHARS + 1])  # cut first: a control character's repr has four characters or more
    return text if len(text) <= KEY_SHOWN_CHARS else f"{text[:KEY_SHOWN_CHARS]}..."
