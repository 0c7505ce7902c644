"""The interface of every engine: the store that agents meet in."""

from __future__ import annotations

from abc import ABC, abstractmethod

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self

    from holdfast.coordination.model import Changes, Entry, Lease, Outcome, Snapshot, Transaction


class CoordinationStore(ABC):
    """Keys with revisions, transactions, leases and watches.

    A store is for one asyncio event loop. Every method may raise `StoreUnavailableError`; call it again later, because
    an engine reconnects by itself. `StoreRefusedError` is final.
    """

    @abstractmethod
    async def get(self, key: str) -> Entry | None:
        """The entry of `key`, or None."""

    @abstractmethod
    async def get_prefix(self, prefix: str) -> Snapshot:
        """All entries under `prefix`, as of one revision."""

    @abstractmethod
    async def transact(self, transaction: Transaction) -> Outcome:
        """Carry out a transaction. Raises ValueError for one that no engine accepts.

        Raises:
            LeaseLostError: it puts a key under a lease that is gone. Nothing was changed.
        """

    @abstractmethod
    async def grant(self, ttl_s: float) -> Lease:
        """A new lease. The store may make it longer than `ttl_s`."""

    @abstractmethod
    async def keep_alive(self, lease_id: int) -> float:
        """Renew a lease. Returns its time to live, in seconds.

        Raises:
            LeaseLostError: the lease and its keys are gone.
        """

    @abstractmethod
    async def revoke(self, lease_id: int) -> None:
        """End a lease and delete its keys. Not an error if the lease is already gone."""

    @abstractmethod
    def watch(self, prefix: str, from_revision: int) -> Watch:
        """Watch the changes under `prefix`, starting with `from_revision`."""

    @abstractmethod
    async def close(self) -> None:
        """Close all connections. Leases stay until they expire."""

    def local_address(self) -> str | None:
        """Our end of the connection to the store, or None without a connection."""
        return None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Watch(ABC):
    """An asynchronous iterator over changes: one batch per revision, in order, without gaps.

    It ends when it is closed. It raises `CompactedError` when changes were forgotten before they could be delivered,
    and `StoreUnavailableError` when the store does not answer. After either, read the entries again.
    """

    def __aiter__(self) -> Self:
        return self

    @abstractmethod
    async def __anext__(self) -> Changes: ...

    @abstractmethod
    def close(self) -> None:
        """End the watch. An iteration that waits ends, too."""
