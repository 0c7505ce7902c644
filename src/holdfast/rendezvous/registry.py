"""Backends by name: those that are built in, those that a program registers, and those that are installed."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from holdfast.rendezvous.handler import RendezvousHandler
    from holdfast.rendezvous.parameters import RendezvousParameters

    RendezvousHandlerCreator: TypeAlias = Callable[[RendezvousParameters], RendezvousHandler]

ENTRY_POINT_GROUPS = ("holdfast.rendezvous", "torchrun.handlers")
"""Where installed backends are looked for; the first group that has the name wins."""


class RendezvousHandlerRegistry:
    """Makes handlers by the name of their backend."""

    def __init__(self) -> None:
        self._creators: dict[str, RendezvousHandlerCreator] = {}

    def register(self, backend: str, creator: RendezvousHandlerCreator) -> None:
        """Let `creator` make the handlers of `backend`. A name can be taken once."""
        if not backend:
            raise ValueError("a backend needs a name")
        current = self._creators.setdefault(backend, creator)
        if current != creator:
            raise ValueError(f"the rendezvous backend {backend!r} is registered already, with {current!r}")

    def names(self) -> list[str]:
        """What is registered; installed backends that were not asked for yet are not among it."""
        return sorted(self._creators)

    def create_handler(self, params: RendezvousParameters) -> RendezvousHandler:
        """A handler of the backend that `params` names."""
        creator = self._creators.get(params.backend) or self._installed(params.backend)
        handler = creator(params)
        if handler.get_backend() != params.backend:
            raise RuntimeError(
                f"the rendezvous backend {params.backend!r} made a handler that calls itself {handler.get_backend()!r}"
            )
        return handler

    def _installed(self, backend: str) -> RendezvousHandlerCreator:
        from holdfast.plugins import load_plugin  # noqa: PLC0415 - not for the built-in ones

        creator: RendezvousHandlerCreator = load_plugin(
            "--rdzv-backend", backend, ENTRY_POINT_GROUPS, self._creators, lambda found: found
        )
        return creator


def _create_static(params: RendezvousParameters) -> RendezvousHandler:
    from holdfast.rendezvous.static import StaticRendezvous  # noqa: PLC0415 - one backend is needed

    return StaticRendezvous.from_parameters(params)


def _create_elastic(params: RendezvousParameters) -> RendezvousHandler:
    if params.max_nodes == 1:
        from holdfast.rendezvous.static import StaticRendezvous  # noqa: PLC0415 - one backend is needed

        return StaticRendezvous.alone(params)
    from holdfast.errors.tree import InputError  # noqa: PLC0415 - only on the way out

    raise InputError(
        f"--rdzv-backend {params.backend!r}: nodes that come and go are not there yet; for a fixed number of them "
        "use --rdzv-backend static with --node-rank, --master-addr and --master-port"
    )


rendezvous_handler_registry = RendezvousHandlerRegistry()
rendezvous_handler_registry.register("static", _create_static)
for _name in ("c10d", "etcd", "etcd-v2"):
    rendezvous_handler_registry.register(_name, _create_elastic)
