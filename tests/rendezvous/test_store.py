from __future__ import annotations

import threading

import pytest

from holdfast.rendezvous.store import LocalStore


def test_what_people_use_on_torchs_stores():
    store = LocalStore()
    store.set("text", "value")
    store.set("bytes", b"\xff")
    assert store.get("text") == b"value"
    assert store.multi_get(["text", "bytes"]) == [b"value", b"\xff"]
    assert store.add("count", 2) == 2
    assert store.add("count", -5) == -3
    assert store.get("count") == b"-3"
    assert store.check(["text", "count"])
    assert not store.check(["text", "nothing"])
    assert store.num_keys() == 3
    assert store.delete_key("text")
    assert not store.delete_key("text")
    store.multi_set(["a", "b"], ["1", "2"])
    assert store.multi_get(["a", "b"]) == [b"1", b"2"]


def test_compare_set():
    store = LocalStore()
    assert store.compare_set("key", "expected", "desired") == b"expected"
    assert not store.check(["key"])
    assert store.compare_set("key", "", "first") == b"first"
    assert store.compare_set("key", "wrong", "second") == b"first"
    assert store.compare_set("key", "first", "second") == b"second"


def test_a_value_is_waited_for():
    store = LocalStore()
    got = []
    thread = threading.Thread(target=lambda: got.append(store.get("key", timeout=60)))
    thread.start()
    store.set("other", "x")
    store.set("key", "value")
    thread.join()
    assert got == [b"value"]


def test_a_wait_that_is_too_long_names_what_is_missing():
    store = LocalStore()
    store.set("here", "x")
    with pytest.raises(TimeoutError, match=r"0\.01 s: missing$"):
        store.wait(["here", "missing"], timeout=0.01)
