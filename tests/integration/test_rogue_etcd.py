"""Agents that meet in an etcd which is broken, or which somebody else plays."""

from __future__ import annotations

import subprocess
import sys

import pytest
from rogue_etcd import Refusal, RogueEtcd, grpc, header

from holdfast.coordination import etcd_messages as messages

DEADLINE_S = 120
NO_MESSAGE = b"\xff" * 50


def granted(lease, ttl):
    return {"LeaseGrant": messages.LeaseGrantResponse(header=header(), ID=lease, TTL=ttl)}


CASES = {
    "reads that are no message": ({"Range": NO_MESSAGE}, "its answer cannot be read"),
    "transactions that are no message": ({"Txn": NO_MESSAGE}, "its answer cannot be read"),
    "a lease below 0": (granted(-1, 8), "it granted the lease -1"),
    "a lease for ever": (granted(7, 1 << 62), f"it granted a lease of {1 << 62} s"),
    "nothing is taken": (
        {"Txn": Refusal(grpc.StatusCode.INVALID_ARGUMENT, "etcdserver: request is too large")},
        "refuses a request of this size",
    ),
    "a refusal that plays tricks": (
        {"Range": Refusal(grpc.StatusCode.PERMISSION_DENIED, "\x1b[2J" + "A" * 3_000)},
        r"refuses access: \x1b[2JAAA",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_agent_ends_in_time_and_says_why_in_one_line(case, tmp_path):
    said, words = CASES[case]
    with RogueEtcd(**said) as rogue:
        options = ("--nnodes=1:2", "--rdzv-backend=etcd", f"--rdzv-endpoint=127.0.0.1:{rogue.endpoint[1]}")
        settings = ("--rdzv-conf=join_timeout=3,last_call_timeout=0.1", f"--log-dir={tmp_path}")
        command = [sys.executable, "-m", "holdfast", "run", *options, *settings, "-m", "this"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    last_line = done.stderr.splitlines()[-1]
    assert words in last_line
    assert len(last_line) < 1_000
    assert last_line.isprintable()
