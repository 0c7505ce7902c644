from __future__ import annotations

import pytest

from holdfast.doctor.address import Facts, SelfReach, check, judge_advertised, judge_interfaces, judge_port, reach_self
from holdfast.doctor.context import Meeting
from holdfast.doctor.finding import State
from holdfast.doctor.network import Interface

LO, ETH, IB = Interface("lo", "127.0.0.1"), Interface("eth0", "10.0.0.1"), Interface("ib0", "10.1.0.1")
DOCKER, LINK = Interface("docker0", "172.17.0.1"), Interface("eth1", "169.254.0.7")
ALL = (LO, ETH, DOCKER, LINK)


def facts(advertised, *, given=False, resolved=(), endpoint="node0", up=ALL, variables=()):
    return Facts(advertised, given, resolved, endpoint, up, variables)


@pytest.mark.parametrize(
    ("known", "state", "words"),
    [
        (facts("127.0.0.1", endpoint=""), State.OK, "on this machine alone"),
        (facts("10.0.0.1"), State.OK, "10.0.0.1 (eth0) as MASTER_ADDR"),
        (facts(""), State.SKIPPED, "no route to the endpoint"),
        (facts("node0", resolved=("127.0.1.1",)), State.WARNING, "--local-addr on this machine, such as 10.0.0.1"),
        (facts("127.0.0.1", endpoint="localhost"), State.NOTE, "all workers run on this machine"),
        (facts("172.17.0.1"), State.WARNING, "containers"),
        (facts("169.254.0.7"), State.WARNING, "one link"),
        (facts("10.0.0.1", given=True, resolved=("10.0.0.1",)), State.OK, "(--local-addr)"),
        (facts("node7", given=True), State.PROBLEM, "unknown host name"),
        (facts("10.9.9.9", given=True, resolved=("10.9.9.9",)), State.WARNING, "only with NAT"),
        (facts("127.0.0.1", given=True, resolved=("127.0.0.1",)), State.PROBLEM, "no other machine can reach"),
        (facts("127.0.0.1", given=True, resolved=("127.0.0.1",), endpoint=""), State.OK, "(--local-addr)"),
    ],
)
def test_the_address_that_others_are_told(known, state, words):
    found = judge_advertised(known)
    assert found.state is state
    assert words in f"{found.what} {found.advice}"


def test_where_several_networks_are_up_libraries_have_to_be_told():
    found = judge_interfaces(facts("10.1.0.1", up=(LO, ETH, IB)))
    assert found.state is State.NOTE
    assert "GLOO_SOCKET_IFNAME=ib0 NCCL_SOCKET_IFNAME=ib0" in found.advice
    told = facts("10.1.0.1", up=(LO, ETH, IB), variables=("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"))
    assert judge_interfaces(told).state is State.OK
    assert judge_interfaces(facts("10.0.0.1")).state is State.OK
    assert "only the loopback is up" in judge_interfaces(facts("127.0.0.1", up=(LO,))).what


def test_a_port_that_cannot_be_used_is_told_by_why():
    assert judge_port(SelfReach("10.0.0.1")).state is State.OK
    assert "ip_local_port_range" in judge_port(SelfReach("10.0.0.1", "in use", is_bind=True)).advice
    assert "firewall" in judge_port(SelfReach("10.0.0.1", "no answer")).advice


def test_this_machine_reaches_itself_and_has_no_address_of_others():
    assert reach_self("127.0.0.1").error == ""
    refused = reach_self("192.0.2.1")
    assert refused.error
    assert refused.is_bind


def test_all_of_it_for_this_machine(make_context):
    states = {finding.check: finding.state for finding in check(make_context())}
    assert states["advertised"] is State.OK
    assert states["master-port"] is State.OK
    meeting = Meeting("c10d", (("127.0.0.1", 29400),))
    assert {one.check: one for one in check(make_context(meeting=meeting))}["advertised"].state is State.NOTE
