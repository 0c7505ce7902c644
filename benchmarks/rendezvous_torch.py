"""A process of torch's side of scenario rendezvous: `server`, or `agents PORT COUNT TOTAL RUN_ID`.

A server says its port. Agents say when all is imported, start when told so, and say when the last of them had
its rank. Each is a thread with a handler and a connection of its own, as an agent has them.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any

LOCAL_ADDRESS = "127.0.0.1"
"""Told, so that no agent asks a name server for its own name."""


def serve() -> None:
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    print(store.port, flush=True)
    sys.stdin.read()


def agents(port: str, count: str, total: str, run_id: str) -> None:
    from torch.distributed.elastic.rendezvous import RendezvousParameters
    from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import create_backend
    from torch.distributed.elastic.rendezvous.dynamic_rendezvous import create_handler

    ended_ns: list[int] = []

    def agent() -> None:
        nodes = int(total)
        parameters = RendezvousParameters("c10d", f"127.0.0.1:{port}", run_id, nodes, nodes, LOCAL_ADDRESS, is_host="0")
        backend, store = create_backend(parameters)
        handler: Any = create_handler(store, backend, parameters)
        assert handler.next_rendezvous().world_size == nodes
        ended_ns.append(time.monotonic_ns())
        kept.append(handler)

    kept: list[Any] = []
    threads = [threading.Thread(target=agent, daemon=True) for _ in range(int(count))]
    print("ready", flush=True)
    sys.stdin.readline()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(ended_ns) < len(threads):
        os._exit(1)
    print(max(ended_ns), flush=True)
    sys.stdin.read()
    os._exit(0)  # without goodbyes, for which nobody waits


if __name__ == "__main__":
    if sys.argv[1] == "server":
        serve()
    else:
        agents(*sys.argv[2:])
