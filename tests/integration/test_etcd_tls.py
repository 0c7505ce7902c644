"""Jobs that meet in an etcd with TLS: what goes over the wire, what is refused before that, and killed agents."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from etcd_cluster import Certificates, EtcdCluster
from meeting_places import PASSWORD
from recorder import Recorder

pytestmark = pytest.mark.etcd

DEADLINE_S = 120
PREFACE = b"PRI * HTTP/2.0"
"""What a client of gRPC says first, in plain text."""

HANDSHAKE = b"\x16\x03"
"""What a client of TLS says first."""

USER = f"user=root,password={PASSWORD}"
LONG_LEASE = "keep_alive_interval=30,keep_alive_max_attempt=4"
"""A lease of 120 s: nobody waits for its end."""

SOON_S = 60.0
"""Long before the end of such a lease."""

LISTENER = """
import socket, sys
server = socket.create_server((sys.argv[1], 2379))
print("listening", flush=True)
print(server.accept()[0].recv(100), flush=True)
"""

CLIENT = """
import socket, sys
socket.create_connection((sys.argv[1], 2379), timeout=60).sendall(b"the test")
"""


@pytest.fixture(scope="module", params=[False, True], ids=["any client", "clients with certificates"])
def etcd(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp("etcd")
    with EtcdCluster(1, directory / "members", with_tls=True, wants_client_certs=request.param) as cluster:
        cluster.require_passwords(PASSWORD)
        files = cluster.certificates
        cluster.ours = f",cert={files.client_cert},key={files.client_key}" if request.param else ""
        cluster.strangers = Certificates(directory / "strangers", [cluster.members[0].host])
        yield cluster


@pytest.fixture
def run(tmp_path):
    """Runs a job of one worker to its end, alone or with others."""
    program = tmp_path / "program.py"
    program.write_text("print('worker')")

    def start(endpoint, settings, **environment):
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PET_", "SSL_CERT"))}
        return subprocess.run(
            [
                *(sys.executable, "-m", "holdfast", "run", "--nnodes=1:2", "--rdzv-backend=etcd"),
                *(f"--rdzv-endpoint={endpoint}", f"--rdzv-id={os.urandom(4).hex()}"),
                *(f"--rdzv-conf=last_call_timeout=0.1,join_timeout=20,{settings}", str(program)),
            ],
            env={**inherited, **environment},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )

    return start


@pytest.mark.parametrize(
    ("scheme", "settings"),
    [("https://", ""), ("", ",protocol=https"), ("https://", ",protocol=https")],
    ids=["endpoint", "settings", "both"],
)
@pytest.mark.parametrize("authority", ["the system's", "named"])
def test_https_is_tls_and_the_password_is_never_seen(etcd, run, scheme, settings, authority):
    ca_cert = etcd.certificates.ca_cert
    settings += etcd.ours if authority == "the system's" else f"{etcd.ours},ca_cert={ca_cert}"
    environment = {"SSL_CERT_FILE": ca_cert} if authority == "the system's" else {}
    with Recorder(etcd.members[0].host, etcd.endpoints[0]) as wire:
        host, port = wire.endpoint
        ended = run(f"{scheme}{host}:{port}", f"{USER}{settings}", **environment)
    assert (ended.returncode, ended.stdout) == (0, "worker\n"), ended.stderr
    assert wire.beginnings
    assert all(said.startswith(HANDSHAKE) for said in wire.beginnings)
    assert PREFACE not in wire.heard
    assert PASSWORD.encode() not in wire.heard


def test_the_recorder_would_see_a_password(tmp_path, run):
    """On the loopback a password may be sent in plain text."""
    with EtcdCluster(1, tmp_path / "etcd") as cluster:
        cluster.require_passwords(PASSWORD)
        with Recorder(cluster.members[0].host, cluster.endpoints[0]) as wire:
            host, port = wire.endpoint
            ended = run(f"{host}:{port}", USER)
    assert (ended.returncode, ended.stdout) == (0, "worker\n"), ended.stderr
    assert all(said.startswith(PREFACE) for said in wire.beginnings)
    assert PASSWORD.encode() in wire.heard


def test_an_authority_that_is_not_trusted_is_one_clear_line(etcd, run):
    host, port = etcd.endpoints[0]
    for settings, environment in (
        (f",ca_cert={etcd.strangers.ca_cert}", {}),
        ("", {"SSL_CERT_FILE": etcd.strangers.ca_cert}),
    ):
        ended = run(f"https://{host}:{port}", f"{USER}{settings}{etcd.ours}", **environment)
        assert (ended.returncode, ended.stdout) == (1, "")
        last_line = ended.stderr.splitlines()[-1]
        assert f"etcd at {host}:{port}: no secure connection; check the certificates (ca_cert, " in last_line
        assert "Traceback" not in ended.stderr


def test_a_certificate_that_does_not_name_the_host_is_one_clear_line(etcd, run):
    settings = f"{USER}{etcd.ours},ca_cert={etcd.certificates.ca_cert}"
    with Recorder("127.0.0.1", etcd.endpoints[0]) as wire:
        host, port = wire.endpoint
        ended = run(f"https://{host}:{port}", settings)
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (1, "", 1), ended.stderr
    assert f"etcd at {host}:{port}: its certificate does not name this host; " in ended.stderr


def test_plain_text_to_an_etcd_with_tls_is_explained(etcd, run):
    host, port = etcd.endpoints[0]
    ended = run(f"{host}:{port}", "join_timeout=1")
    assert (ended.returncode, ended.stdout) == (1, "")
    hint = "(it may speak TLS: write https:// before the endpoint, or --rdzv-conf protocol=https)"
    assert ended.stderr.splitlines()[-1].endswith(hint)


def test_a_wrong_password_over_tls_is_one_clear_line(etcd, run):
    host, port = etcd.endpoints[0]
    settings = f"user=root,password=wrong,ca_cert={etcd.certificates.ca_cert}{etcd.ours}"
    ended = run(f"https://{host}:{port}", settings)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "refuses the login; check the user and the password" in ended.stderr.splitlines()[-1]
    assert "wrong" not in ended.stderr


@pytest.mark.parametrize(
    ("endpoint", "settings", "start"),
    [
        ("http://etcd0", "protocol=https", "--rdzv-conf protocol=https: "),
        ("https://etcd0", "protocol=http", "--rdzv-conf protocol=http: "),
        ("http://etcd0,https://etcd1", "etcd_prefix=/x/", "--rdzv-endpoint 'http://etcd0,https://etcd1': "),
        ("http://etcd0", "ca_cert=/dev/null", "--rdzv-endpoint 'http://etcd0': "),
        ("etcd0", USER, "etcd: the password would be sent to etcd0 in plain text"),
    ],
)
def test_what_cannot_be_meant_is_bad_input(run, endpoint, settings, start):
    ended = run(endpoint, settings)
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1), ended.stderr
    assert ended.stderr.startswith(f"holdfast run: error: {start}")
    assert PASSWORD not in ended.stderr


@pytest.mark.root
def test_a_password_does_not_leave_the_machine_in_plain_text(network, tmp_path):
    here, there = network(2).nodes
    listener = there.run([sys.executable, "-c", LISTENER, there.address], stdout=subprocess.PIPE, text=True)
    assert listener.stdout.readline() == "listening\n"
    command = [sys.executable, "-m", "holdfast", "run", "--nnodes=1:2", "--rdzv-backend=etcd"]
    command += [f"--rdzv-endpoint={there.address}", "--rdzv-id=job", f"--rdzv-conf=join_timeout=20,{USER}", "/dev/null"]
    agent = here.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    out, error = agent.communicate(timeout=DEADLINE_S)
    assert (agent.returncode, out, error.count("\n")) == (2, "", 1), error
    assert f"the password would be sent to {there.address} in plain text" in error
    assert here.run([sys.executable, "-c", CLIENT, there.address]).wait(DEADLINE_S) == 0
    assert listener.stdout.readline() == "b'the test'\n"  # nobody had connected before


@pytest.mark.root
@pytest.mark.parametrize("place_name", ["etcd with tls"], indirect=True)
def test_the_keeper_of_a_killed_agent_revokes_its_lease_over_tls(job):
    three = job("2:3")
    settings = f"--rdzv-conf=last_call_timeout=1,{LONG_LEASE},{three.place.settings}"
    agents = three.start(*three.nodes, flags=[settings])
    world = three.wait_for_world(6)
    agents[2].kill()
    smaller = three.wait_for_world(4, after=world, deadline_s=SOON_S)
    assert not [life for life in smaller if life.node == three.nodes[2].hostname]
    three.wait_until_empty(three.nodes[2])
    three.tell_all("exit 0")
    assert three.wait_for_exit(*agents[:2]) == [0, 0], three.describe()
    three.check()
