"""The store that torch's workers share, served without torch: a server for TCPStore's wire protocol."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.torchstore.server import TorchStoreServer as TorchStoreServer
else:
    from holdfast._lazy import exports

    __getattr__, __dir__, __all__ = exports(__name__, {"server": ("TorchStoreServer",)})
