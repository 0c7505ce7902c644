"""What ``--rdzv-conf`` means, and what is said when it means nothing."""

from __future__ import annotations

import pytest

from holdfast.errors import InputError
from holdfast.rendezvous import RendezvousParameters
from holdfast.rendezvous.elastic_settings import ElasticSettings
from holdfast.rendezvous.records import NO_RANK


def settings(endpoint="localhost", backend="c10d", nodes=(2, 4), environ=None, **config):
    return ElasticSettings(RendezvousParameters(backend, endpoint, "run", *nodes, **config), environ or {})


def test_defaults():
    made = settings()
    assert (made.limits.min_nodes, made.limits.max_nodes) == (2, 4)
    assert (made.ttl_s, made.keep_alive_s, made.close_timeout_s) == (3.0, 1.0, 30.0)
    assert (made.limits.join_timeout_s, made.limits.last_call_s, made.limits.recall_s) == (600.0, 5.0, 0.0)
    assert made.place.name == "the store at localhost:29400"
    assert not made.place.may_return


def test_etcd_has_more_patience_for_an_election():
    made = settings("etcd0,etcd1:2,http://[fd00::1]:3", "etcd")
    assert made.ttl_s == 8.0
    assert made.place.name == "etcd at etcd0:2379, etcd1:2, [fd00::1]:3"
    assert made.place.may_return


def test_what_is_given():
    made = settings(
        join_timeout="7",
        last_call_timeout="0.5",
        close_timeout="2",
        keep_alive_interval="2",
        keep_alive_max_attempt="4",
    )
    assert (made.ttl_s, made.close_timeout_s) == (8.0, 2.0)
    assert (made.limits.join_timeout_s, made.limits.last_call_s, made.limits.recall_s) == (7.0, 0.5, 0.5)


@pytest.mark.parametrize(
    ("config", "environ", "rank"),
    [
        ({}, {}, NO_RANK),
        ({"rank": 3}, {"SLURM_PROCID": "1"}, 3),
        ({}, {"SLURM_PROCID": "1"}, 1),
        ({}, {"SLURM_PROCID": "4"}, NO_RANK),
        ({}, {"SLURM_PROCID": "x"}, NO_RANK),
        ({}, {"SLURM_PROCID": "9" * 5_000}, NO_RANK),
        ({"rank": 4}, {}, NO_RANK),
        ({"rank": "0"}, {}, 0),
    ],
)
def test_the_rank_that_is_asked_for(config, environ, rank):
    assert settings(environ=environ, **config).rank == rank


@pytest.mark.parametrize(
    ("config", "users"),
    [({}, frozenset()), ({"store_users": "7+1000"}, frozenset({7, 1000})), ({"store_users": "any"}, None)],
)
def test_users_who_are_named_may_meet_here(config, users):
    assert settings(**config).place.access().users == users


def test_another_machine_needs_a_token():
    with pytest.raises(InputError, match=r"--rdzv-endpoint node7:29400: .* set HOLDFAST_TOKEN"):
        settings("node7")
    assert (
        settings("node7", environ={"HOLDFAST_TOKEN": "a secret of the test"}).place.name == "the store at node7:29400"
    )
    assert settings("node7", token="a secret of the test").place.name == "the store at node7:29400"


def test_an_unknown_setting_is_named(caplog):
    settings(joint_timeout="7")
    assert "--rdzv-conf joint_timeout: the backend c10d has no such setting" in caplog.text


@pytest.mark.parametrize(
    ("interval", "attempts", "ttl_s"),
    [("0.05", 2, 0.1), ("0.01", 10, 0.1), ("28800", 3, 86_400.0), (1, 86_400, 86_400.0)],
)
def test_the_shortest_and_the_longest_lease(interval, attempts, ttl_s):
    assert settings(keep_alive_interval=interval, keep_alive_max_attempt=attempts).ttl_s == ttl_s


@pytest.mark.parametrize("key", ["join_timeout", "last_call_timeout", "close_timeout"])
def test_a_wait_may_be_as_good_as_endless(key):
    settings(**{key: "1e300"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endpoint": ""}, "--rdzv-backend c10d: give --rdzv-endpoint HOST:PORT"),
        ({"endpoint": "", "backend": "etcd"}, "--rdzv-backend etcd: give --rdzv-endpoint HOST:PORT"),
        ({"endpoint": "ftp://a", "backend": "etcd"}, "--rdzv-endpoint 'ftp://a': write HOST:PORT"),
        ({"endpoint": "a,,b", "backend": "etcd"}, "--rdzv-endpoint ''"),
        ({"endpoint": "localhost:0"}, "several nodes need the same port"),
        ({"store_type": "file"}, "--rdzv-conf store_type=file: only tcp is supported"),
        ({"join_timeout": "soon"}, "--rdzv-conf join_timeout=soon: write a number of seconds"),
        ({"join_timeout": "0"}, "--rdzv-conf join_timeout=0"),
        ({"keep_alive_interval": "nan"}, "--rdzv-conf keep_alive_interval=nan"),
        ({"keep_alive_max_attempt": "1"}, "--rdzv-conf keep_alive_max_attempt=1: must be at least 2"),
        ({"keep_alive_max_attempt": "-3"}, "--rdzv-conf keep_alive_max_attempt=-3: must be at least 2"),
        ({"keep_alive_max_attempt": "nan"}, "--rdzv-conf keep_alive_max_attempt=nan: write a whole number"),
        ({"keep_alive_max_attempt": float("inf")}, "--rdzv-conf keep_alive_max_attempt=inf: write a whole number"),
        ({"keep_alive_max_attempt": "9" * 400}, "interval times attempts, which must be 0.1 to 86400 s"),
        ({"keep_alive_max_attempt": "86401"}, "keep_alive_interval=1,keep_alive_max_attempt=86401: .* 0.1 to 86400 s"),
        ({"keep_alive_interval": "0.03"}, "keep_alive_interval=0.03,keep_alive_max_attempt=3: .* 0.1 to 86400 s"),
        ({"keep_alive_interval": "1e300"}, "keep_alive_interval=1e.300,keep_alive_max_attempt=3: .* 0.1 to 86400 s"),
        ({"keep_alive_interval": "20000", "backend": "etcd"}, "keep_alive_interval=20000,keep_alive_max_attempt=8: "),
        ({"keep_alive_interval": "1e-5"}, "--rdzv-conf keep_alive_interval=1e-5: must be at least 0.01 s"),
        ({"keep_alive_interval": "inf"}, "--rdzv-conf keep_alive_interval=inf: must be more than 0 seconds"),
        ({"join_timeout": "-1"}, "--rdzv-conf join_timeout=-1: must be more than 0 seconds"),
        ({"join_timeout": 10**400}, "--rdzv-conf join_timeout=10+: must be more than 0 seconds"),
        ({"last_call_timeout": "nan"}, "--rdzv-conf last_call_timeout=nan: must be more than 0 seconds"),
        ({"close_timeout": "1e400"}, "--rdzv-conf close_timeout=1e400: must be more than 0 seconds"),
        ({"rank": "nan"}, "--rdzv-conf rank=nan: write a whole number"),
        ({"keep_alive_max_attempt": "x"}, "--rdzv-conf keep_alive_max_attempt=x: write a whole number"),
        ({"is_host": "perhaps"}, "--rdzv-conf is_host=perhaps"),
        ({"ca_cert": "ca.pem"}, "TLS needs all three"),
        ({"token": " "}, "token"),
        ({"token_file": "/nowhere/token"}, "/nowhere/token"),
    ],
)
def test_bad_input_is_named(options, message):
    with pytest.raises(InputError, match=message):
        settings(**options)


def test_nodes_that_were_told_their_ranks_are_one_group_and_know_their_master():
    made = settings("127.0.0.1:4711", "static", (3, 3), rank="2")
    assert (made.rank, made.group, made.master) == (2, "static", ("127.0.0.1", 4711))
    assert made.limits.has_given_ranks
    assert made.place.name == "the store at 127.0.0.1:4712"
    other = settings("127.0.0.1:4711")
    assert (other.group, other.master, other.limits.has_given_ranks) == ("run", None, False)


@pytest.mark.parametrize(
    ("backend", "config", "join_timeout_s"),
    [
        ("static", {}, 600.0),
        ("static", {"timeout": 900}, 900.0),
        ("static", {"timeout": 900, "join_timeout": "7"}, 7.0),
        ("c10d", {"timeout": 900}, 600.0),
    ],
)
def test_the_timeout_of_a_static_job_is_that_of_joining(backend, config, join_timeout_s):
    made = settings("127.0.0.1", backend, (2, 2), rank=0, **config)
    assert made.limits.join_timeout_s == join_timeout_s
