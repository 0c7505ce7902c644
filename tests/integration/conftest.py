from __future__ import annotations

import pytest
from job_nodes import HOLDFAST, Job
from meeting_places import PLACES
from network import Network

LAST_CALL_S = 1
"""How long a group that is large enough waits for more."""


@pytest.fixture
def network():
    """Makes networks: `network(4)` has four nodes. They are gone after the test."""
    made = []

    def make(size):
        made.append(Network(size))
        return made[-1].__enter__()

    yield make
    for each in made:
        each.close()


@pytest.fixture(params=["embedded", pytest.param("etcd", marks=pytest.mark.etcd)])
def place_name(request):
    """Where the agents of a job meet; a test that is about one of them says so."""
    return request.param


@pytest.fixture
def job(network, place_name, tmp_path):
    """Makes jobs: `job("3:4")` is one of two workers a node, with as many nodes, all idle, as there can be at most."""
    made = []

    def make(nnodes, *flags, nodes=0, run_id="job", launcher=HOLDFAST, **environment):
        size = nodes or int(nnodes.rpartition(":")[2])
        place_kind = PLACES[place_name]
        net = network(size + place_kind.extra_nodes)
        place = place_kind(net, tmp_path)
        made.append(place)
        common = [f"--nnodes={nnodes}", "--nproc-per-node=2", "--max-restarts=3", f"--rdzv-id={run_id}"]
        common += [f"--rdzv-backend={place.backend}", f"--rdzv-endpoint={place.endpoint}"]
        common += [f"--rdzv-conf=last_call_timeout={LAST_CALL_S}"]
        job = Job(net, tmp_path, [*common, *flags], launcher=launcher, environment={**place.environment, **environment})
        made.append(job)
        job.place = place
        job.nodes = net.nodes[:size]
        return job

    yield make
    for each in reversed(made):
        each.close()
