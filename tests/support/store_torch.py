"""Programs with torch, for the tests of the store of its workers: `server`, `client PORT`, `steady PORT`, `rank`.

They answer in lines of JSON. torch stays out of the tests' own process, which forks.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from datetime import timedelta

DEADLINE_S = 240


class TorchProgram:
    """One of these programs, as a process that is ended in any case."""

    def __init__(self, *words: str, **environment: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        )

    def answer(self):
        is_there = select.select([self._process.stdout], [], [], DEADLINE_S)[0]
        line = self._process.stdout.readline() if is_there else ""
        assert line, "the program with torch has ended, or hangs"
        return json.loads(line)

    def end_of_input(self) -> None:
        self._process.stdin.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()


def say(what) -> None:
    print(json.dumps(what), flush=True)


def server() -> None:
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    say(store.port)
    sys.stdin.read()


def client(port: str) -> None:
    """Every method of torch's client."""
    import torch.distributed as dist

    def connect():
        return dist.TCPStore("127.0.0.1", int(port), is_master=False, timeout=timedelta(seconds=60))

    def error_of(operation, *args, **kwargs):
        try:
            operation(*args, **kwargs)
        except Exception as error:
            return type(error).__name__
        return None

    store, other = connect(), connect()
    store.set("key", "value")
    store.set_timeout(timedelta(seconds=60))
    said = {
        "get": store.get("key").decode(),
        "other's get": other.get("key").decode(),
        "add": [store.add("n", 5), other.add("n", -7), store.get("n").decode()],
        "compare_set": [
            store.compare_set("c", "", "1").decode(),
            store.compare_set("c", "2", "3").decode(),
            store.compare_set("c", "1", "3").decode(),
            store.compare_set("missing", "1", "3").decode(),
        ],
        "check": [store.check(["key"]), store.check(["key", "missing"])],
        "delete_key": [store.delete_key("c"), store.delete_key("c")],
        "num_keys": store.num_keys(),
        "list_keys": sorted(store.list_keys()),
    }
    store.append("list", "a")
    store.append("list", "b")
    said["append"] = store.get("list").decode()
    store.multi_set(["m1", "m2"], ["1", "2"])
    said["multi_get"] = [value.decode() for value in store.multi_get(["m1", "m2"])]
    store.wait(["key", "n"])
    said["wait in vain"] = error_of(store.wait, ["missing"], timedelta(milliseconds=50))
    said["after it"] = store.get("key").decode()
    store.set_timeout(timedelta(milliseconds=50))
    said["get in vain"] = error_of(store.get, "missing")
    store.set_timeout(timedelta(seconds=60))
    other.set("missing", "now")
    said["after that"] = store.get("missing").decode()
    store.queue_push("q", "1")
    store.queue_push("q", "2")
    said["queue"] = [other.queue_len("q"), store.queue_pop("q").decode(), other.queue_pop("q").decode()]
    said["empty queue"] = error_of(store.queue_pop, "q", block=False)
    store.barrier("b", 1)
    said["barrier in vain"] = error_of(store.barrier, "b2", 2, timedelta(milliseconds=50))
    said["large"] = [store.set("large", "x" * (8 << 20)), len(other.get("large"))]
    said["clone"] = store.clone().get("key").decode()
    prefixed = dist.PrefixStore("p", store)
    prefixed.set("key", "other value")
    said["prefix"] = [prefixed.get("key").decode(), store.get("p/key").decode(), store.get("key").decode()]
    world = dist.TCPStore("127.0.0.1", int(port), world_size=1, is_master=False, wait_for_workers=True)
    said["init"] = [world.get("key").decode(), sorted(world.list_keys())]
    say(said)


def steady(port: str) -> None:
    """Count until the input ends, and then say whether every answer was right."""
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", int(port), is_master=False, timeout=timedelta(seconds=DEADLINE_S))
    say("ready")
    count, are_right = 0, True
    while count < 100 or not select.select([sys.stdin], [], [], 0)[0]:
        count += 1
        store.set(f"steady{count % 10}", str(count))
        are_right &= store.add("steady", 1) == count and store.get(f"steady{count % 10}") == str(count).encode()
    say(are_right)


def rank() -> None:
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    own = torch.tensor([float(dist.get_rank() + 1)])
    dist.all_reduce(own)
    dist.barrier()
    dist.barrier()
    say(own.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    {"server": server, "client": client, "steady": steady, "rank": rank}[sys.argv[1]](*sys.argv[2:])
