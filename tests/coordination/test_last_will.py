"""The lease of a killed agent is revoked by a process that has nothing but the will."""

from __future__ import annotations

import asyncio
import os
import socket
import sys

import pytest
from embedded_server import TOKEN
from etcd_cluster import EtcdCluster

from holdfast.coordination import last_will
from holdfast.coordination.access import EmbeddedAccess, EtcdAccess
from holdfast.coordination.client import EmbeddedStore
from holdfast.coordination.errors import LeaseLostError
from holdfast.coordination.etcd import EtcdStore
from holdfast.coordination.last_will import Will
from holdfast.coordination.server import EmbeddedServer
from holdfast.rendezvous import RendezvousParameters
from holdfast.rendezvous.elastic_settings import ElasticSettings

LONG_S = 3600.0


@pytest.fixture
def fd():
    fd = os.memfd_create("will")
    yield fd
    os.close(fd)


async def carry_out(fd):
    """As a keeper does it: another program, in this process's place. Returns its exit code and what it said."""
    process = await asyncio.create_subprocess_exec(
        *last_will.command(sys.path),
        str(fd),
        pass_fds=[fd],
        env={},
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await process.communicate()
    return process.returncode, said.decode()


def run(story):
    async def tell():
        async with asyncio.timeout(120):
            await story()

    asyncio.run(tell())


@pytest.mark.parametrize(
    "access",
    [
        EmbeddedAccess("node", 29400, b"\0\xff token"),
        EmbeddedAccess("::1", 29400, b"", ("/ca", "/cert", "/key")),
        EmbeddedAccess("::1", 29400, b"", users=frozenset({7, 1000})),
        EmbeddedAccess("::1", 29400, b"", users=None),
        EtcdAccess((("a", 1), ("b", 2)), "user", "password", "/ca", None, None, "/holdfast/"),
    ],
)
def test_it_is_read_as_it_was_written(fd, access):
    will = Will(access, 1.0, 3.0)
    last_will.write(fd, will)
    assert last_will.read(fd) == (0, will)
    for lease in ((1 << 63) - 1, 7):
        last_will.name_lease(fd, lease)
        assert last_will.read(fd) == (lease, will)


def test_the_lease_that_it_names_is_revoked_and_no_other(fd):
    async def story():
        server = EmbeddedServer(token=TOKEN)
        await server.start("127.0.0.1", 0)
        async with EmbeddedStore(*server.address, token=TOKEN, answer_timeout_s=60) as store:
            leases = [await store.grant(LONG_S) for _ in range(3)]
            last_will.write(fd, Will(EmbeddedAccess(*server.address, TOKEN), 60.0, LONG_S))
            assert await carry_out(fd) == (0, "")  # it names none
            for lease in leases[:2]:  # of an agent that has registered again
                last_will.name_lease(fd, lease.id)
            assert await carry_out(fd) == (0, "")
            assert await carry_out(fd) == (0, "")  # one that is no more
            assert await store.keep_alive(leases[0].id) == LONG_S
            assert await store.keep_alive(leases[2].id) == LONG_S
            with pytest.raises(LeaseLostError):
                await store.keep_alive(leases[1].id)
        await server.close()

    run(story)


def test_a_store_that_refuses_or_is_gone_is_let_be(fd):
    async def story():
        server = EmbeddedServer(token=TOKEN)
        await server.start("127.0.0.1", 0)
        async with EmbeddedStore(*server.address, token=TOKEN, answer_timeout_s=60) as store:
            lease = await store.grant(LONG_S)
            last_will.write(fd, Will(EmbeddedAccess(*server.address, b"other"), 60.0, LONG_S))
            last_will.name_lease(fd, lease.id)
            assert await carry_out(fd) == (0, "")
            assert await store.keep_alive(lease.id) == LONG_S
        await server.close()
        assert await carry_out(fd) == (0, "")

    run(story)


def test_it_is_tried_again_while_the_store_is_silent_and_not_for_longer_than_the_lease(fd):
    async def story():
        with socket.create_server(("127.0.0.1", 0)) as silent:
            last_will.write(fd, Will(EmbeddedAccess(*silent.getsockname(), TOKEN), 0.5, 1.0))
            last_will.name_lease(fd, 7)
            code, _ = await carry_out(fd)
        assert code < 0  # ended by the kernel, whatever it waited for

    run(story)


@pytest.mark.etcd
def test_it_works_with_etcd(fd, etcd):
    async def story():
        async with EtcdStore(etcd.endpoints, answer_timeout_s=60) as store:
            lease = await store.grant(LONG_S)
            access = EtcdAccess(tuple(etcd.endpoints), None, None, None, None, None, "/holdfast/")
            last_will.write(fd, Will(access, 60.0, LONG_S))
            last_will.name_lease(fd, lease.id)
            assert await carry_out(fd) == (0, "")
            with pytest.raises(LeaseLostError):
                await store.keep_alive(lease.id)

    run(story)


@pytest.mark.etcd
@pytest.mark.parametrize("way", ["system's authorities", "named authority", "own certificate"])
def test_it_works_over_tls_with_a_password(fd, way, tmp_path, monkeypatch):
    """The will says all that it takes: nothing comes from the environment of whoever carries it out."""
    wants_cert = way == "own certificate"
    with EtcdCluster(1, tmp_path / "etcd", with_tls=True, wants_client_certs=wants_cert) as cluster:
        cluster.require_passwords("right")
        files = cluster.certificates
        settings = {"user": "root", "password": "right"}
        if way == "system's authorities":
            monkeypatch.setenv("SSL_CERT_FILE", files.ca_cert)
        else:
            settings["cacert"] = files.ca_cert
        if wants_cert:
            settings.update(cert=files.client_cert, key=files.client_key)
        ((host, port),) = cluster.endpoints
        place = ElasticSettings(RendezvousParameters("etcd", f"https://{host}:{port}", "run", 1, 2, **settings)).place

        async def story():
            async with await place.open() as store:
                lease = await store.grant(LONG_S)
                last_will.write(fd, Will(place.access(), 60.0, LONG_S))
                last_will.name_lease(fd, lease.id)
                assert await carry_out(fd) == (0, "")
                with pytest.raises(LeaseLostError):
                    await store.keep_alive(lease.id)

        run(story)
