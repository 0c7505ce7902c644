from __future__ import annotations

import threading

import pytest

from holdfast.coordination import etcd_messages
from holdfast.coordination.protobuf import Schema


def fresh():
    return Schema("etcdserverpb", etcd_messages.schema._descriptor)


def test_a_message_comes_through_the_wire():
    put = fresh().message("PutRequest")
    assert put.FromString(put(key=b"k", value=b"v", lease=7).SerializeToString()) == put(key=b"k", value=b"v", lease=7)


@pytest.mark.parametrize("name", ["Nonsense", "__wrapped__", "range_end"])
def test_there_is_nothing_else(name):
    with pytest.raises(AttributeError, match=name):
        fresh().message(name)


def test_threads_that_ask_at_once_get_the_same_classes():
    schema, found = fresh(), []
    barrier = threading.Barrier(8)

    def ask():
        barrier.wait()
        found.append(schema.message("RangeRequest"))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


def test_a_method_is_called_by_its_name_on_the_wire():
    class Channel:
        def __getattr__(self, kind):
            return lambda path, **codec: (kind, path, sorted(codec))

    codec = ["request_serializer", "response_deserializer"]
    schema, reader = fresh(), id
    assert schema.caller(Channel(), "KV", "Range", reader) == ("unary_unary", "/etcdserverpb.KV/Range", codec)
    assert schema.caller(Channel(), "Watch", "Watch", reader) == ("stream_stream", "/etcdserverpb.Watch/Watch", codec)
