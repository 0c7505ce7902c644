from __future__ import annotations

import sys

import pytest
from signpost import Signpost

from holdfast.agent import LocalElasticAgent, WorkerSpec
from holdfast.processes import DefaultLogsSpecs
from holdfast.rendezvous import RendezvousParameters
from holdfast.rendezvous.static import StaticRendezvous


@pytest.fixture
def post(tmp_path):
    signpost = Signpost(tmp_path / "signpost")
    yield signpost
    signpost.close()


@pytest.fixture
def rdzv():
    handler = StaticRendezvous.alone(RendezvousParameters("static", "", "the-run", 1, 1))
    yield handler
    handler.shutdown()


@pytest.fixture
def agent_of(tmp_path, rdzv):
    """Makes agents: keywords of WorkerSpec, and those of LocalElasticAgent in `agent`."""

    def make(*, agent=None, logs=None, **spec):
        spec = {
            "role": "trainer",
            "local_world_size": 2,
            "rdzv_handler": rdzv,
            "entrypoint": "true",
            "max_restarts": 0,
            **spec,
        }
        specs = DefaultLogsSpecs(log_dir=str(tmp_path / "logs"), **(logs or {}))
        return LocalElasticAgent(WorkerSpec(**spec), specs, **{"shutdown_timeout": 60, **(agent or {})})

    return make


@pytest.fixture
def python_agent(agent_of):
    """An agent whose workers run a script with the interpreter."""
    return lambda script, **options: agent_of(entrypoint=sys.executable, args=("-c", script), **options)
