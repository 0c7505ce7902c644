from __future__ import annotations

import pytest
from installed_plugin import install_plugin

from holdfast.errors import InputError
from holdfast.rendezvous import (
    RendezvousHandlerRegistry,
    RendezvousParameters,
)
from holdfast.rendezvous.static import StaticRendezvous


def parameters(**config):
    return RendezvousParameters("mine", "", "run", 1, 1, **config)


def test_a_registered_backend_is_made():
    registry = RendezvousHandlerRegistry()
    registry.register("mine", StaticRendezvous.alone)
    assert registry.create_handler(parameters()).get_backend() == "mine"
    assert registry.names() == ["mine"]


def test_a_name_can_be_taken_once():
    registry = RendezvousHandlerRegistry()
    registry.register("mine", StaticRendezvous.alone)
    registry.register("mine", StaticRendezvous.alone)
    with pytest.raises(ValueError, match="registered already"):
        registry.register("mine", lambda _: None)
    with pytest.raises(ValueError, match="name"):
        registry.register("", StaticRendezvous.alone)


def test_a_handler_of_another_name_is_refused():
    registry = RendezvousHandlerRegistry()
    registry.register("mine", lambda params: StaticRendezvous("a", 1, 0, 1, params.run_id))
    with pytest.raises(RuntimeError, match="'static'"):
        registry.create_handler(parameters())


def test_an_installed_backend_is_found(tmp_path, monkeypatch):
    code = "from holdfast.rendezvous.static import StaticRendezvous as S\nmake = S.alone\n"
    install_plugin(
        tmp_path, "plug_in", code, "[torchrun.handlers]\nmine = plug_in:make\nbroken = no_such_module:make\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    registry = RendezvousHandlerRegistry()
    assert registry.create_handler(parameters()).get_backend() == "mine"
    with pytest.raises(InputError, match=r"'broken'.*cannot be loaded"):
        registry.create_handler(RendezvousParameters("broken", "", "run", 1, 1))
