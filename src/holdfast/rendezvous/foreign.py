"""Handlers of other classes than ours, such as those of a plug-in that was made for torch, behind our interface."""

from __future__ import annotations

from holdfast.rendezvous import errors
from holdfast.rendezvous.handler import RendezvousHandler, RendezvousInfo, RendezvousStoreInfo

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class ForeignHandler(RendezvousHandler):
    """Does what `handler` does. It has torch's methods, and its errors have the names of torch's."""

    def __init__(self, handler: Any) -> None:
        self._handler = handler

    def get_backend(self) -> str:
        return str(self._handler.get_backend())

    @property
    def use_agent_store(self) -> bool:
        return bool(getattr(self._handler, "use_agent_store", False))

    def next_rendezvous(self) -> RendezvousInfo:
        try:
            info = self._handler.next_rendezvous()
        except Exception as error:
            own = _counterpart(error)
            if own is None:
                raise
            raise own(str(error)) from error
        if isinstance(info, RendezvousInfo):
            return info
        place = info.bootstrap_store_info
        return RendezvousInfo(
            *(info.store, info.rank, info.world_size), RendezvousStoreInfo(place.master_addr, place.master_port)
        )

    def is_closed(self) -> bool:
        return bool(self._handler.is_closed())

    def set_closed(self) -> None:
        self._handler.set_closed()

    def num_nodes_waiting(self) -> int:
        return int(self._handler.num_nodes_waiting())

    def get_run_id(self) -> str:
        return str(self._handler.get_run_id())

    def shutdown(self) -> bool:
        return bool(self._handler.shutdown())


def _counterpart(error: Exception) -> type[errors.RendezvousError] | None:
    """Our error with the name of `error`'s class, or of one of its bases."""
    for kind in type(error).__mro__:
        own = getattr(errors, kind.__name__, None)
        if isinstance(own, type) and issubclass(own, errors.RendezvousError):
            return own
    return None
