"""A handler that does not inherit from ours, as one that was made for torch does not."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from holdfast.rendezvous import (
    RendezvousClosedError,
    RendezvousGracefulExitError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousStoreInfo,
)
from holdfast.rendezvous.foreign import ForeignHandler

Closed = type("RendezvousClosedError", (Exception,), {})
NotNeeded = type("OwnError", (type("RendezvousGracefulExitError", (Exception,), {}),), {})


class Theirs:
    use_agent_store = True

    def __init__(self, result):
        self.result = result
        self.calls = []

    def next_rendezvous(self):
        if isinstance(self.result, Exception):
            raise self.result
        return self.result

    def __getattr__(self, name):
        if name not in {"get_backend", "is_closed", "set_closed", "num_nodes_waiting", "get_run_id", "shutdown"}:
            raise AttributeError(name)  # they know nothing of our extensions
        return lambda: self.calls.append(name) or 0


def test_a_round_becomes_ours():
    place = SimpleNamespace(master_addr="node0", master_port=7)
    made = SimpleNamespace(store="store", rank=1, world_size=2, bootstrap_store_info=place)
    info = ForeignHandler(Theirs(made)).next_rendezvous()
    assert isinstance(info, RendezvousInfo)
    assert (info.store, info.rank, info.world_size) == ("store", 1, 2)
    assert info.bootstrap_store_info == RendezvousStoreInfo("node0", 7)
    assert (info.nodes, info.hosting) == (None, None)


def test_one_of_ours_stays():
    info = RendezvousInfo(None, 0, 1, RendezvousStoreInfo("node0", 7))
    assert ForeignHandler(Theirs(info)).next_rendezvous() is info


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Closed("over"), RendezvousClosedError),
        (NotNeeded("over"), RendezvousGracefulExitError),
        (OSError("over"), OSError),
    ],
)
def test_its_errors_become_ours_by_their_names(error, expected):
    with pytest.raises(expected, match="over"):
        ForeignHandler(Theirs(error)).next_rendezvous()


def test_its_methods_are_called_and_it_needs_no_others():
    theirs = Theirs(None)
    handler = ForeignHandler(theirs)
    assert (handler.use_agent_store, handler.counts_restarts, handler.needs_polling) == (True, False, True)
    names = ["get_backend", "is_closed", "set_closed", "num_nodes_waiting", "get_run_id", "shutdown"]
    for name in names:
        getattr(handler, name)()
    assert theirs.calls == names
    handler.leave()
    handler.explain("why")
    assert theirs.calls == names
    assert set(names) | {"next_rendezvous"} == RendezvousHandler.__abstractmethods__


WITH_TORCHS_HANDLER = """
import os
from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler
from holdfast import LaunchConfig, elastic_launch
from holdfast.rendezvous import registry

made = []

def torchs(params):
    theirs = RendezvousParameters(params.backend, params.endpoint, params.run_id, 1, 1, "127.0.0.1", **params.config)
    made.append(get_rendezvous_handler(theirs))
    return made[0]

def rank():
    return os.environ["RANK"], os.environ["TORCHELASTIC_RUN_ID"]

registry.get_rendezvous_handler = torchs
config = LaunchConfig(1, 1, 2, rdzv_backend="c10d", rdzv_endpoint="127.0.0.1:0", run_id="job")
print(elastic_launch(config, rank)(), made[0].is_closed())
"""


@pytest.mark.torch
def test_torchs_own_rendezvous_works_with_our_agent_and_is_closed_at_the_end():
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WITH_TORCHS_HANDLER],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.stdout == "{0: ('0', 'job'), 1: ('1', 'job')} True\n", ran.stderr
