"""Which users of the machine meet in a store on loopback, and what the others are told."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import struct
import subprocess
import sys
from contextlib import asynccontextmanager, contextmanager

import pytest
from embedded_server import TOKEN, ServerProcess
from other_users import ALICE, MALLORY, as_user
from raw_peer import RawPeer

from holdfast import socket_owners
from holdfast.coordination import server as server_module
from holdfast.coordination.client import EmbeddedStore
from holdfast.coordination.errors import StoreRefusedError, StoreReplacedError, StoreUnavailableError
from holdfast.coordination.handshake import NONCE_BYTES, VERSION, Greeting
from holdfast.coordination.local_users import why_not_served_by
from holdfast.coordination.model import STORE_ID_BYTES, Put, Transaction
from holdfast.coordination.server import EmbeddedServer
from holdfast.coordination.wire import THE_CONNECTION, encode, frame

PUT = Transaction((), (Put("key", b"value"),))
DEADLINE_S = 120
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


@asynccontextmanager
async def serving(host="127.0.0.1", token=TOKEN, **arguments):
    server = EmbeddedServer(token=token, **arguments)
    await server.start(host, 0)
    try:
        async with asyncio.timeout(DEADLINE_S):
            yield server
    finally:
        await server.close()


def client(address, **arguments):
    return EmbeddedStore(*address, **{"token": TOKEN, "connect_timeout_s": 60, "answer_timeout_s": 60, **arguments})


TAMPER = """
import asyncio, encodings.idna, os, sys  # all that is imported: another user may not read where it is
from holdfast.coordination import local_users
from holdfast.coordination.client import EmbeddedStore
from holdfast.coordination.errors import CoordinationError
from holdfast.coordination.model import Put, Transaction

async def tamper(user, host, port, token, *users):
    os.setuid(int(user))
    async with EmbeddedStore(host, int(port), token=token.encode(), users=frozenset(map(int, users))) as store:
        try:
            print("read", (await store.get("key")).value)
            await store.transact(Transaction((), (Put("key", b"changed"),)))
        except CoordinationError as error:
            print(type(error).__name__, error)

asyncio.run(tamper(*sys.argv[1:]))
"""


async def tamper(user, address, token=TOKEN, users=()):
    """What another user, who runs holdfast, comes to hear from a store with this token."""
    command = ["-c", TAMPER, user, *address, token.decode(), *users]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *map(str, command), env=ENVIRONMENT, stdout=subprocess.PIPE
    )
    said, _ = await process.communicate()
    assert process.returncode == 0
    return said.decode().strip()


def no_netlink(_):
    raise PermissionError("no netlink in this sandbox")


@pytest.fixture(params=["netlink", "table"])
def way(request, monkeypatch):
    """Both ways to ask: the second is for where there is no netlink."""
    if request.param == "table":
        monkeypatch.setattr(socket_owners, "Kernel", no_netlink)
    return request.param


@pytest.fixture
def nobody_tells(monkeypatch):
    monkeypatch.setattr(socket_owners, "Kernel", no_netlink)
    monkeypatch.setattr(socket_owners, "_TABLES", {4: "/proc/self/net/none", 16: "/proc/self/net/none"})


def told(caplog):
    return [record.getMessage() for record in caplog.records if record.name == "holdfast.coordination.server"]


# The server


@pytest.mark.root
@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.3", "::1"])
@pytest.mark.parametrize("token", [b"", TOKEN], ids=["without a token", "with the token"])
def test_another_user_of_the_machine_neither_reads_nor_changes_records(way, host, token, caplog):
    async def story():
        async with serving(host, token) as server, client(server.address, token=token) as store:
            await store.transact(PUT)
            said = await tamper(MALLORY, server.address, token)
            assert (await store.get("key")).value == b"value"
            place = f"[{host}]" if ":" in host else host
            why = (
                f"the store belongs to user 0, and the connecting node to user {MALLORY}; for another job choose "
                f"another port, for the same job give all nodes --rdzv-conf store_users=0+{MALLORY}"
            )
            assert said == f"StoreRefusedError the store at {place}:{server.address[1]} refuses this node: {why}"
            source = "0000:0000:0000:0000" if ":" in host else "127.0.0.1"
            assert told(caplog) == [f"the store refused a connection from {source}: {why}"]

    asyncio.run(story())


@pytest.mark.root
def test_users_who_were_named_meet(caplog):
    async def story(users):
        async with serving(users=users) as server, client(server.address) as store:
            await store.transact(PUT)
            assert await tamper(MALLORY, server.address) == "read b'value'"
            assert (await store.get("key")).value == b"changed"

    for users in (frozenset({MALLORY}), None):
        asyncio.run(story(users))
    assert told(caplog) == []


@pytest.mark.root
def test_root_may_use_every_store(caplog):
    async def story(address):
        async with client(address, users=frozenset({ALICE})) as store:
            await store.transact(PUT)
        assert await tamper(ALICE, address) == "read b'value'"
        assert (await tamper(MALLORY, address, users=[ALICE])).startswith("StoreRefusedError the store at 127.0.0.1:")

    with ServerProcess(user=ALICE) as server:
        asyncio.run(story(server.address))


@pytest.mark.root
def test_a_store_that_other_machines_reach_is_the_token_s_alone_to_guard(caplog):
    async def story():
        async with serving("0.0.0.0") as server, client(("127.0.0.1", server.address[1])) as store:
            await store.transact(PUT)
            assert await tamper(MALLORY, ("127.0.0.1", server.address[1])) == "read b'value'"

    asyncio.run(story())
    assert told(caplog) == []


@pytest.mark.root
def test_of_many_refusals_one_line_tells_and_it_counts_them(monkeypatch, caplog):
    async def story():
        async with serving() as server, client(server.address) as store:
            for count in range(1, 7):
                if count == 6:
                    monkeypatch.setattr(server_module, "REFUSALS_PAUSE_S", 0.0)
                with as_user(MALLORY):
                    stranger = socket.create_connection(server.address)
                reader, writer = await asyncio.open_connection(sock=stranger)
                assert await reader.read()
                writer.close()
                await writer.wait_closed()
            assert await store.get("key") is None

    asyncio.run(story())
    first, second = told(caplog)
    assert first.endswith(f"store_users=0+{MALLORY}")
    assert second.endswith(f"store_users=0+{MALLORY} (and 4 before it)")


@pytest.mark.root
def test_who_is_refused_takes_no_place_and_hears_why():
    async def story():
        async with serving() as server:
            with as_user(MALLORY):
                stranger = RawPeer(server.address)
                await stranger.__aenter__()
            parting = await stranger.parting()
            assert parting.reason.name == "REFUSED"
            assert len(server._unproven) == len(server._open) == 0
            await stranger.__aexit__()

    asyncio.run(story())


def test_a_connection_that_is_closed_at_once_is_not_told_of(caplog):
    async def story():
        async with serving() as server, client(server.address) as store:
            for _ in range(3):
                socket.create_connection(server.address).close()
            assert await store.get("key") is None

    asyncio.run(story())
    assert told(caplog) == []


@pytest.mark.root
def test_a_connection_that_nobody_here_has_is_refused_and_told_of(caplog):
    """The kernel does not find it by the addresses that we see, as its socket is bound to an interface."""

    async def story():
        async with serving() as server:
            stranger = socket.socket()
            stranger.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
            stranger.connect(server.address)
            reader, writer = await asyncio.open_connection(sock=stranger)
            assert b"store_users=any" in await reader.read()
            writer.close()

    asyncio.run(story())
    (line,) = told(caplog)
    assert "no process on this machine owns the other end; if this machine uses NAT" in line


def test_where_the_kernel_does_not_tell_users_apart_all_are_let_in_and_that_is_said(nobody_tells, caplog):
    async def story():
        async with serving() as server:
            for _ in range(3):
                async with client(server.address) as store:
                    assert await store.get("key") is None

    asyncio.run(story())
    (line,) = told(caplog)
    assert re.fullmatch(
        r"the kernel does not tell whose connections come to the store at 127.0.0.1:\d+: nothing but a token keeps "
        r"other users of this machine out",
        line,
    )


def test_a_kernel_without_memory_for_an_answer_lets_nobody_in(monkeypatch):
    """What another user can bring about must not open the door."""

    def fail(*_):
        raise OSError(105, "No buffer space available")

    async def story():
        async with serving() as server:
            monkeypatch.setattr(socket_owners.Kernel, "ask", fail)
            async with RawPeer(server.address) as peer:
                assert await peer.ended() == b""
            monkeypatch.undo()
            async with client(server.address) as store:
                assert await store.get("key") is None

    asyncio.run(story())


# The client

IMPOSTOR = """
import os, socket, sys
user, host, greeting = int(sys.argv[1]), sys.argv[2], bytes.fromhex(sys.argv[3])
os.setuid(user)
server = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
print(server.getsockname()[1], flush=True)
while True:
    accepted, _ = server.accept()
    accepted.sendall(greeting)
    heard = b""
    try:
        while piece := accepted.recv(4096):
            heard += piece
    except ConnectionError:
        pass
    print(heard.hex() or "nothing", flush=True)
"""


@contextmanager
def impostor(user, host="127.0.0.1", has_tls=False):
    """Somebody who greets as a store does. Gives where that is, and how to hear what was said to them."""
    greeting = frame(THE_CONNECTION, encode(Greeting(VERSION, bytes(NONCE_BYTES), bytes(STORE_ID_BYTES), has_tls)))
    command = [sys.executable, "-c", IMPOSTOR, str(user), host, greeting.hex()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield (host, int(process.stdout.readline())), lambda: process.stdout.readline().strip()
        finally:
            process.kill()


@pytest.mark.root
@pytest.mark.parametrize("has_tls", [False, True], ids=["plain", "TLS"])
@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
@pytest.mark.parametrize("token", [b"", TOKEN], ids=["without a token", "with a token"])
def test_a_client_says_nothing_to_another_users_store(way, host, token, has_tls):
    async def story(place, address, heard):
        async with client((host, address[1]), token=token) as store:
            with pytest.raises(StoreRefusedError) as raised:
                await store.get("key")
        assert str(raised.value) == (
            f"the store at {place}:{address[1]} is not for this node: the store belongs to user {MALLORY}, and the "
            "connecting node to user 0; for another job choose another port, for the same job give all nodes "
            f"--rdzv-conf store_users={MALLORY}+0"
        )
        assert heard() == "nothing"

    with impostor(MALLORY, host="127.0.0.1" if host == "localhost" else host, has_tls=has_tls) as (address, heard):
        asyncio.run(story(f"[{host}]" if ":" in host else host, address, heard))


@pytest.mark.root
def test_a_client_believes_roots_store(way):
    async def story():
        async with serving(users=frozenset({MALLORY})) as server, client(server.address) as store:
            await store.transact(PUT)
            assert await tamper(MALLORY, server.address) == "read b'value'"

    asyncio.run(story())


@pytest.mark.root
def test_a_client_believes_a_user_who_was_named(way):
    async def story(address):
        for users in (frozenset({ALICE}), None):
            async with client(address, users=users) as store:
                await store.transact(PUT)
        assert await tamper(ALICE, address) == "read b'value'"

    with ServerProcess(user=ALICE) as server:
        asyncio.run(story(server.address))


@pytest.mark.root
@pytest.mark.parametrize("how", ["closed", "reset"])
def test_another_user_who_greets_and_is_gone_is_not_taken_for_root(way, how):
    """The kernel says "user 0" of a socket that nobody has any more."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as greeted:
        with as_user(MALLORY):
            accepted, _ = server.accept()
        accepted.sendall(b"a greeting")
        if how == "reset":
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        accepted.close()
        with pytest.raises(OSError, match=r"closed|not connected"):
            why_not_served_by(greeted, frozenset())


@pytest.mark.root
def test_another_user_who_takes_the_place_of_a_store_replaces_it():
    async def story(server, address):
        async with client(server.address) as store:
            await store.transact(PUT)
            server.kill()
            store._port = address[1]  # the same place, as far as it knows
            with pytest.raises(StoreUnavailableError):
                await store.get("key")
            with pytest.raises(StoreReplacedError, match=rf"belongs to user {MALLORY}.*\(it let this node in before\)"):
                await store.get("key")

    with ServerProcess() as server, impostor(MALLORY) as (address, _):
        asyncio.run(story(server, address))


def test_a_client_whose_kernel_has_no_memory_for_an_answer_says_nothing(monkeypatch):
    def fail(*_):
        raise OSError(105, "No buffer space available")

    async def story(address, heard):
        monkeypatch.setattr(socket_owners.Owners, "user_at", fail)
        async with client(address) as store:
            with pytest.raises(StoreUnavailableError, match="No buffer space available"):
                await store.get("key")
        assert heard() == "nothing"

    with impostor(os.geteuid()) as (address, heard):
        asyncio.run(story(address, heard))
