"""What one machine sees of another, in network namespaces."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from network import Network

pytestmark = pytest.mark.root

DEADLINE_S = 120
TOPICS = "names,address,endpoint"

SERVE = """
import asyncio, sys
from holdfast.coordination.server import EmbeddedServer
from holdfast.coordination.tls import own_server_tls

async def main():
    server = EmbeddedServer(token=b"a secret of the test", tls=own_server_tls())
    await server.start("10.77.0.1", 29400)
    print("up", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""

SILENT_NAME_SERVER = """
import socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
    server.bind(("10.77.0.1", 53))
    print("up", flush=True)
    while True:
        server.recv(9000)
"""

WITH_FILES = 'mount --bind "$1" /etc/hosts && mount --bind "$2" /etc/resolv.conf && shift 2 && exec "$@"'


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """What doctors on the nodes found, all at the same time: by story, the exit code and the findings by check."""
    directory = tmp_path_factory.mktemp("files")
    hosts, no_hosts, resolver = (directory / name for name in ("hosts", "no-hosts", "resolv.conf"))
    hosts.write_text("127.0.0.1 localhost\n127.0.1.1 node1\n10.77.0.2 node2\n")  # as Debian writes it
    no_hosts.write_text("127.0.0.1 localhost\n")
    resolver.write_text("nameserver 10.77.0.1\n")
    with Network(3) as network:
        first, second, lost = network.nodes
        for program in (SERVE, SILENT_NAME_SERVER):
            process = first.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
            assert process.stdout.readline() == "up\n"
        network.cut(lost)
        # Packets are sent all the same, as through a router.
        neighbour = ["ip", "neigh", "replace", lost.address, "lladdr", "02:00:00:00:00:01", "dev", "eth0"]
        assert second.run(neighbour).wait(DEADLINE_S) == 0

        def doctor(node, endpoint, *prefix, token="a secret of the test"):
            command = [*prefix, sys.executable, "-m", "holdfast", "doctor", "--json", "--only", TOPICS]
            environment = {name: value for name, value in os.environ.items() if not name.startswith("PET_")}
            return node.run(
                [*command, "--endpoint", endpoint],
                env={**environment, "HOLDFAST_TOKEN": token},
                stdout=subprocess.PIPE,
                text=True,
            )

        files = ["sh", "-c", WITH_FILES, "sh"]
        started = {
            "reached": doctor(second, "node1:29400"),
            "wrong token": doctor(second, "node1:29400", token="a wrong one, and long"),
            "refused": doctor(second, "node1:29401"),
            "cut off": doctor(second, "node3:29400"),
            "no route": doctor(second, "10.99.0.1:29400"),
            "debian": doctor(first, "node1:29402", *files, hosts, resolver),
            "no names": doctor(second, "node1:29400", *files, no_hosts, resolver),
        }
        told = {}
        for story, process in started.items():
            output, _ = process.communicate(timeout=DEADLINE_S)
            told[story] = (process.returncode, {one["check"]: one for one in json.loads(output)})
        return told


def test_a_store_on_another_machine_is_reached(seen):
    code, found = seen["reached"]
    assert code == 0
    assert {one["state"] for one in found.values()} == {"ok"}
    assert "10.77.0.2 (eth0) as MASTER_ADDR" in found["advertised"]["what"]


def test_another_token_is_a_problem(seen):
    code, found = seen["wrong token"]
    assert (code, found["store"]["state"]) == (1, "problem")


def test_a_machine_without_a_store_is_no_problem_yet(seen):
    code, found = seen["refused"]
    assert (code, found["reachable"]["state"]) == (0, "note")


def test_a_cable_that_is_cut_and_a_missing_route_are_told_apart(seen):
    code, found = seen["cut off"]
    assert (code, found["reachable"]["state"]) == (1, "problem")
    assert "does not answer within 3 s (10.77.0.3)" in found["reachable"]["what"]
    code, found = seen["no route"]
    assert (code, found["reachable"]["state"], found["advertised"]["state"]) == (1, "problem", "skipped")
    assert "Network is unreachable" in found["reachable"]["what"]


def test_a_machine_whose_name_means_the_loopback_tells_others_the_name(seen):
    code, found = seen["debian"]
    assert code == 0
    assert found["own-name"]["state"] == "warning"
    assert "replace 127.0.1.1" in found["own-name"]["advice"]
    assert found["endpoint-name"]["state"] == "note"
    assert "the agent here would serve" in found["reachable"]["what"]
    assert found["advertised"]["state"] == "warning"
    assert "others would be told node1 as MASTER_ADDR" in found["advertised"]["what"]
    assert "--local-addr on this machine, such as 10.77.0.1 (eth0)" in found["advertised"]["advice"]


def test_a_name_server_that_does_not_answer_is_not_waited_for_for_long(seen):
    code, found = seen["no names"]
    assert code == 1
    assert "no name server answers within 4 s" in found["endpoint-name"]["what"]
    assert found["reachable"]["state"] == "skipped"
    assert "unfinished" not in found
