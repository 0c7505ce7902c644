"""A program that builds jobs from torch's parts: a launch, an agent of its own, and a rendezvous of torch's."""

import os
import sys
import tempfile

from torch.distributed.elastic.agent.server.api import WorkerSpec
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.launcher.api import LaunchConfig, elastic_launch


class NoisyAgent(LocalElasticAgent):
    def _start_workers(self, worker_group):
        print("starts", worker_group.spec.local_world_size, "workers", flush=True)
        return super()._start_workers(worker_group)


def rank_times(factor: int) -> int:
    return int(os.environ["RANK"]) * factor


def rendezvous_of_torch():
    from torch.distributed.elastic.rendezvous import c10d_rendezvous_backend, dynamic_rendezvous

    parameters = RendezvousParameters("c10d", "localhost:0", "run", 1, 1)
    backend, store = c10d_rendezvous_backend.create_backend(parameters)
    return dynamic_rendezvous.create_handler(store, backend, parameters)


def main(kind: str) -> None:
    if kind == "launch":
        config = LaunchConfig(1, 1, 2, rdzv_backend="c10d", max_restarts=0)
        print(elastic_launch(config, rank_times)(7))
        return
    spec = WorkerSpec("trainer", 2, rendezvous_of_torch(), entrypoint=rank_times, args=(7,), max_restarts=0)
    print(type(spec.rdzv_handler).__module__)
    print(NoisyAgent(spec, DefaultLogsSpecs(tempfile.mkdtemp())).run().return_values)


if __name__ == "__main__":
    main(sys.argv[1])
