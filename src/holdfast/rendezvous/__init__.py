"""Group membership: how the agents of several nodes meet and agree on their ranks."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.rendezvous.creator import RendezvousHandlerCreator as RendezvousHandlerCreator
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
    from holdfast.rendezvous.registry import create_rdzv_handler as create_rdzv_handler
    from holdfast.rendezvous.registry import get_rendezvous_handler as get_rendezvous_handler
    from holdfast.rendezvous.registry import rendezvous_handler_registry as rendezvous_handler_registry
    from holdfast.rendezvous.static import parse_rendezvous_endpoint as parse_rendezvous_endpoint
else:
    from holdfast._lazy import exports

    __getattr__, __dir__, __all__ = exports(
        __name__,
        {
            "creator": ("RendezvousHandlerCreator",),
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
            "registry": (
                "RendezvousHandlerRegistry",
                "create_rdzv_handler",
                "get_rendezvous_handler",
                "rendezvous_handler_registry",
            ),
            "static": ("parse_rendezvous_endpoint",),
        },
    )
