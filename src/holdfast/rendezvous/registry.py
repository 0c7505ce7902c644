"""Backends by name: built in, registered by a program, or installed as plug-ins."""

from __future__ import annotations

from holdfast.rendezvous.backends import BACKENDS, STATIC

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from holdfast.rendezvous.creator import RendezvousHandlerCreator
    from holdfast.rendezvous.handler import RendezvousHandler
    from holdfast.rendezvous.parameters import RendezvousParameters

BUILT_IN_BACKENDS = frozenset((STATIC.name, *BACKENDS))
"""The backends that know our own settings. Others might reject unknown settings."""

ENTRY_POINT_GROUPS = ("holdfast.rendezvous", "torchrun.handlers")
"""The entry point groups of installed backends. The first group that has the name wins."""

_REMOVED = "etcd-v2"
"""A backend of torchrun's. It is refused by name, and not offered as a choice."""


class RendezvousHandlerRegistry:
    """Makes handlers by the name of their backend."""

    def __init__(self) -> None:
        self._creators: dict[str, RendezvousHandlerCreator] = {}

    def register(self, backend: str, creator: RendezvousHandlerCreator) -> None:
        """Let `creator` make the handlers of `backend`. A name can be registered once."""
        if not backend:
            raise ValueError("a backend needs a name")
        current = self._creators.setdefault(backend, creator)
        if current != creator:
            raise ValueError(f"the rendezvous backend {backend!r} is registered already, with {current!r}")

    def names(self) -> list[str]:
        """The registered names, without installed backends that were not used yet."""
        return sorted(self._creators)

    def create_handler(self, params: RendezvousParameters) -> RendezvousHandler:
        """A handler of the backend that `params` names."""
        if params.backend not in self._creators:
            refuse_removed(params.backend)
        creator = self._creators.get(params.backend) or self._installed(params.backend)
        handler = creator(params)
        if handler.get_backend() != params.backend:
            raise RuntimeError(
                f"the rendezvous backend {params.backend!r} made a handler that calls itself {handler.get_backend()!r}"
            )
        return handler

    def _installed(self, backend: str) -> RendezvousHandlerCreator:
        from holdfast.plugins import load_plugin

        creator: RendezvousHandlerCreator = load_plugin(
            "--rdzv-backend", backend, ENTRY_POINT_GROUPS, self._creators, _creator_from
        )
        return creator


def _creator_from(found: Any) -> RendezvousHandlerCreator:
    """The creator that an entry point names. One that was made for torchrun names a function that returns it."""
    from inspect import signature

    try:
        signature(found).bind(None)
    except TypeError:
        found = found()
    creator: RendezvousHandlerCreator = found
    return creator


def get_rendezvous_handler(params: RendezvousParameters) -> RendezvousHandler:
    """A handler of the backend that `params` names. `launch_agent` gets its handler here, also if it was replaced."""
    return rendezvous_handler_registry.create_handler(params)


def create_rdzv_handler(params: RendezvousParameters) -> RendezvousHandler:
    """A handler of the backend ``static`` for a node that was told everything.

    Raises:
        InputError: `params` lacks the endpoint's host, its port or the node's rank.
    """
    from holdfast.rendezvous.static import check_complete

    check_complete(params)
    return _create_static(params)


def _create_static(params: RendezvousParameters) -> RendezvousHandler:
    from holdfast.rendezvous.static import StaticRendezvous, check_rank

    check_rank(params)
    return StaticRendezvous.from_parameters(params) if params.max_nodes == 1 else _meeting(params)


def _create_elastic(params: RendezvousParameters) -> RendezvousHandler:
    # A single node has nobody to meet. In a store that it does not serve itself, it may have spares.
    if params.max_nodes == 1 and not (BACKENDS[params.backend].is_external and params.endpoint):
        from holdfast.rendezvous.static import StaticRendezvous

        return StaticRendezvous.alone(params)
    return _meeting(params)


def _meeting(params: RendezvousParameters) -> RendezvousHandler:
    from holdfast.rendezvous.elastic import ElasticRendezvous
    from holdfast.rendezvous.elastic_settings import ElasticSettings

    return ElasticRendezvous(params.backend, params.run_id, ElasticSettings(params), params.local_addr)


def refuse_removed(backend: str) -> None:
    """Raise InputError for a backend that torchrun has and nobody can offer any more."""
    if backend == _REMOVED:
        from holdfast.errors.tree import InputError

        raise InputError(
            f"--rdzv-backend {_REMOVED}: etcd has removed its v2 API; write --rdzv-backend etcd, which speaks v3, "
            "with the same --rdzv-endpoint"
        )


rendezvous_handler_registry = RendezvousHandlerRegistry()
rendezvous_handler_registry.register(STATIC.name, _create_static)
for _name in BACKENDS:
    rendezvous_handler_registry.register(_name, _create_elastic)
