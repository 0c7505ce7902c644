"""An etcd cluster: whether jobs can meet there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.doctor.endpoint import judge_latency
from holdfast.doctor.etcd_facts import probe
from holdfast.doctor.finding import Finding, Topic, counted, size
from holdfast.doctor.network import Attempt, Reach

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.doctor.context import Context, Meeting
    from holdfast.doctor.etcd_facts import Facts, Member, Status, Trial
    from holdfast.doctor.gateway import Answer

VERSION_MIN = (3, 4)
"""The oldest etcd that holdfast supports."""

VERSION_PART_MAX_DIGITS = 9
"""A longer number, from any server that listens there, is not part of a version."""

LEASES_SAFE = {(3, 4): 31, (3, 5): 13}
"""The first patch of each version whose leader, after a pause, does not end the leases of others."""

DATABASE_LARGE_BYTES = 3 << 29
"""1.5 GiB: by default, etcd takes no more writes at 2 GiB."""

_topic = Topic("etcd")


def check(context: Context) -> list[Finding]:
    meeting = context.meeting
    if meeting is None or not meeting.is_topic(_topic.name):
        return []
    if meeting.complaint:
        return [_topic.skipped("members", f"not tried, because the settings are wrong: {meeting.complaint}")]
    return judge(probe(meeting))


def judge(facts: Facts) -> list[Finding]:
    findings = []
    if facts.client_error:
        what, _, advice = facts.client_error.partition("; ")
        findings.append(_topic.problem("client", what, advice or "name a file that can be used"))
    works = facts.trial is not None and not facts.trial.error
    findings += [_judge_member(member, facts, works=works) for member in facts.members]
    findings += _judge_cluster(facts.members)
    findings += _judge_versions(facts.members)
    alarms = _judge_alarms(facts.members)
    if facts.trial is not None and facts.trial.error and alarms:
        return [*findings, *alarms, _topic.skipped("trial", "no key can be written before the alarm is disarmed")]
    return [*findings, *alarms, *(_judge_trial(facts.trial, facts.meeting) if facts.trial is not None else [])]


def _judge_member(member: Member, facts: Facts, *, works: bool) -> Finding:
    if member.attempt.reach is not Reach.CONNECTED:
        return _judge_unreached(member.place, member.attempt, works=works)
    if member.status is None:
        return _judge_no_status(member, facts)
    return _judge_status(member.place, member.status, member.health)


def _judge_unreached(place: str, attempt: Attempt, *, works: bool) -> Finding:
    host, _, port = place.rpartition(":")
    what, advice = {
        Reach.REFUSED: (
            f"{host} is reachable, but nothing listens on port {port}",
            "start etcd; it listens only on the loopback unless --listen-client-urls names another address",
        ),
        Reach.TIMEOUT: (
            f"{place} does not answer within {attempt.seconds:.0f} s: packets are lost on the way",
            "check that the machine is up, and open the port in the firewall or security group",
        ),
        Reach.NO_ROUTE: (
            f"no route to {place}: {attempt.text}",
            "the machine is off, the address is wrong, or this machine is in another network",
        ),
        Reach.UNKNOWN_NAME: (
            f"{place}: unknown host name: {attempt.text}",
            "correct the name, or use the address",
        ),
    }.get(attempt.reach, (f"{place} cannot be connected to: {attempt.text}", "check ip route and the firewall"))
    if works:
        return _topic.warning("member", f"{what}; jobs use the other members", advice)
    return _topic.problem("member", what, advice)


def _judge_status(place: str, status: Status, health: Answer) -> Finding:
    if _numbers(status.version) < VERSION_MIN:
        return _topic.problem(
            "member", f"{place} is etcd {status.version}", "holdfast needs etcd 3.4 or newer: update it"
        )
    if not status.leader:
        return _topic.problem("member", f"{place} has no leader", "start more members: more than half must run")
    shown = f"{place} is etcd {status.version}, has a leader and a database of {size(status.database_bytes)}"
    if status.database_bytes > DATABASE_LARGE_BYTES:
        return _topic.warning(
            "member",
            shown,
            "at 2 GiB it refuses writes: compact and defragment it, or raise --quota-backend-bytes",
        )
    if str(health.fields.get("health", "")).lower() != "true":
        said = health.error or health.body.strip() or f"status {health.status}"
        return _topic.note("member", f"{shown}; /health by HTTP says {said!r}", "holdfast uses gRPC, which answers")
    return _topic.ok("member", f"{shown}; /health is good")


def _judge_no_status(member: Member, facts: Facts) -> Finding:
    place = member.place
    if facts.client_error:
        return _topic.skipped("member", f"{place} answers; this machine cannot ask it more")
    mismatch = _judge_tls(member, facts.meeting)
    if mismatch is not None:
        return mismatch
    error = member.error.removeprefix(f"etcd at {place} ")
    version = member.version.fields.get("etcdserver")
    if error == "has no leader":
        what, advice = f"{place} has no leader", "start more members: more than half must run"
    elif error.startswith(("refuses the login", "refuses access")):
        what, advice = f"{place} {error}", _advice_of(error)
    elif version:
        what = f"{place} is etcd {version} by HTTP, and does not work by gRPC: {error}"
        advice = "a proxy on the way lets only HTTP/1 through, and gRPC needs HTTP/2"
    elif member.version.status:
        what, advice = f"{place} is a web server, not etcd", "correct the endpoint: etcd's default port is 2379"
    else:
        what, advice = f"{place} answers, but is not etcd: it {error}", _advice_of(error)
    return _topic.problem("member", what, advice)


def _judge_tls(member: Member, meeting: Meeting) -> Finding | None:
    """A finding if only one side speaks TLS, or the member rejects our TLS."""
    place = member.place
    if member.speaks_tls and not meeting.tls:
        return _topic.problem(
            "member",
            f"{place} requires TLS, but this machine would use plain text",
            "write https:// before the endpoint; add --rdzv-conf ca_cert=FILE if this system does not trust its "
            "authority, and ssl_cert=FILE,ssl_cert_key=FILE if it requires a client certificate",
        )
    if meeting.tls and not member.speaks_tls:
        return _topic.problem(
            "member",
            f"{place} does not speak TLS, but this machine would use it",
            "remove https:// from the endpoint, and protocol, ca_cert, ssl_cert and ssl_cert_key from --rdzv-conf; or "
            "start etcd with --cert-file and --key-file",
        )
    if meeting.tls and member.version.error:
        return _topic.problem(
            "member", f"{place}: no secure connection: {member.version.error}", _advice_of("certificate")
        )
    return None


def _advice_of(error: str) -> str:
    if "secure connection" in error or "certificate" in error:
        return (
            "check that ca_cert (or an authority that this system trusts) has signed etcd's certificate, that it names "
            "the host in the endpoint, that all certificates are still valid, and whether etcd requires a client "
            "certificate (ssl_cert, ssl_cert_key)"
        )
    if "password" in error or "refuses" in error:
        return "give --rdzv-conf user=NAME,password=SECRET, or correct them"
    return "check that it is etcd 3.4 or newer, and read its log"


def _judge_cluster(members: Sequence[Member]) -> list[Finding]:
    statuses = [member.status for member in members if member.status is not None]
    if not statuses:
        return []
    if len({status.cluster for status in statuses}) > 1:
        return [
            _topic.problem(
                "cluster",
                "the endpoints belong to different clusters, so machines may not meet",
                "write the members of one cluster into the endpoint",
            )
        ]
    number = max((status.members or 0 for status in statuses), default=0)
    if number == 1:
        return [
            _topic.note(
                "cluster",
                "the cluster has one member: if it is lost, all jobs that use it end",
                "a cluster of three survives the loss of one",
            )
        ]
    if number > len(members):
        return [
            _topic.note(
                "cluster",
                f"the cluster has {number} members, and the endpoint names {len(members)} of them",
                "list all of them in the endpoint, separated by commas: if one is lost, the others are tried",
            )
        ]
    if number and not number % 2:
        survives = (number - 1) // 2
        return [
            _topic.note(
                "cluster",
                f"the cluster has {number} members, and survives the loss of {survives}, as {number - 1} would",
                "an odd number of members is enough",
            )
        ]
    return [_topic.ok("cluster", f"the cluster has {counted(number, 'member')}")] if number else []


def _judge_versions(members: Sequence[Member]) -> list[Finding]:
    """Whether a leader that was paused may end leases when it resumes: etcd's issue 15247."""
    old = sorted({member.status.version for member in members if member.status and _ends_leases(member.status.version)})
    if not old:
        return []
    return [
        _topic.warning(
            "version",
            f"etcd {', '.join(old)} may end the leases of healthy machines after its leader stalled",
            "update it to 3.4.31, 3.5.13 or newer",
        )
    ]


def _ends_leases(version: str) -> bool:
    major, minor, patch, *_ = (*_numbers(version, 3), 0, 0, 0)
    return patch < LEASES_SAFE.get((major, minor), 0)


def _judge_alarms(members: Sequence[Member]) -> list[Finding]:
    raised = dict.fromkeys(alarm for member in members if member.status for alarm in member.status.alarms)
    advice = {
        "NOSPACE": "etcd refuses writes: etcdctl compact and defrag, then etcdctl alarm disarm; raise "
        "--quota-backend-bytes if it fills again",
        "CORRUPT": "members hold different data: remove the wrong one and add it again",
    }
    return [
        _topic.problem("alarm", f"etcd has raised the alarm {alarm}", advice.get(alarm, "see etcdctl alarm list"))
        for alarm in raised
    ]


def _judge_trial(trial: Trial, meeting: Meeting) -> list[Finding]:
    if not trial.error:
        done = f"a lease and a key under {meeting.prefix} were made, read and removed"
        return [_topic.ok("trial", done), judge_latency(trial.latency_s, meeting, _topic)]
    advice = _advice_of(trial.error)
    if trial.is_refused and meeting.user is not None:
        advice = (
            f"etcd must let the user {meeting.user} read and write there: etcdctl role grant-permission ROLE "
            f"--prefix=true readwrite {meeting.prefix}"
        )
    return [_topic.problem("trial", f"a lease and a key under {meeting.prefix} cannot be made: {trial.error}", advice)]


def _numbers(version: str, count: int = 2) -> tuple[int, ...]:
    parts = version.split(".")[:count]
    return tuple(int(part) for part in parts if part.isdecimal() and len(part) <= VERSION_PART_MAX_DIGITS)
