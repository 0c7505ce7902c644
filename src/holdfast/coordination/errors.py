"""Errors between an agent and the store."""

from __future__ import annotations

from holdfast.errors.tree import InfrastructureError


class CoordinationError(InfrastructureError):
    """The store cannot do what it was asked to do."""


class StoreUnavailableError(CoordinationError):
    """The store does not answer. A transaction that was under way may or may not have been carried out.

    `is_gone` if the store seems to be gone: its address refuses connections, or serves another store. Anybody on the
    network path can fake that for as long as they can cut the connection.
    """

    def __init__(self, message: str, *, is_gone: bool = False) -> None:
        super().__init__(message)
        self.is_gone = is_gone


class BadAnswerError(StoreUnavailableError):
    """A member sent a response that cannot be an answer."""


class StoreReplacedError(StoreUnavailableError):
    """Another store answers at the address of ours. It has none of our data.

    `is_proven` if it knows the token; otherwise it may be an impostor on the network path.
    """

    def __init__(self, message: str, *, is_proven: bool = True) -> None:
        super().__init__(message, is_gone=True)
        self.is_proven = is_proven


class StoreRefusedError(CoordinationError):
    """The store is there, but refuses us: a wrong token, certificate or password. Retrying is useless."""


class StoreFullError(StoreRefusedError):
    """The store can read and delete, but takes no writes: it has no space left."""


class NoRoomError(ValueError):
    """The embedded store has no room for more data. Its clients raise `StoreUnavailableError`."""


class LeaseLostError(CoordinationError):
    """The lease expired or was revoked, and its keys are gone."""


class CompactedError(CoordinationError):
    """The changes since a revision are no longer known. The entries have to be read again."""
