"""Two thousand clients of one server."""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys

from embedded_server import TOKEN, ServerProcess

from holdfast.coordination.client import EmbeddedStore
from holdfast.coordination.model import Put, Transaction

CLIENTS = 2_000
VALUE = bytes(100_000)


async def join(address, number):
    store = EmbeddedStore(*address, token=TOKEN, connect_timeout_s=100, answer_timeout_s=100)
    lease = await store.grant(600)
    outcome = await store.transact(Transaction((), (Put(f"nodes/{number:05}", b"", lease.id),)))
    watch = store.watch("generation", outcome.revision)
    await store.keep_alive(lease.id)
    return store, watch


async def crowd(port):
    address = ("127.0.0.1", port)
    members = await asyncio.gather(*(join(address, number) for number in range(CLIENTS)))
    first = members[0][0]
    assert len((await first.get_prefix("nodes/")).entries) == CLIENTS
    await first.transact(Transaction((), (Put("generation", VALUE),)))
    changes = await asyncio.gather(*(anext(watch) for _, watch in members))
    assert {change.changes[0].entry.value for change in changes} == {VALUE}
    assert len({change.revision for change in changes}) == 1
    print("all were told", flush=True)
    sys.stdin.readline()
    await asyncio.gather(*(store.close() for store, _ in members))


def test_two_thousand_clients_are_told_of_a_change_within_300_megabytes():
    with ServerProcess(descriptors_max=CLIENTS + 200) as server:
        clients = subprocess.Popen(
            [sys.executable, __file__, str(server.address[1])],
            env={"PYTHONPATH": ":".join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert clients.stdout.readline() == "all were told\n"
            assert server.memory_peak_bytes() < 300 << 20
            clients.communicate("end\n", timeout=100)
            assert clients.returncode == 0
        finally:
            clients.kill()
            clients.communicate()
        assert server.finish() == 0


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (CLIENTS + 100, CLIENTS + 100))
    asyncio.run(crowd(int(sys.argv[1])))
