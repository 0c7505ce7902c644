"""Why a rendezvous is over, in words: what the agent is told, and no name twice."""

from __future__ import annotations

import pytest

from holdfast.coordination.errors import StoreRefusedError, StoreUnavailableError
from holdfast.errors.tree import InputError, PlatformError
from holdfast.rendezvous.errors import (
    JobFailedError,
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousGracefulExitError,
    RendezvousTimeoutError,
)
from holdfast.rendezvous.handover import Broke, Handover, Left
from holdfast.rendezvous.reasons import Reasons
from holdfast.rendezvous.records import End, EndKind, Failure

ETCD = Reasons("job7", "etcd at etcd0:2379", may_return=True, join_timeout_s=600.0)
STORE = Reasons("job7", "the store at node0:29400", may_return=False, join_timeout_s=600.0)
GIVEN_RANK = Reasons("none", "the store at node0:29501", False, 600.0, "--node-rank 1")

SURVIVES = "; with --rdzv-backend etcd, a job survives this"
FAILURE = Failure("a.1", "node1", 3, 1, 4711, 1, "no more data", 0)


@pytest.mark.parametrize(
    ("reasons", "error", "expected"),
    [
        (ETCD, StoreRefusedError("no permission"), RendezvousConnectionError("no permission")),
        (ETCD, StoreUnavailableError("it lost data"), RendezvousConnectionError("etcd at etcd0:2379: it lost data")),
        (
            ETCD,
            StoreUnavailableError("etcd at etcd0:2379 lost data"),
            RendezvousConnectionError("etcd at etcd0:2379 lost data"),
        ),
        (STORE, InputError("--local-addr x: no"), InputError("--local-addr x: no")),
        (STORE, KeyError("x"), PlatformError("bug in holdfast: KeyError: 'x'")),
    ],
)
def test_an_error_is_explained(reasons, error, expected):
    explained = reasons.of_error(error)
    assert (type(explained), str(explained)) == (type(expected), str(expected))
    if isinstance(expected, PlatformError):
        assert explained.__cause__ is error


@pytest.mark.parametrize(
    ("reasons", "left", "kind", "text"),
    [
        (STORE, Left(End(EndKind.SUCCEEDED, "all done"), "", has_joined=True), RendezvousGracefulExitError, "all done"),
        (STORE, Left(End(EndKind.CLOSED, "a left"), "", has_joined=True), RendezvousClosedError, "a left"),
        (
            STORE,
            Left(End(EndKind.SUCCEEDED, "all done"), ""),
            RendezvousClosedError,
            "run 'job7' has already ended (succeeded: all done); choose another --rdzv-id",
        ),
        (
            STORE,
            Left(End(EndKind.FAILED, "no budget", FAILURE), "", has_joined=True),
            JobFailedError,
            "no budget",
        ),
        (
            STORE,
            Left(None, "another program", is_refused=True),
            InputError,
            "--rdzv-id 'job7': this node is not let in: another program",
        ),
        (
            GIVEN_RANK,
            Left(None, "rank 1 is taken by node7", is_refused=True),
            InputError,
            "--node-rank 1: this node is not let in: rank 1 is taken by node7",
        ),
        (
            STORE,
            Left(None, "", store_is_gone=True, replaced="another store answers"),
            RendezvousConnectionError,
            f"another store answers; the job ended with the old store{SURVIVES}",
        ),
        (
            STORE,
            Left(None, "", store_is_gone=True),
            RendezvousConnectionError,
            f"the store at node0:29400 was lost with the node that served it, which ends the job{SURVIVES}",
        ),
        (
            ETCD,
            Left(None, "", is_cut_off=True),
            RendezvousConnectionError,
            "etcd at etcd0:2379 could not be reached for 600 s",
        ),
        (
            ETCD,
            Left(None, "", is_cut_off=True, trouble="etcd at etcd0:2379 does not answer: refused"),
            RendezvousConnectionError,
            "etcd at etcd0:2379 could not be reached for 600 s: refused",
        ),
        (
            ETCD,
            Left(None, "too few nodes", trouble="etcd at etcd1:2379 is a learner"),
            RendezvousTimeoutError,
            "too few nodes (run 'job7', etcd at etcd0:2379): etcd at etcd1:2379 is a learner",
        ),
    ],
)
def test_a_node_that_left_says_why(reasons, left, kind, text):
    explained = reasons.of_leaving(left)
    assert type(explained) is kind
    assert str(explained) == text


@pytest.mark.parametrize(
    ("trouble", "expected"),
    [
        ("", "etcd at etcd0:2379 could not be reached for 600 s"),
        (
            "etcd at etcd0:2379 does not answer",
            "etcd at etcd0:2379 could not be reached for 600 s: it does not answer",
        ),
        # Another port is another store.
        (
            "etcd at etcd0:23790 does not answer",
            "etcd at etcd0:2379 could not be reached for 600 s: etcd at etcd0:23790 does not answer",
        ),
    ],
)
def test_a_store_that_was_not_reached_is_named_once(trouble, expected):
    assert ETCD.unreachable(trouble) == expected


def test_a_breakdown_is_raised_before_the_farewell():
    news = Handover()
    try:
        ETCD.raise_if_over(news)
        news.tell(Left(End(EndKind.CLOSED, "a left"), "", has_joined=True))
        with pytest.raises(RendezvousClosedError, match="a left"):
            ETCD.raise_if_over(news)
        news.tell(Broke(StoreRefusedError("no permission")))
        with pytest.raises(RendezvousConnectionError, match="no permission"):
            ETCD.raise_if_over(news)
    finally:
        news.close()
