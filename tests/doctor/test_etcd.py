from __future__ import annotations

import pytest
from etcd_cluster import Certificates, EtcdCluster

from holdfast.doctor.context import Meeting, TlsFiles, read_meeting
from holdfast.doctor.etcd import check, judge
from holdfast.doctor.etcd_facts import Facts, Member, Status, Trial, probe
from holdfast.doctor.finding import State
from holdfast.doctor.gateway import Answer
from holdfast.doctor.network import Attempt, Reach

CONNECTED = Attempt(Reach.CONNECTED)
GOOD = Status("3.4.23", leader=7, cluster=1, database_bytes=20 << 10, members=3)
HEALTHY = Answer(200, '{"health":"true"}')
VERSION = Answer(200, '{"etcdserver":"3.4.23","etcdcluster":"3.4.0"}')
MEETING = Meeting("etcd", (("etcd0", 2379),))


def member(place="etcd0:2379", *, attempt=CONNECTED, health=HEALTHY, version=VERSION, status=GOOD, **fields):
    return Member(place, attempt, health, version, status, **fields)


def told(findings):
    by_check = {}
    for finding in findings:
        by_check.setdefault(finding.check, []).append(finding)
    return by_check


def look(endpoints, **fields):
    return told(judge(probe(Meeting("etcd", tuple(endpoints), ttl_s=5.0, **fields))))


@pytest.mark.etcd
def test_a_cluster_that_loses_its_members(tmp_path):
    with EtcdCluster(3, tmp_path / "etcd") as cluster:
        found = look(cluster.endpoints)
        found.pop("version", None)  # depends on the etcd that is installed
        assert {finding.state for some in found.values() for finding in some} == {State.OK}
        assert [len(found[check]) for check in ("member", "cluster", "trial", "latency")] == [3, 1, 1, 1]
        assert "names 1 of them" in look(cluster.endpoints[:1])["cluster"][0].what
        cluster.kill(0)
        # It may have led the others, who then need a moment to choose.
        while [one.state for one in look(cluster.endpoints)["member"]] != [State.WARNING, State.OK, State.OK]:
            pass
        cluster.kill(1)
        # The last one believes in its leader until that one is late.
        while "has no leader" not in (found := look(cluster.endpoints))["member"][2].what:
            pass
        assert [finding.state for finding in found["member"]] == [State.PROBLEM] * 3


@pytest.mark.etcd
def test_alarms_and_passwords(tmp_path):
    with EtcdCluster(1, tmp_path / "etcd") as cluster:
        (one,) = cluster.members

        def alarm(action):
            number = cluster.post(one, "maintenance/status")["header"]["member_id"]
            cluster.post(one, "maintenance/alarm", {"action": action, "memberID": number, "alarm": "NOSPACE"})

        alarm("ACTIVATE")
        found = look(cluster.endpoints)
        assert (found["alarm"][0].state, found["trial"][0].state) == (State.PROBLEM, State.SKIPPED)
        assert "etcdctl alarm disarm" in found["alarm"][0].advice
        alarm("DEACTIVATE")
        for path, message in (
            ("user/add", {"name": "root", "password": "hunter2"}),
            ("role/add", {"name": "root"}),
            ("user/grant", {"user": "root", "role": "root"}),
            ("user/add", {"name": "bob", "password": "hunter2"}),
            ("enable", None),
        ):
            cluster.post(one, f"auth/{path}", message)
        found = look(cluster.endpoints)["trial"][0]
        assert (found.state, "user=NAME,password=SECRET" in found.advice) == (State.PROBLEM, True)
        found = look(cluster.endpoints, user="bob", password="hunter2")["trial"][0]
        assert "etcdctl role grant-permission ROLE --prefix=true readwrite /holdfast/" in found.advice
        found = look(cluster.endpoints, user="root", password="no")["member"][0]
        assert "check the user and the password" in found.what
        found = look(cluster.endpoints, user="root", password="hunter2")
        assert found["trial"][0].state is State.OK
        assert found["cluster"][0].state is State.NOTE  # one member is none too many
        # Nothing is left behind.
        token = cluster.post(one, "auth/authenticate", {"name": "root", "password": "hunter2"})["token"]
        assert cluster.post(one, "kv/range", {"key": "AA==", "range_end": "AA=="}, token).get("count", "0") == "0"


@pytest.mark.etcd
def test_certificates(tmp_path):
    with EtcdCluster(1, tmp_path / "etcd", with_tls=True) as cluster:
        files = cluster.certificates
        assert "requires TLS" in look(cluster.endpoints)["member"][0].what
        found = look(cluster.endpoints, tls=TlsFiles(files.ca_cert, None, None))["member"][0]
        assert (found.state, "no secure connection" in found.what) == (State.PROBLEM, True)
        found = look(cluster.endpoints, tls=TlsFiles(files.ca_cert, files.client_cert, files.client_key))
        assert found["trial"][0].state is State.OK
        found = look(cluster.endpoints, tls=TlsFiles("/srv/none.pem", None, None))
        assert (found["client"][0].state, found["member"][0].state) == (State.PROBLEM, State.SKIPPED)


def look_as_told(endpoint, **settings):
    """What is found with the words of a command line."""
    return told(judge(probe(read_meeting("etcd", endpoint, settings, {}))))


@pytest.mark.etcd
def test_an_endpoint_with_https(tmp_path, monkeypatch):
    with EtcdCluster(1, tmp_path / "etcd", with_tls=True, wants_client_certs=False) as cluster:
        cluster.require_passwords("right")
        ((host, port),) = cluster.endpoints
        user = {"user": "root", "password": "right"}
        ca_cert = cluster.certificates.ca_cert
        strangers = Certificates(tmp_path / "strangers", [host]).ca_cert
        found = look_as_told(f"https://{host}:{port}", ca_cert=ca_cert, **user)
        assert (found["member"][0].state, found["trial"][0].state) == (State.OK, State.OK)
        monkeypatch.setenv("SSL_CERT_FILE", ca_cert)
        for endpoint, settings in ((f"https://{host}:{port}", {}), (f"{host}:{port}", {"protocol": "https"})):
            assert look_as_told(endpoint, **settings, **user)["trial"][0].state is State.OK
        found = look_as_told(f"{host}:{port}")["member"][0]
        assert (found.state, "requires TLS" in found.what) == (State.PROBLEM, True)
        assert "write https:// before the endpoint" in found.advice
        monkeypatch.setenv("SSL_CERT_FILE", strangers)
        for settings in ({}, {"ca_cert": strangers}):
            found = look_as_told(f"https://{host}:{port}", **settings)["member"][0]
            assert (found.state, "no secure connection" in found.what) == (State.PROBLEM, True)
            assert "an authority that this system trusts" in found.advice


@pytest.mark.etcd
def test_https_to_an_etcd_without_tls(tmp_path):
    with EtcdCluster(1, tmp_path / "etcd") as cluster:
        ((host, port),) = cluster.endpoints
        found = look_as_told(f"https://{host}:{port}")["member"][0]
        assert (found.state, "does not speak TLS" in found.what) == (State.PROBLEM, True)
        assert "remove https:// from the endpoint" in found.advice


def one_finding(facts, check):
    (found,) = told(judge(facts))[check]
    return found


@pytest.mark.parametrize(
    ("known", "state", "words"),
    [
        (member(), State.OK, "/health is good"),
        (member(status=GOOD._replace(version="3.3.10")), State.PROBLEM, "3.4 or newer"),
        (member(status=GOOD._replace(version=f"{'9' * 5_000}.1")), State.PROBLEM, "3.4 or newer"),
        (member(status=GOOD._replace(leader=0)), State.PROBLEM, "has no leader"),
        (member(status=GOOD._replace(database_bytes=2 << 30)), State.WARNING, "it refuses writes"),
        (member(health=Answer(error="refused")), State.NOTE, "gRPC, which answers"),
        (member(status=None, error="does not answer: x"), State.PROBLEM, "gRPC needs HTTP/2"),
        (member(status=None, version=Answer(404, "not found"), error="x"), State.PROBLEM, "a web server"),
        (member(status=None, version=Answer(error="closed"), error="x"), State.PROBLEM, "is not etcd"),
        (member(status=None, version=Answer(error="x"), speaks_tls=True), State.PROBLEM, "requires TLS"),
        (member(attempt=Attempt(Reach.REFUSED), status=None), State.PROBLEM, "--listen-client-urls"),
        (
            member(attempt=Attempt(Reach.REFUSED), status=None),
            State.PROBLEM,
            "is reachable, but nothing listens on port 2379",
        ),
        (member(attempt=Attempt(Reach.TIMEOUT, "", 3.0), status=None), State.PROBLEM, "security group"),
        (member(attempt=Attempt(Reach.NO_ROUTE), status=None), State.PROBLEM, "in another network"),
        (member(attempt=Attempt(Reach.UNKNOWN_NAME), status=None), State.PROBLEM, "correct the name"),
        (member(attempt=Attempt(Reach.OTHER), status=None), State.PROBLEM, "cannot be connected to"),
    ],
)
def test_what_is_said_of_a_member(known, state, words):
    found = one_finding(Facts(MEETING, (known,)), "member")
    assert found.state is state
    assert words in f"{found.what} {found.advice}"


@pytest.mark.parametrize(
    ("versions", "named"),
    [
        (["3.4.23", "3.4.23"], "etcd 3.4.23 may"),
        (["3.4.30", "3.5.12", "3.6.0"], "etcd 3.4.30, 3.5.12 may"),
        (["3.4.31", "3.5.13", "3.6.0", "4.0.1", "3.3.1"], ""),
        (["3.5.0-rc.1"], "etcd 3.5.0-rc.1 may"),
        (["unknown"], ""),
    ],
)
def test_versions_that_may_end_leases(versions, named):
    members = tuple(member(status=GOOD._replace(version=version)) for version in versions)
    found = [finding for finding in judge(Facts(MEETING, members)) if finding.check == "version"]
    assert [finding.state for finding in found] == ([State.WARNING] if named else [])
    assert all(named in finding.what for finding in found)


@pytest.mark.parametrize(
    ("statuses", "state", "words"),
    [
        ([GOOD, GOOD, GOOD], State.OK, "3 members"),
        ([GOOD, GOOD._replace(cluster=2)], State.PROBLEM, "different clusters"),
        ([GOOD], State.NOTE, "names 1 of them"),
        ([GOOD._replace(members=1)], State.NOTE, "one member"),
        ([GOOD._replace(members=4)] * 4, State.NOTE, "survives the loss of 1, as 3 would"),
    ],
)
def test_what_is_said_of_the_cluster(statuses, state, words):
    members = tuple(member(f"etcd{number}:2379", status=status) for number, status in enumerate(statuses))
    found = one_finding(Facts(MEETING, members), "cluster")
    assert found.state is state
    assert words in found.what


def test_a_slow_cluster_is_a_warning():
    facts = Facts(MEETING, (member(),), trial=Trial(latency_s=0.4))
    assert one_finding(facts, "latency").state is State.WARNING


def test_without_the_package_it_says_how_to_install_it():
    error = "--rdzv-backend etcd: needs the package grpcio; install holdfast with its extra etcd"
    found = told(judge(Facts(MEETING, (member(status=None),), error)))
    assert (found["client"][0].state, found["client"][0].advice) == (
        State.PROBLEM,
        "install holdfast with its extra etcd",
    )
    assert found["member"][0].state is State.SKIPPED


def test_it_is_for_etcd_only(make_context):
    assert check(make_context()) == []
    assert check(make_context(meeting=Meeting("c10d", (("node0", 29400),)))) == []
    (found,) = check(make_context(meeting=MEETING._replace(complaint="no")))
    assert found.state is State.SKIPPED
