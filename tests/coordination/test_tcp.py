"""What is asked of TCP."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys

import pytest

from holdfast.coordination.tcp import SILENCE_MAX_S, reach, resolve, set_options


def test_connections_to_peers_that_are_gone_end():
    with socket.socket() as connection:
        set_options(connection)
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == SILENCE_MAX_S * 1000
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) < SILENCE_MAX_S
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_the_first_address_that_answers_is_taken():
    async def story():
        with socket.create_server(("127.0.0.7", 0)) as listener:
            port = listener.getsockname()[1]
            found = [(await resolve(host, port))[0] for host in ("127.0.0.6", "127.0.0.7")]
            with await reach(found, None, 60) as reached:
                assert reached.getpeername()[0] == "127.0.0.7"
            with pytest.raises(ConnectionRefusedError):
                await reach(found[:1], None, 60)

    asyncio.run(story())


def test_a_connection_to_itself_is_none():
    async def story():
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
        # A client whose own port is the one that it wants to reach connects to itself.
        real = socket.socket.bind
        try:
            socket.socket.bind = lambda self, address: real(self, (address[0], port))
            with pytest.raises(ConnectionRefusedError):
                await reach(await resolve("127.0.0.1", port), "127.0.0.1", 60)
        finally:
            socket.socket.bind = real

    asyncio.run(story())


LOOKS_UP = """
import asyncio, socket, threading
from holdfast.coordination.tcp import resolve
real = socket.getaddrinfo
def look_up(host, port, family=0, type=0, proto=0, flags=0):
    if flags & socket.AI_NUMERICHOST:
        return real(host, port, family, type, proto, flags)
    loop.call_soon_threadsafe(has_begun.set)
    threading.Event().wait()
async def story():
    global loop, has_begun
    loop, has_begun = asyncio.get_running_loop(), asyncio.Event()
    asked = asyncio.ensure_future(resolve("head.example", 29400))
    await has_begun.wait()
    asked.cancel()
socket.getaddrinfo = look_up
asyncio.run(story())
print("the end", flush=True)
"""


def test_a_name_look_up_that_hangs_keeps_no_process_alive():
    ended = subprocess.run([sys.executable, "-c", LOOKS_UP], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "the end\n", "")


def test_a_name_is_looked_up_and_one_that_is_none_is_an_error():
    async def story():
        assert (await resolve("localhost", 80, socket.AF_INET))[0][4] == ("127.0.0.1", 80)
        with pytest.raises(socket.gaierror):
            await resolve("no name", 80)

    asyncio.run(story())


def test_no_host_is_every_address_of_this_machine():
    async def story():
        assert (await resolve("", 80))[0][4] == ("0.0.0.0", 80)

    asyncio.run(story())
