"""The store that agents meet in: keys with revisions, transactions, leases and watches."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.coordination.errors import CompactedError as CompactedError
    from holdfast.coordination.errors import CoordinationError as CoordinationError
    from holdfast.coordination.errors import LeaseLostError as LeaseLostError
    from holdfast.coordination.errors import StoreRefusedError as StoreRefusedError
    from holdfast.coordination.errors import StoreUnavailableError as StoreUnavailableError
    from holdfast.coordination.memory import MemoryStore as MemoryStore
    from holdfast.coordination.store import CoordinationStore as CoordinationStore
    from holdfast.coordination.store import Watch as Watch
else:
    from holdfast._lazy import exports

    __getattr__, __dir__ = exports(
        __name__,
        {
            "errors": (
                "CompactedError",
                "CoordinationError",
                "LeaseLostError",
                "StoreRefusedError",
                "StoreUnavailableError",
            ),
            "memory": ("MemoryStore",),
            "store": ("CoordinationStore", "Watch"),
        },
    )

__all__ = [
    "CompactedError",
    "CoordinationError",
    "CoordinationStore",
    "LeaseLostError",
    "MemoryStore",
    "StoreRefusedError",
    "StoreUnavailableError",
    "Watch",
]
