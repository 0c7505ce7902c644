"""A process of scenario worker_store: `server SYSTEM`, or `clients`.

Both answer in lines of JSON, first that they are ready. The one with the clients has imported torch, and forks as many
as a task needs: it reads tasks, and says the number that each of them is about.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any

from benchmarks.subject import HOLDFAST

if TYPE_CHECKING:
    from collections.abc import Callable

HOST = "127.0.0.1"

BETWEEN_LOOKS = 100
"""How many operations a client makes between two looks at the clock."""

CHILD_MAX_S = 60
"""A client that takes longer hangs, and its alarm ends it."""


def serve(system: str) -> None:
    """For each line that comes, a new store instead of the last one, and its port."""
    make = _holdfast_store if system == HOLDFAST else _torch_store
    print(json.dumps("ready"), flush=True)
    end = None
    for _ in sys.stdin:
        if end is not None:
            end()
        port, end = make()
        print(port, flush=True)


def _holdfast_store() -> tuple[int, Callable[[], None]]:
    from holdfast.torchstore import TorchStoreServer

    server = TorchStoreServer(HOST)
    server.start()
    return server.port, server.stop


def _torch_store() -> tuple[int, Callable[[], None]]:
    from torch.distributed import TCPStore

    store = [TCPStore(HOST, 0, is_master=True, wait_for_workers=False)]
    return store[0].port, store.clear


def clients() -> None:
    import torch.distributed

    assert torch.distributed.is_available()
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        task = json.loads(line)
        print(json.dumps(_rate(task) if task["task"] == "rate" else _init_s(task)), flush=True)


def _rate(task: dict[str, Any]) -> float:
    """Operations a second, of all clients together."""

    def client(ready: Callable[[], None]) -> float:
        from torch.distributed import TCPStore

        store = TCPStore(HOST, task["port"], is_master=False)
        store.set("key", "value")
        operation: Callable[[], object] = {
            "get": lambda: store.get("key"),
            "add": lambda: store.add("counter", 1),
            "check": lambda: store.check(["key"]),
            "wait": lambda: store.wait(["key"]),
        }[task["operation"]]
        operation()
        ready()
        done, began = 0, time.perf_counter()
        while (took := time.perf_counter() - began) < task["for_s"]:
            for _ in range(BETWEEN_LOOKS):
                operation()
            done += BETWEEN_LOOKS
        return done / took

    return sum(_children(task["clients"], lambda _, ready: client(ready))[1])


def _init_s(task: dict[str, Any]) -> float:
    """Seconds from the start signal until the last rank has its process group."""

    def rank_of(rank: int, ready: Callable[[], None]) -> float:
        import torch.distributed as dist

        os.environ |= {
            "MASTER_ADDR": HOST,
            "MASTER_PORT": str(task["port"]),
            "RANK": str(rank),
            "WORLD_SIZE": str(task["ranks"]),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "GLOO_SOCKET_IFNAME": "lo",
        }
        ready()
        dist.init_process_group("gloo")
        return time.monotonic()

    began, ended = _children(task["ranks"], rank_of)
    return max(ended) - began


def _children(count: int, job: Callable[[int, Callable[[], None]], float]) -> tuple[float, list[float]]:
    """When all children were told to start, and what each of them said. They end together."""
    go, start = os.pipe()
    end, finish = os.pipe()
    said, say = os.pipe()
    pids = []
    for number in range(count):
        pid = os.fork()
        if not pid:
            os.close(start)
            os.close(finish)
            _child(number, job, go, end, say)
        pids.append(pid)
    for fd in (go, end, say):
        os.close(fd)
    with os.fdopen(said) as lines:
        for _ in pids:
            assert lines.readline() == "ready\n", "a client did not get ready"
        began = time.monotonic()
        os.close(start)
        answers = [float(lines.readline()) for _ in pids]
    os.close(finish)
    for pid in pids:
        os.waitpid(pid, 0)
    return began, answers


def _child(number: int, job: Callable[[int, Callable[[], None]], float], go: int, end: int, say: int) -> None:
    """Tells the parent when it is ready, and what its job returned; `go` and `end` end when it may go on."""
    signal.alarm(CHILD_MAX_S)

    def ready() -> None:
        os.write(say, b"ready\n")
        os.read(go, 1)

    try:
        os.write(say, f"{job(number, ready)}\n".encode())
        os.close(say)
        os.read(end, 1)  # nobody needs a connection to this one any more
    except BaseException:  # noqa: BLE001 - whatever it is, the child ends here
        traceback.print_exc()
    finally:
        os._exit(0)  # without goodbyes, for which nobody waits


if __name__ == "__main__":
    if sys.argv[1] == "server":
        serve(sys.argv[2])
    else:
        clients()
