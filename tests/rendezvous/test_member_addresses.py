"""From where the workers of a node may come."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest
from network import Network

from holdfast.coordination.model import Entry
from holdfast.rendezvous import member_addresses
from holdfast.rendezvous.member_addresses import ADDRESSES_MAX, addresses_of, interface_addresses
from holdfast.rendezvous.records import Keys, Member, Node, encode

TELL = "from holdfast.rendezvous.member_addresses import interface_addresses; print(*interface_addresses())"
KEYS = Keys("run")


@pytest.mark.root
def test_a_machine_knows_all_its_addresses_but_its_loopback():
    with Network(1) as network:
        (node,) = network.nodes
        more = [f"10.88.{number}.1" for number in range(3)]
        for address in more:
            subprocess.run(["ip", "-n", node.namespace, "addr", "add", f"{address}/24", "dev", "eth0"], check=True)
        subprocess.run(
            ["ip", "-n", node.namespace, "addr", "add", "10.99.0.1", "peer", "10.99.0.2", "dev", "eth0"], check=True
        )
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        process = node.run([sys.executable, "-c", TELL], env=environment, stdout=subprocess.PIPE, text=True)
        found = process.communicate(timeout=60)[0].split()
    assert [address for address in found if not address.startswith("fe80")] == [
        *(node.address, *more, "10.99.0.1", node.address6)
    ]


@pytest.mark.root
def test_a_machine_with_very_many_addresses_tells_of_some():
    with Network(1) as network:
        (node,) = network.nodes
        many = "\n".join(f"addr add 10.88.0.{number}/24 dev eth0" for number in range(1, 200))
        subprocess.run(["ip", "-n", node.namespace, "-batch", "-"], input=many, text=True, check=True)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        process = node.run([sys.executable, "-c", TELL], env=environment, stdout=subprocess.PIPE, text=True)
        assert len(process.communicate(timeout=60)[0].split()) == ADDRESSES_MAX


def test_where_the_kernel_tells_nothing_there_are_none(monkeypatch):
    def refuse(_):
        raise PermissionError("no netlink in this sandbox")

    monkeypatch.setattr(member_addresses, "Kernel", refuse)
    assert interface_addresses() == ()


def entry(node, *addresses):
    record = Node(host=node, address="", port=0, role="", workers=1, addresses=addresses)
    return Entry(KEYS.node(node), encode(record), 1, 1, 0)


def member(node, address):
    return Member(node, node, address, "default", 1)


def test_the_addresses_of_members_are_those_of_their_records_and_what_their_names_stand_for():
    members = [member("a.1", "10.0.0.1"), member("b.1", "localhost"), member("c.1", "no.such.host.invalid")]
    nodes = [
        entry("a.1", "10.0.0.1", "10.1.0.1"),
        entry("b.2", "10.1.0.2"),
        entry("spare.1", "10.66.0.1"),
        Entry(KEYS.node("c.1"), b"not a record", 1, 1, 0),
    ]
    found = asyncio.run(addresses_of(members, nodes))
    assert found >= {"10.0.0.1", "10.1.0.1", "10.1.0.2", "127.0.0.1"}
    assert "10.66.0.1" not in found


def test_a_member_that_tells_of_endless_addresses_is_believed_some():
    many = [f"10.{high}.{low}.1" for high in range(10) for low in range(250)]
    found = asyncio.run(addresses_of([member("a.1", "10.0.0.1")], [entry("a.1", *many)]))
    assert len(found) <= ADDRESSES_MAX + 1
