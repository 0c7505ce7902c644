"""The interface of every engine: what agents that meet need of a store."""

from __future__ import annotations

from abc import ABC, abstractmethod

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self

    from holdfast.coordination.model import Changes, Entry, Lease, Outcome, Snapshot, Transaction


class CoordinationStore(ABC):
    """Keys with revisions, transactions, leases and watches.

    All of it is for one asyncio event loop. Every method may raise `StoreUnavailableError`, after which it can be
    called again: an engine connects anew by itself. `StoreRefusedError` is final.
    """

    @abstractmethod
    async def get(self, key: str) -> Entry | None:
        """The entry of `key`, if there is one."""

    @abstractmethod
    async def get_prefix(self, prefix: str) -> Snapshot:
        """Everything under `prefix`, as of one revision."""

    @abstractmethod
    async def transact(self, transaction: Transaction) -> Outcome:
        """Carry out a transaction. ValueError is for one that no engine accepts.

        Raises:
            LeaseLostError: it puts a key under a lease that is no more. Nothing was changed.
        """

    @abstractmethod
    async def grant(self, ttl_s: float) -> Lease:
        """A new lease; the store may make it longer than `ttl_s`."""

    @abstractmethod
    async def keep_alive(self, lease_id: int) -> float:
        """Start the lease's time to live again; returns how long it is, in seconds.

        Raises:
            LeaseLostError: the lease is no more, and neither are its keys.
        """

    @abstractmethod
    async def revoke(self, lease_id: int) -> None:
        """End a lease and delete its keys. One that is no more is no error."""

    @abstractmethod
    def watch(self, prefix: str, from_revision: int) -> Watch:
        """What changes under `prefix` from that revision on, itself included."""

    @abstractmethod
    async def close(self) -> None:
        """Let go of connections. Leases stay until they run out."""

    def local_address(self) -> str | None:
        """The address of this machine that the store is reached from, or None where there is no connection."""
        return None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Watch(ABC):
    """An asynchronous iterator over changes, one batch for each revision, in order, none left out.

    It ends when it is closed. It raises `CompactedError` when changes were forgotten before they could be delivered,
    and `StoreUnavailableError` when the store does not answer; after either, what is there has to be read again.
    """

    def __aiter__(self) -> Self:
        return self

    @abstractmethod
    async def __anext__(self) -> Changes: ...

    @abstractmethod
    def close(self) -> None:
        """End it; an iteration that waits ends, too."""
