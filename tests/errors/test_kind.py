from __future__ import annotations

import pytest

from holdfast.errors.kind import FailureKind, cause_of, is_lost_peer, says_lost_peer

E, C, K = FailureKind.EXCEPTION, FailureKind.COMMUNICATION, FailureKind.KILLED


@pytest.mark.parametrize(
    ("exception", "text"),
    [
        ("ConnectionResetError", "[Errno 104] whatever"),
        ("BrokenPipeError", ""),
        (
            "torch.distributed.DistBackendError",
            "NCCL error in: ProcessGroupNCCL.cpp:3356, remote process exited or there was a network error",
        ),
        ("torch.distributed.DistNetworkError", "Failed to recv, got 0 bytes. Connection was likely closed."),
        ("RuntimeError", "[gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.2]:4242"),
        ("RuntimeError", "[../transport/tcp/pair.cc:534] Read error [10.0.0.2]:20814: Connection reset by peer"),
        ("RuntimeError", "[Gloo] Rank 2 [unbound_buffer.cc:84] Timed out waiting 1800000ms for recv operation"),
        ("RuntimeError", "Wait timeout after 300000ms, for keys: [/default_pg/store]"),
        ("jax.errors.JaxRuntimeError", "UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats)"),
        ("XlaRuntimeError", "DEADLINE_EXCEEDED: Barrier timed out. Barrier_id: shutdown"),
    ],
)
def test_these_lost_a_peer(exception, text):
    assert is_lost_peer(exception, f"{exception}: {text}")


@pytest.mark.parametrize(
    ("exception", "text"),
    [
        ("ValueError", "connection reset by peer"),
        ("RuntimeError", "CUDA error: device-side assert triggered"),
        ("RuntimeError", "shape '[2]' is invalid for input of size 3"),
        ("RuntimeError", "PNG read error"),
        ("RuntimeError", "expected scalar type Float but found Half"),
        ("FileNotFoundError", "[Errno 2] No such file or directory: 'timeout'"),
        ("", ""),
    ],
)
def test_these_did_not(exception, text):
    assert not is_lost_peer(exception, f"{exception}: {text}")


def test_the_watchdog_of_a_collective_speaks_on_stderr():
    assert says_lost_peer("[rank3]:[E ProcessGroupNCCL.cpp:632] Watchdog caught collective operation timeout: WorkNCCL")


@pytest.mark.parametrize(
    ("text", "is_lost"),
    [
        ("NCCL communicator was aborted", True),
        ("nccl gloo nccl timeout", True),
        ("error of NCCL", False),
        ("NCCL\nerror", False),
        ("a collective fails", True),
        ("NCCL fails", False),
        ("nccl fails: gloo", False),
        ("nccl, collective: fails", True),
        ("oncclo error", False),
        ("NCCL is ready\nNCCL error", True),
    ],
)
def test_a_library_and_what_it_says_are_in_one_line(text, is_lost):
    assert says_lost_peer(text) == is_lost


@pytest.mark.parametrize(
    ("kinds", "place"),
    [([E], 0), ([C, E], 1), ([C, C, K, E], 2), ([C, C], 0), ([K, C], 0), ([E, K], 0)],
)
def test_the_cause_is_the_first_that_is_no_victim(kinds, place):
    assert cause_of(kinds) == place
