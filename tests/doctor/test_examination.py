from __future__ import annotations

import json
import subprocess
import sys
import threading

import pytest
from dripping_server import HOST, dripping_server

from holdfast.doctor.examination import CHECKS, examine
from holdfast.doctor.finding import State, Topic

ENDED_MAX_S = 60.0

A, B = Topic("a"), Topic("b")


def fail(context):
    raise RuntimeError("the disk is on fire")


def test_findings_come_in_the_order_of_the_topics(make_context):
    is_done = threading.Event()

    def slow(context):
        assert is_done.wait(60)
        return [A.ok("x", "a is well")]

    def fast(context):
        is_done.set()
        return [B.ok("x", "b is well"), B.note("y", "and old")]

    found = examine(make_context(), checks={"a": slow, "b": fast}, limit_s=60)
    assert [finding.what for finding in found] == ["a is well", "b is well", "and old"]


def test_a_check_that_raises_is_a_finding(make_context):
    (found,) = examine(make_context(), checks={"a": fail})
    assert (found.topic, found.state) == ("a", State.WARNING)
    assert found.what == "the check failed: RuntimeError: the disk is on fire"


def test_a_check_that_hangs_is_a_finding_and_the_others_are_told(make_context):
    over = threading.Event()
    checks = {"a": lambda _: over.wait(60) and [], "b": lambda _: [B.ok("x", "b is well")]}
    try:
        late, well = examine(make_context(), checks=checks, limit_s=1.0)
    finally:
        over.set()
    assert (late.topic, late.state, late.check) == ("a", State.WARNING, "unfinished")
    assert well.what == "b is well"


def test_some_topics_may_be_chosen(make_context):
    checks = {"a": fail, "b": lambda _: [B.ok("x", "b is well")]}
    assert [finding.topic for finding in examine(make_context(), ["b"], checks)] == ["b"]


def test_nothing_to_say_is_no_finding(make_context):
    assert examine(make_context(), checks={"a": lambda _: []}) == []


def test_every_check_of_this_machine_comes_to_an_end(make_context):
    found = examine(make_context(), limit_s=60)
    assert not [finding for finding in found if finding.check == "unfinished"]
    assert {finding.topic for finding in found} == set(CHECKS) - {"etcd"}
    keys = [(finding.topic, finding.check) for finding in found]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("greeting", [b"", b"HTTP/1.1 200 OK\r\nX: "])
@pytest.mark.parametrize(("backend", "topic"), [("etcd", "etcd"), ("etcd", "clock"), ("c10d", "endpoint")])
def test_a_server_that_never_ends_its_answer_does_not_hold_the_process(backend, topic, greeting):
    with dripping_server(greeting, b"\0", 0.5) as port:
        endpoint = ("--backend", backend, "--endpoint", f"{HOST}:{port}")
        ended = subprocess.run(
            [sys.executable, "-m", "holdfast", "doctor", *endpoint, "--only", topic, "--json"],
            stdout=subprocess.PIPE,
            text=True,
            timeout=ENDED_MAX_S,
            check=False,
        )
    assert topic in {finding["topic"] for finding in json.loads(ended.stdout)}
