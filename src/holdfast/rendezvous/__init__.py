"""Group membership: how the agents of several nodes meet and agree on their ranks."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.rendezvous.errors import RendezvousClosedError as RendezvousClosedError
    from holdfast.rendezvous.errors import RendezvousConnectionError as RendezvousConnectionError
    from holdfast.rendezvous.errors import RendezvousError as RendezvousError
    from holdfast.rendezvous.errors import RendezvousGracefulExitError as RendezvousGracefulExitError
    from holdfast.rendezvous.errors import RendezvousStateError as RendezvousStateError
    from holdfast.rendezvous.errors import RendezvousTimeoutError as RendezvousTimeoutError
    from holdfast.rendezvous.handler import RendezvousHandler as RendezvousHandler
    from holdfast.rendezvous.handler import RendezvousInfo as RendezvousInfo
    from holdfast.rendezvous.handler import RendezvousStoreInfo as RendezvousStoreInfo
    from holdfast.rendezvous.parameters import RendezvousParameters as RendezvousParameters
    from holdfast.rendezvous.registry import RendezvousHandlerRegistry as RendezvousHandlerRegistry
    from holdfast.rendezvous.registry import rendezvous_handler_registry as rendezvous_handler_registry
else:
    from holdfast._lazy import exports

    __getattr__, __dir__, __all__ = exports(
        __name__,
        {
            "errors": (
                "RendezvousClosedError",
                "RendezvousConnectionError",
                "RendezvousError",
                "RendezvousGracefulExitError",
                "RendezvousStateError",
                "RendezvousTimeoutError",
            ),
            "handler": ("RendezvousHandler", "RendezvousInfo", "RendezvousStoreInfo"),
            "parameters": ("RendezvousParameters",),
            "registry": ("RendezvousHandlerRegistry", "rendezvous_handler_registry"),
        },
    )
