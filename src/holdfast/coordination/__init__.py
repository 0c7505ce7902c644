"""The store that agents meet in: keys with revisions, transactions, leases and watches."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.coordination.blocking import BlockingStore as BlockingStore
    from holdfast.coordination.blocking import LoopThread as LoopThread
    from holdfast.coordination.client import EmbeddedStore as EmbeddedStore
    from holdfast.coordination.errors import CompactedError as CompactedError
    from holdfast.coordination.errors import CoordinationError as CoordinationError
    from holdfast.coordination.errors import LeaseLostError as LeaseLostError
    from holdfast.coordination.errors import StoreFullError as StoreFullError
    from holdfast.coordination.errors import StoreRefusedError as StoreRefusedError
    from holdfast.coordination.errors import StoreUnavailableError as StoreUnavailableError
    from holdfast.coordination.etcd import EtcdStore as EtcdStore
    from holdfast.coordination.memory import MemoryStore as MemoryStore
    from holdfast.coordination.server import EmbeddedServer as EmbeddedServer
    from holdfast.coordination.store import CoordinationStore as CoordinationStore
    from holdfast.coordination.store import Watch as Watch
else:
    from holdfast._lazy import exports

    __getattr__, __dir__, __all__ = exports(
        __name__,
        {
            "blocking": ("BlockingStore", "LoopThread"),
            "client": ("EmbeddedStore",),
            "errors": (
                "CompactedError",
                "CoordinationError",
                "LeaseLostError",
                "StoreFullError",
                "StoreRefusedError",
                "StoreUnavailableError",
            ),
            "etcd": ("EtcdStore",),
            "memory": ("MemoryStore",),
            "server": ("EmbeddedServer",),
            "store": ("CoordinationStore", "Watch"),
        },
    )
