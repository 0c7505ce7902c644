"""The type of creators, as programs write it in annotations."""

from __future__ import annotations

import typing

from holdfast.rendezvous import RendezvousHandler, RendezvousHandlerCreator, RendezvousParameters


def test_it_takes_parameters_and_makes_a_handler():
    assert typing.get_args(RendezvousHandlerCreator) == ([RendezvousParameters], RendezvousHandler)
