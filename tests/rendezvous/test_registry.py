from __future__ import annotations

import pytest
from installed_plugin import install_plugin

from holdfast.errors import InputError
from holdfast.rendezvous import (
    RendezvousHandlerRegistry,
    RendezvousParameters,
    create_rdzv_handler,
    get_rendezvous_handler,
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
    registry.register("mine", lambda params: StaticRendezvous("a", 1, params.run_id))
    with pytest.raises(RuntimeError, match="'static'"):
        registry.create_handler(parameters())


def test_an_installed_backend_is_found(tmp_path, monkeypatch):
    code = "from holdfast.rendezvous.static import StaticRendezvous as S\nmake = S.alone\n"
    code += "def made_for_torch(): return make\n"
    install_plugin(
        tmp_path,
        "plug_in",
        code,
        "[torchrun.handlers]\nmine = plug_in:make\nfactory = plug_in:made_for_torch\nbroken = no_such_module:make\n",
    )
    monkeypatch.syspath_prepend(tmp_path)
    registry = RendezvousHandlerRegistry()
    assert registry.create_handler(parameters()).get_backend() == "mine"
    assert registry.create_handler(RendezvousParameters("factory", "", "run", 1, 1)).get_backend() == "factory"
    with pytest.raises(InputError, match=r"'broken'.*cannot be loaded"):
        registry.create_handler(RendezvousParameters("broken", "", "run", 1, 1))


def test_a_handler_of_a_built_in_backend():
    handler = get_rendezvous_handler(RendezvousParameters("static", "", "run", 1, 1))
    assert (handler.get_backend(), handler.get_run_id()) == ("static", "run")


@pytest.mark.parametrize(
    ("endpoint", "problem"),
    [
        ("", "the endpoint is missing"),
        (" ", "the endpoint is missing"),
        ("node0", "the port is missing"),
        ("fd00::1", "the port is missing"),
        ("[fd00::1]", "the port is missing"),
        (":29500", "write HOST:PORT"),
        ("node0:x", "write HOST:PORT"),
    ],
)
def test_a_static_node_without_a_whole_endpoint_is_refused(endpoint, problem):
    with pytest.raises(InputError, match=problem) as raised:
        create_rdzv_handler(RendezvousParameters("static", endpoint, "run", 1, 1, rank=0))
    assert isinstance(raised.value, ValueError)


def test_a_static_node_without_a_rank_is_refused():
    with pytest.raises(ValueError, match="--node-rank: the rank is missing"):
        create_rdzv_handler(RendezvousParameters("static", "node0:29500", "run", 1, 1))


@pytest.mark.parametrize("endpoint", ["127.0.0.1:29500", "[::1]:29500"])
def test_a_static_node_that_was_told_everything(endpoint):
    handler = create_rdzv_handler(RendezvousParameters("static", endpoint, "run", 1, 1, rank="0"))
    assert (handler.get_backend(), handler.get_run_id()) == ("static", "run")
