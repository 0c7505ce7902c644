"""Who serves the store."""

from __future__ import annotations

import asyncio
import contextlib
import re
import resource
import socket
import subprocess
import sys
import threading

import pytest
from embedded_server import ServerProcess
from other_users import ALICE, as_user
from raw_peer import RawPeer

from holdfast.coordination.errors import StoreRefusedError
from holdfast.coordination.model import Put, Transaction
from holdfast.errors import InputError
from holdfast.rendezvous import meeting_place
from holdfast.rendezvous.meeting_place import EmbeddedPlace


def embedded(port, is_host=None, host="127.0.0.1", nodes_max=4, **arguments):
    return EmbeddedPlace(
        host,
        port,
        is_host=is_host,
        token=b"secret",
        answer_timeout_s=10.0,
        nodes_max=nodes_max,
        **arguments,
    )


@pytest.fixture
def held():
    """A port that somebody holds without serving there."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder


def port_of(holder):
    port = holder.getsockname()[1]
    holder.close()
    return port


def test_the_first_on_a_machine_serves_and_the_next_one_finds_it(held):
    async def story(port):
        first, second = embedded(port), embedded(port)
        stores = [await first.open(), await second.open()]
        assert (first.is_host, second.is_host) == (True, False)
        for store in stores:
            assert await store.get("key") is None
            assert store.local_address() == "127.0.0.1"
            await store.close()
        await second.close()
        await first.close()

    asyncio.run(story(port_of(held)))


@pytest.mark.root
@pytest.mark.parametrize("users", [frozenset(), frozenset({ALICE}), None])
def test_users_who_are_named_may_be_at_both_ends(held, users):
    async def serve(port):
        place = embedded(port, users=users)
        store = await place.open()
        with as_user(ALICE):
            peer = RawPeer(("127.0.0.1", port))
            await peer.__aenter__()
        if users == frozenset():
            assert "store_users" in (await peer.parting()).text
        else:
            assert await peer.greeting()
        await peer.__aexit__()
        await store.close()
        await place.close()

    async def connect(address):
        place = embedded(address[1], is_host=False, users=users)
        for opened in (await place.open(), place.access().open(10.0)):
            async with opened as store:
                if users == frozenset():
                    with pytest.raises(StoreRefusedError):
                        await store.get("key")
                else:
                    assert await store.get("key") is None

    asyncio.run(serve(port_of(held)))
    with ServerProcess(user=ALICE) as server:
        asyncio.run(connect(server.address))


def test_who_is_told_not_to_does_not(held):
    async def story(port):
        place = embedded(port, is_host=False)
        await (await place.open()).close()
        await place.look_again()
        assert not place.is_host

    asyncio.run(story(port_of(held)))


def test_another_machine_serves_at_another_address():
    async def story():
        place = embedded(1, host="192.0.2.1")
        await (await place.open()).close()
        assert not place.is_host

    asyncio.run(story())


@pytest.mark.parametrize(
    ("option", "named"), [("", r"--rdzv-endpoint 127.0.0.1:\d+"), ("--master-port 7", "--master-port 7")]
)
def test_who_has_to_serve_and_cannot_says_so(held, option, named):
    held.listen()
    with pytest.raises(InputError, match=f"^{named}: cannot listen there: Address already in use"):
        asyncio.run(embedded(held.getsockname()[1], is_host=True, option=option).open())


def test_who_serves_may_be_asked_for_another_client(held):
    async def story(port):
        place = embedded(port, is_host=True)
        first, second = await place.open(), await place.open()
        await first.transact(Transaction((), (Put("key", b"value"),)))
        assert (await second.get("key")).value == b"value"
        for store in (first, second):
            await store.close()
        await place.close()

    asyncio.run(story(port_of(held)))


def test_without_trust_the_number_of_connections_is_that_of_the_nodes(held, monkeypatch):
    monkeypatch.setattr(meeting_place, "CONNECTIONS_A_STRANGER", 1)

    async def story(port):
        place = embedded(port, is_host=True, nodes_max=1, has_trust=False)
        async with await place.open() as member, await place.open() as stranger:
            assert await member.get("key") is None
            with pytest.raises(StoreRefusedError, match="as many nodes as the job has are connected"):
                await stranger.get("key")
        await place.close()

    asyncio.run(story(port_of(held)))


def test_a_port_that_is_taken_for_a_moment_is_served_in_the_end(held):
    async def story():
        place = embedded(held.getsockname()[1])
        store = await place.open()
        assert not place.is_host
        held.close()
        await place.look_again()
        assert place.is_host
        await store.get("key")
        await store.close()
        await place.close()

    asyncio.run(story())


def test_a_large_job_is_let_in_whatever_limit_the_host_began_with():
    script = """
import asyncio, resource, socket, sys
sys.path[:0] = sys.argv[1:]
from test_meeting_place import embedded
resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
async def story():
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        port = holder.getsockname()[1]
    place = embedded(port, nodes_max=200)
    store = await place.open()
    clients = [await embedded(port, is_host=False).open() for _ in range(150)]
    for client in clients:
        await client.get("key")
    print(place._server.connections)
    for client in (store, *clients):
        await client.close()
    await place.close()
asyncio.run(story())
"""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 2000:
        pytest.skip("this machine allows no process so many descriptors")
    path = [__file__.rpartition("/")[0], *sys.path]
    shown = subprocess.run([sys.executable, "-c", script, *path], capture_output=True, text=True, check=False)
    assert shown.stdout == "150\n", shown.stderr


@contextlib.contextmanager
def listening(answer=b""):
    """A server of something else: it sends `answer` to each client."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        connection.sendall(answer)

        if answer:
            threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (b"HTTP/1.0 400 Bad request\r\n\r\n", "a web server"),
        (b'HTTP/1.0 200 OK\r\n\r\n{"etcdserver": "3.4"}', "etcd"),
        (b"SSH-2.0-OpenSSH\r\n", "it says 'SSH-2.0-OpenSSH'"),
    ],
)
def test_a_port_of_this_machine_that_something_else_has_is_bad_input(answer, what):
    async def story(port):
        place = embedded(port)
        store = await place.open()
        try:
            with pytest.raises(
                InputError, match=re.escape(f"port {port} of this machine is used by something else ({what});")
            ):
                await place.look_who_listens()
        finally:
            await store.close()
        await embedded(port, is_host=False).look_who_listens()
        await embedded(port, host="192.0.2.1").look_who_listens()

    with listening(answer) as port:
        asyncio.run(story(port))


def test_a_port_that_says_nothing_or_is_the_stores_is_no_bad_input(held, caplog):
    async def story(port):
        first, second = embedded(port), embedded(port)
        await first.open()
        await second.open()
        await first.look_who_listens()
        await second.look_who_listens()
        await first.close()

    asyncio.run(story(port_of(held)))
    assert "says nothing" not in caplog.text
    with listening() as port:
        asyncio.run(embedded(port).look_who_listens())
    assert f"port {port} of this machine is used by a program that does not answer" in caplog.text
