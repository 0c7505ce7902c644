"""What can go wrong between an agent and the store."""

from __future__ import annotations

from holdfast.errors.tree import InfrastructureError


class CoordinationError(InfrastructureError):
    """The store cannot do what it was asked for."""


class StoreUnavailableError(CoordinationError):
    """The store does not answer. A transaction that was under way may or may not have been carried out.

    `is_gone` if the store seems to be no more: the place where it was refuses connections, or serves another one.
    Anybody on the way can make it look so, for as long as they can cut the line.
    """

    def __init__(self, message: str, *, is_gone: bool = False) -> None:
        super().__init__(message)
        self.is_gone = is_gone


class StoreReplacedError(StoreUnavailableError):
    """Another store answers where ours was. Nothing that we know is in there.

    `is_proven` if it knows the token; otherwise it may be somebody on the way.
    """

    def __init__(self, message: str, *, is_proven: bool = True) -> None:
        super().__init__(message, is_gone=True)
        self.is_proven = is_proven


class StoreRefusedError(CoordinationError):
    """The store is there and lets us do nothing: a wrong token, certificate or password. To try again is no use."""


class StoreFullError(StoreRefusedError):
    """The store is there, reads and deletes, and takes no writes: it has no space left."""


class NoRoomError(ValueError):
    """The embedded store has no room for what it was asked to keep. Its clients raise `StoreUnavailableError`."""


class LeaseLostError(CoordinationError):
    """The lease ran out or was revoked, and the keys that it held are gone."""


class CompactedError(CoordinationError):
    """The changes since a revision are no longer known; what is there has to be read again."""
