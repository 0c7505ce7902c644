"""The inside of a process that has one of the systems under test, and nothing of the other.

holdfast's functions have the names and signatures of torch's, so a scenario has one text for both: its function
`subject`, which gets the system's module and is called here, once for each round. This module imports little, as
spawned workers import it again.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from multiprocessing.connection import Connection

HOLDFAST = "holdfast"
TORCH = "torch"
MODULES = {HOLDFAST: "holdfast.processes", TORCH: "torch.distributed.elastic.multiprocessing"}

POLL_PERIOD_S = 0.1
"""What torch's agent takes between two looks, and so what its users get. It means nothing to holdfast."""


def rank_environments(nprocs: int) -> dict[int, dict[str, str]]:
    """The least that both expect of an agent."""
    return {rank: {"TORCHELASTIC_RUN_ID": "bench", "TORCHELASTIC_RESTART_COUNT": "0"} for rank in range(nprocs)}


def main(system: str, scenario: str, fd: str) -> None:
    """On the connection `fd`, say when all is imported; then answer arguments with what `subject` returns for them."""
    os.set_inheritable(int(fd), False)
    module = import_module(MODULES[system])
    subject = import_module(f"benchmarks.{scenario}").subject
    with Connection(int(fd)) as connection:
        connection.send("ready")
        while True:
            try:
                args = connection.recv()
            except EOFError:
                return
            connection.send(subject(module, *args))


if __name__ == "__main__":
    main(*sys.argv[1:])
