from __future__ import annotations

import asyncio
import json

import pytest
from etcd_cluster import EtcdCluster

from holdfast.cli import command
from holdfast.coordination.etcd import EtcdStore
from holdfast.coordination.model import Put, Transaction
from holdfast.rendezvous.records import Keys, Node, encode


@pytest.fixture
def tell(capsys):
    """Runs ``holdfast forget`` in this process: the exit code, stdout and stderr."""

    def run(*words):
        try:
            code = command.main(["forget", *words])
        except SystemExit as left:
            code = left.code
        return code, *capsys.readouterr()

    return run


@pytest.fixture(scope="module")
def etcd(tmp_path_factory):
    with EtcdCluster(1, tmp_path_factory.mktemp("etcd")) as cluster:
        ((host, port),) = cluster.endpoints
        cluster.name = f"{host}:{port}"
        yield cluster


def write(etcd, *keys, ttl_s=0, prefix="/holdfast/"):
    async def story():
        async with EtcdStore(etcd.endpoints, prefix=prefix) as store:
            lease = (await store.grant(ttl_s)).id if ttl_s else 0
            value = encode(Node("node1", "10.0.0.1", 1, "default", 2))
            for key in keys:
                await store.transact(Transaction((), (Put(key, value, lease),)))

    asyncio.run(story())


def keys_in(etcd, prefix="/holdfast/"):
    async def story():
        async with EtcdStore(etcd.endpoints, prefix=prefix) as store:
            return [entry.key for entry in (await store.get_prefix("runs/")).entries]

    return asyncio.run(story())


@pytest.mark.etcd
def test_one_run_is_forgotten_and_no_other(etcd, tell):
    one, ten = Keys("job1"), Keys("job10")
    write(etcd, one.end, one.generation, ten.end)
    code, out, err = tell("job1", "--rdzv-backend", "etcd", "--rdzv-endpoint", etcd.name)
    assert (code, err) == (0, "")
    first, *deleted = out.splitlines()
    assert first == f"deleted 2 records of run 'job1' from etcd at {etcd.name}:"
    assert sorted(deleted) == sorted(f"  /holdfast/{key}" for key in (one.end, one.generation))
    assert keys_in(etcd) == [ten.end]
    code, out, err = tell("job1", "--rdzv-endpoint", etcd.name)
    assert (code, out, err) == (0, f"etcd at {etcd.name} has no records of run 'job1'\n", "")


@pytest.mark.etcd
def test_live_nodes_are_named_and_force_goes_on(etcd, tell):
    keys = Keys("live")
    write(etcd, keys.node("a.1"), ttl_s=60)
    code, out, err = tell("live", "--rdzv-endpoint", etcd.name)
    assert (code, out) == (1, "")
    assert err.startswith("holdfast forget: run 'live' is in use: 1 of its nodes is alive (node1); ")
    assert "--force" in err
    assert err.count("\n") == 1
    assert keys.node("a.1") in keys_in(etcd)
    code, out, _ = tell("live", "--rdzv-endpoint", etcd.name, "--json")
    assert code == 1
    assert json.loads(out) == {"run_id": "live", "deleted": [], "alive": ["node1"]}
    code, out, err = tell("live", "--rdzv-endpoint", etcd.name, "--force", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == {
        "run_id": "live",
        "deleted": [f"/holdfast/{keys.node('a.1')}"],
        "alive": ["node1"],
    }
    assert keys.node("a.1") not in keys_in(etcd)


@pytest.mark.etcd
def test_options_come_from_the_environment_as_for_run(etcd, tell, monkeypatch):
    monkeypatch.setenv("PET_RDZV_ENDPOINT", etcd.name)
    monkeypatch.setenv("PET_RDZV_CONF", "etcd_prefix=/elsewhere/")
    write(etcd, Keys("there").end, prefix="/elsewhere/")
    code, out, err = tell("there")
    assert (code, err) == (0, "")
    assert f"  /elsewhere/{Keys('there').end}\n" in out
    assert keys_in(etcd, "/elsewhere/") == []


@pytest.mark.etcd
def test_many_records_are_counted(etcd, tell):
    write(etcd, *(f"{Keys('many').values_of(1)}{number:02}" for number in range(23)))
    code, out, _ = tell("many", "--rdzv-endpoint", etcd.name)
    assert code == 0
    assert out.splitlines()[0].startswith("deleted 23 records of run 'many'")
    assert out.splitlines()[-1] == "  and 3 more"
    assert len(out.splitlines()) == 22


@pytest.mark.etcd
def test_nobody_there_is_one_line_and_1(tell):
    code, out, err = tell("job", "--rdzv-endpoint", "127.0.0.1:1")
    assert (code, out) == (1, "")
    assert err.startswith("holdfast forget: StoreUnavailableError: etcd at 127.0.0.1:1 does not answer: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "RUN_ID"),
        (["job"], "give --rdzv-endpoint HOST:PORT"),
        (["", "--rdzv-endpoint", "h"], "the run id is empty"),
        (["job", "--rdzv-endpoint", "h:x"], "h:x"),
        (["job", "--rdzv-endpoint", "h", "--rdzv-backend", "c10d"], "--rdzv-backend c10d: only etcd keeps records"),
        (["job", "--rdzv-endpoint", "h", "--rdzv-conf", "x"], "--rdzv-conf 'x'"),
        (["job", "--rdzv-endpoint", "h", "--rdzv-conf", "keep_alive_max_attempt=1"], "keep_alive_max_attempt=1"),
        (["job", "more"], "more"),
    ],
)
def test_bad_input_is_one_line_and_2(words, text, tell):
    code, out, err = tell(*words)
    assert (code, out) == (2, "")
    assert err.startswith("holdfast forget: error: ")
    assert text in err
    assert err.count("\n") == 1
