"""The type of the functions that make handlers, for annotations of programs that register one."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.rendezvous.handler import RendezvousHandler
from holdfast.rendezvous.parameters import RendezvousParameters

RendezvousHandlerCreator = Callable[[RendezvousParameters], RendezvousHandler]
