from __future__ import annotations

import sys

import pytest

from holdfast.coordination.etcd import EtcdStore
from holdfast.coordination.etcd_rpc import Methods, load_grpc
from holdfast.errors.tree import InputError


@pytest.mark.parametrize(
    ("module", "package"), [("grpc", "grpcio"), ("google.protobuf", "protobuf"), ("google", "protobuf")]
)
def test_without_a_package_there_is_one_clear_line(module, package, monkeypatch):
    for name in list(sys.modules):
        if name.partition(".")[0] == module.partition(".")[0]:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError) as raised:
        EtcdStore([("127.0.0.1", 2379)])
    assert (
        str(raised.value) == f"--rdzv-backend etcd: needs the package {package}; install holdfast with its extra etcd"
    )


def test_every_method_is_one_of_etcd():
    paths = []

    class Channel:
        def __getattr__(self, kind):
            return lambda path, **_: paths.append(path)

    Methods(Channel(), "host:1")
    assert len(set(paths)) == len(paths) == 10
    assert all(path.startswith("/etcdserverpb.") for path in paths)


def test_grpc_is_there_with_its_part_for_asyncio():
    assert load_grpc().aio.AioRpcError
