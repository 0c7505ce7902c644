"""The messages are those of etcd.proto, disturb nobody else's, and cost nothing before they are needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from fresh_python import run_fresh

ROOT = Path(__file__).parents[2]

SCRIPT = ROOT / "scripts/etcd_messages.py"

OTHERS = """
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    def load_others():
        '''Somebody else's stubs of etcd, as protoc makes them: in the pool that all share.'''
        file = descriptor_pb2.FileDescriptorProto(name="etcd.proto", package="etcdserverpb", syntax="proto3")
        field = file.message_type.add(name="RangeRequest").field.add(name="theirs", number=1, type=9, label=1)
        pool = descriptor_pool.Default()
        pool.AddSerializedFile(file.SerializeToString())
        return message_factory.GetMessageClass(pool.FindMessageTypeByName("etcdserverpb.RangeRequest"))

    def load_ours():
        from holdfast.coordination import etcd_messages
        return etcd_messages.RangeRequest

    def show(theirs, ours):
        assert theirs(theirs="key").SerializeToString() == ours(key=b"key").SerializeToString()
"""


def test_what_is_committed_is_what_the_proto_file_says():
    ran = subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, text=True, check=False, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_proto_file_that_says_something_else_is_noticed(tmp_path):
    copy = tmp_path / "src/holdfast/coordination"
    copy.mkdir(parents=True)
    (tmp_path / "scripts").mkdir()
    script = tmp_path / "scripts/etcd_messages.py"
    script.write_text(SCRIPT.read_text())
    proto = (ROOT / "src/holdfast/coordination/etcd.proto").read_text()
    (copy / "etcd.proto").write_text(proto)
    subprocess.run([sys.executable, script], check=True, timeout=60)
    subprocess.run([sys.executable, script, "--check"], check=True, timeout=60)
    (copy / "etcd.proto").write_text(proto.replace("bool count_only = 9;", "bool count_only = 8;"))
    ran = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False, timeout=60)
    assert (ran.returncode, ran.stderr.count("\n")) == (1, 1)
    assert "run scripts/etcd_messages.py" in ran.stderr


@pytest.mark.parametrize(
    "order",
    ["theirs = load_others(); ours = load_ours()", "ours = load_ours(); theirs = load_others()"],
    ids=["theirs first", "ours first"],
)
def test_stubs_of_etcd_from_elsewhere_can_be_in_the_same_process(order):
    ran = run_fresh(f"{OTHERS}\n    {order}\n    show(theirs, ours)")
    assert (ran.returncode, ran.stderr) == (0, "")


def test_nothing_of_grpc_and_protobuf_is_imported_before_there_is_a_store():
    ran = run_fresh(
        """
        import sys
        from holdfast.coordination.etcd import EtcdStore
        from holdfast.coordination import last_will
        from holdfast.rendezvous import RendezvousParameters
        from holdfast.rendezvous.elastic_settings import ElasticSettings
        for backend in ("c10d", "etcd"):
            ElasticSettings(RendezvousParameters(backend, "localhost", "run", 2, 2))
        print(*(name for name in sys.modules if name.partition(".")[0] in ("grpc", "google")))
        """
    )
    assert (ran.stdout, ran.stderr) == ("\n", "")
