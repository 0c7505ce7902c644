"""What is asked of TCP."""

from __future__ import annotations

import asyncio
import socket

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


def test_no_host_is_every_address_of_this_machine():
    async def story():
        assert (await resolve("", 80))[0][4] == ("0.0.0.0", 80)

    asyncio.run(story())
