"""What etcd's errors mean for a job, and which of several says most."""

from __future__ import annotations

import pytest

from holdfast.coordination.errors import (
    BadAnswerError,
    CompactedError,
    LeaseLostError,
    StoreFullError,
    StoreRefusedError,
    StoreUnavailableError,
)
from holdfast.coordination.etcd_errors import (
    TEXT_MAX_CHARS,
    InsecureError,
    NoLeaderError,
    NoPasswordsError,
    NotDoneError,
    NotPermittedError,
    OldTokenError,
    OtherClusterError,
    TooLargeError,
    as_ours,
    in_short,
    most_telling,
)


@pytest.mark.parametrize(
    ("code", "details", "expected"),
    [
        (
            "UNAVAILABLE",
            "failed to connect to all addresses; last error: UNKNOWN: refused\nhere",
            StoreUnavailableError,
        ),
        ("PERMISSION_DENIED", "something", StoreRefusedError),
        ("NOT_FOUND", "etcdserver: requested lease not found", LeaseLostError),
        ("UNKNOWN", "raft proposal dropped", StoreUnavailableError),
        ("UNAVAILABLE", "etcdserver: no leader", NoLeaderError),
        ("UNAVAILABLE", "etcdserver: rpc not supported for learner", NoLeaderError),
        ("RESOURCE_EXHAUSTED", "etcdserver: too many requests", NotDoneError),
        ("UNAVAILABLE", "etcdserver: request timed out", StoreUnavailableError),
        (
            "UNAVAILABLE",
            "etcdserver: request timed out, possibly due to previous leader failure",
            StoreUnavailableError,
        ),
        ("UNAVAILABLE", "etcdserver: leader changed", StoreUnavailableError),
        ("UNAVAILABLE", "etcdserver: server stopped", StoreUnavailableError),
        ("UNAVAILABLE", "etcdserver: not capable", StoreRefusedError),
        ("DATA_LOSS", "etcdserver: corrupt cluster", StoreRefusedError),
        ("RESOURCE_EXHAUSTED", "etcdserver: mvcc: database space exceeded", StoreFullError),
        ("INVALID_ARGUMENT", "etcdserver: request is too large", TooLargeError),
        ("RESOURCE_EXHAUSTED", "grpc: received message larger than max (9 vs. 8)", TooLargeError),
        ("RESOURCE_EXHAUSTED", "CLIENT: Received message larger than max (9 vs. 8)", BadAnswerError),
        ("UNAUTHENTICATED", "etcdserver: invalid auth token", OldTokenError),
        ("INVALID_ARGUMENT", "etcdserver: revision of auth store is old", OldTokenError),
        ("FAILED_PRECONDITION", "etcdserver: authentication is not enabled", NoPasswordsError),
        ("INVALID_ARGUMENT", "etcdserver: authentication failed, invalid user ID or password", StoreRefusedError),
        ("INVALID_ARGUMENT", "etcdserver: user name is empty", NotPermittedError),
        ("PERMISSION_DENIED", "etcdserver: permission denied", NotPermittedError),
        ("OUT_OF_RANGE", "etcdserver: mvcc: required revision has been compacted", CompactedError),
        ("UNKNOWN", "tls: bad certificate", InsecureError),
        ("UNAVAILABLE", "last error: UNKNOWN: UNAUTHENTICATED: Hostname Verification Check failed.", InsecureError),
        ("UNAVAILABLE", "last error: UNKNOWN: ipv4:10.0.0.1:2379: tcp handshaker shutdown", StoreUnavailableError),
    ],
)
def test_errors_are_ours(code, details, expected):
    error = as_ours(code, details, "host:1")
    assert type(error) is expected
    assert "\n" not in str(error)
    assert str(error).startswith("etcd at host:1")


@pytest.mark.parametrize(
    ("details", "is_plain", "hint"),
    [
        ("Handshake read failed (Socket closed)", False, "it may not speak TLS"),
        ("Unwrap failed (TSI_DATA_CORRUPTED)", False, "it may require a client certificate: ssl_cert"),
        ("Socket closed", True, "it may speak TLS: write https://"),
        ("recvmsg:Connection reset by peer (104)", True, "it may speak TLS: write https://"),
        ("Socket closed", False, ""),
        ("Failed to connect to remote host: Connection refused", True, ""),
    ],
)
def test_what_may_be_behind_a_connection_that_breaks(details, is_plain, hint):
    error = as_ours("UNAVAILABLE", f"last error: UNAVAILABLE: ipv4:{details}", "host:1", is_plain=is_plain)
    assert type(error) is StoreUnavailableError  # it may be the network as well
    said, opening, behind = str(error).rpartition(" (") if hint else (str(error), "", "")
    assert said.endswith(details)
    assert behind.startswith(hint)
    assert bool(opening) == bool(hint)


def test_what_etcd_itself_says_of_certificates_is_no_failed_handshake():
    error = as_ours("UNKNOWN", "etcdserver: certificate of a peer", "host:1")
    assert type(error) is StoreUnavailableError


@pytest.mark.parametrize("details", ["no leader", "a proxy says etcdserver: no leader"])
def test_only_a_member_can_say_that_it_has_no_leader(details):
    """Or a request that was perhaps carried out would be sent again."""
    assert not isinstance(as_ours("UNAVAILABLE", details, "host:1"), NotDoneError)


def test_a_request_that_is_too_large_is_the_callers_mistake():
    assert isinstance(as_ours("INVALID_ARGUMENT", "etcdserver: request is too large", "host:1"), ValueError)


def test_a_full_database_comes_with_what_to_do():
    error = as_ours("RESOURCE_EXHAUSTED", "etcdserver: mvcc: database space exceeded", "host:1")
    assert "etcdctl defrag" in str(error)


def test_the_text_of_a_member_is_a_short_line_without_control_characters():
    assert in_short("two\nlines") == "two lines"
    assert in_short("\x1b[31mred").isprintable()
    assert in_short("x" * TEXT_MAX_CHARS) == "x" * TEXT_MAX_CHARS
    long = in_short("x" * 10_000_000)
    assert long == "x" * TEXT_MAX_CHARS + "..."
    assert len(in_short("\0" * 10_000)) == len(long)


REFUSED, FULL = StoreRefusedError("refused"), StoreFullError("full")
NO_LEADER, DOWN, OTHER = NoLeaderError("no leader"), StoreUnavailableError("down"), OtherClusterError("other")


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        ([DOWN, NO_LEADER, REFUSED, OTHER], REFUSED),
        ([OTHER, DOWN, NO_LEADER], NO_LEADER),
        ([OTHER, DOWN], DOWN),
        ([OTHER], OTHER),
        ([FULL, REFUSED], FULL),
    ],
)
def test_of_several_errors_the_one_that_needs_a_person_counts_and_a_strangers_comes_last(errors, expected):
    assert most_telling(errors) is expected
