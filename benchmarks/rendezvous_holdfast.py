"""holdfast's agents that meet: the store in one process (`server`), and members of a group in others (`agents`)."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING

from holdfast import descriptors
from holdfast.coordination.client import EmbeddedStore
from holdfast.coordination.server import EmbeddedServer
from holdfast.coordination.tls import own_client_context, own_server_tls
from holdfast.rendezvous.decision import Settings
from holdfast.rendezvous.member import Member
from holdfast.rendezvous.membership import Membership
from holdfast.rendezvous.records import Keys, Node, StacksRequest

if TYPE_CHECKING:
    from holdfast.rendezvous.decision import Leave, Stop
    from holdfast.rendezvous.records import End, Generation

ADDRESS = "127.0.0.1"
TOKEN = b"the token of the benchmark"
CONNECTIONS_MAX = 2_000


class Agent:
    """Listens to its member, and remembers when it was told to start."""

    def __init__(self) -> None:
        self.started: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def start(self, generation: Generation) -> None:
        del generation
        self.started.set_result(time.monotonic_ns())

    def stop(self, reason: Stop) -> None:
        raise RuntimeError(reason.reason)

    def leave_group(self, reason: Leave) -> None:
        self.break_down(RuntimeError(reason.reason))

    def break_down(self, error: BaseException) -> None:
        self.started.set_exception(error)

    def fence(self, fence_at: float) -> None: ...

    def status(self, text: str) -> None: ...

    def stacks(self, request: StacksRequest) -> None: ...

    def recorded(self, generation: int) -> None: ...

    def closed(self, end: End) -> None: ...


async def serve(*, has_tls: bool) -> None:
    server = EmbeddedServer(token=TOKEN, tls=own_server_tls() if has_tls else None)
    await server.start(ADDRESS, 0)
    print(server.address[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await server.close()


async def meet(port: int, share: int, count: int, run_id: str, *, has_tls: bool) -> None:
    """`share` of `count` agents, from nothing: each connects, proves its token, joins and waits for its rank."""
    print("ready", flush=True)
    sys.stdin.readline()
    agents = [Agent() for _ in range(share)]
    for number, agent in enumerate(agents):
        membership = Membership(
            Keys(run_id),
            Settings(count, count),
            f"{time.monotonic_ns():x}-{number}",
            ttl_s=60.0,
            keep_alive_s=20.0,
            store_may_return=False,
        )
        tls = own_client_context() if has_tls else None
        member = Member(membership, EmbeddedStore(ADDRESS, port, token=TOKEN, tls=tls), agent)
        member.seek(Node("host", ADDRESS, 29500, "default", 8))
    print(max(await asyncio.gather(*(agent.started for agent in agents))), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


def main(what: str, how: str, *words: str) -> None:
    has_tls = how == "tls"
    descriptors.allow(2 * CONNECTIONS_MAX + 256)  # the server leaves a part to the rest of the process
    if what == "server":
        asyncio.run(serve(has_tls=has_tls))
    else:
        port, share, count, run_id = words
        asyncio.run(meet(int(port), int(share), int(count), run_id, has_tls=has_tls))


if __name__ == "__main__":
    main(*sys.argv[1:])
