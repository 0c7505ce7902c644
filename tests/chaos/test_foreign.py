"""Somebody else with a client of etcd, on a real member."""

from __future__ import annotations

import json

import pytest
from etcd_cluster import EtcdCluster

from chaos import foreign
from holdfast.rendezvous.records import Keys

QUOTA_BYTES = 4 << 20


@pytest.fixture
def endpoints(tmp_path):
    with EtcdCluster(1, tmp_path, options=[f"--quota-backend-bytes={QUOTA_BYTES}"]) as cluster:
        yield [f"{host}:{port}" for host, port in cluster.endpoints]


def put(endpoints, key, value):
    return foreign.post(endpoints[0], "kv/put", key=foreign.word(key), value=foreign.word(value))


@pytest.mark.etcd
def test_a_full_etcd_takes_no_writes_until_it_is_freed(endpoints):
    filled = foreign.fill(endpoints)
    assert "database space exceeded" in filled["refused"]
    with pytest.raises(foreign.RefusedError, match="database space exceeded"):
        put(endpoints, "/holdfast/small", "x")
    assert foreign.free(endpoints) == {"alarms": 1}
    put(endpoints, "/holdfast/small", "x")
    assert foreign.fill(endpoints)["values"] > 0


@pytest.mark.etcd
def test_records_of_a_run_are_deleted(endpoints):
    keys = Keys("chaos-1")
    put(endpoints, f"/holdfast/{keys.generation}", "{}")
    for name in ("node1", "node2"):
        put(endpoints, f"/holdfast/{keys.node(name * 2)}", json.dumps({"host": name}))
    assert foreign.delete(endpoints, "chaos-1", "generation", "") == {"record": "generation", "deleted": 1}
    assert foreign.delete(endpoints, "chaos-1", "node", "node2") == {"record": "node", "deleted": 1}
    left = foreign.post(endpoints[0], "kv/range", **foreign.prefix("/holdfast/"))["kvs"]
    assert [each["key"] for each in left] == [foreign.word(f"/holdfast/{keys.node('node1node1')}")]


@pytest.mark.etcd
def test_a_storm_is_told_if_there_was_nothing_to_delete(endpoints):
    for what in ("generation", "node"):
        with pytest.raises(SystemExit, match="there is no record"):
            foreign.delete(endpoints, "chaos-1", what, "node2")
