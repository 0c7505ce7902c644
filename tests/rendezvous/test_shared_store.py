"""One behaviour, three stores: ours for one process, ours over a coordination store, and torch's own as the oracle.

torch is imported where it is asked for.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from datetime import timedelta

import pytest

from holdfast.coordination.blocking import BlockingStore, LoopThread
from holdfast.coordination.errors import StoreUnavailableError
from holdfast.coordination.keyspace import KeySpace
from holdfast.coordination.memory import MemoryStore
from holdfast.rendezvous import shared_store
from holdfast.rendezvous.shared_store import SharedStore
from holdfast.rendezvous.store import LocalStore, QueueEmptyError, StoreTimeoutError

IMPORTS_TORCH = True

LONG_S = 60.0
SHORT = timedelta(seconds=0.05)


@pytest.fixture
def closing():
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def make_shared(closing):
    """Stores of several nodes over one memory."""
    loop_thread = closing.enter_context(LoopThread())
    keyspace = KeySpace()

    def make(prefix="run/1/"):
        blocking = closing.enter_context(BlockingStore(MemoryStore(keyspace), loop_thread))
        return SharedStore(blocking, prefix, timeout_s=LONG_S)

    return make


@pytest.fixture(params=["local", "shared", pytest.param("torch", marks=pytest.mark.torch)])
def store(request):
    if request.param == "local":
        return LocalStore(LONG_S)
    if request.param == "shared":
        return request.getfixturevalue("make_shared")()
    import torch.distributed

    return torch.distributed.HashStore()


@pytest.fixture
def in_threads():
    threads = []

    def start(*functions):
        new = [threading.Thread(target=function) for function in functions]
        threads.extend(new)
        for thread in new:
            thread.start()
        return new

    yield start
    for thread in threads:
        thread.join(LONG_S)
        assert not thread.is_alive()


# What all three do


def test_values_are_bytes(store):
    store.set("text", "é")
    store.set("bytes", b"\xff\x00")
    store.set("empty", "")
    assert store.get("text") == "é".encode()
    assert store.multi_get(["bytes", "empty"]) == [b"\xff\x00", b""]
    store.set("text", "other")
    assert store.get("text") == b"other"


def test_any_text_is_a_key(store):
    keys = ["", "a", "a/b", "a|", "a|=", "a|=|=", "a|+", "\n", "ключ"]
    for number, key in enumerate(keys):
        store.set(key, str(number))
    assert store.multi_get(keys) == [str(number).encode() for number in range(len(keys))]
    assert sorted(store.list_keys()) == sorted(keys)
    assert store.num_keys() == len(keys)


def test_many_are_set_at_once(store):
    store.multi_set(["a", "b"], ["1", b"2"])
    assert store.multi_get(["b", "a"]) == [b"2", b"1"]
    assert store.multi_get([]) == []


def test_numbers_are_text(store):
    assert store.add("count", 2) == 2
    assert store.add("count", -5) == -3
    assert store.get("count") == b"-3"
    assert store.add("nothing", 0) == 0
    assert store.check(["nothing"])
    store.set("set", "41")
    assert store.add("set", 1) == 42
    store.set("empty", "")
    assert store.add("empty", 1) == 1


def test_what_is_no_number_cannot_be_added_to(store):
    store.set("text", "value")
    with pytest.raises(ValueError):  # noqa: PT011 - torch's says "stoll"
        store.add("text", 1)
    with pytest.raises(TypeError):
        store.add("count", 1.5)
    assert store.get("text") == b"value"
    assert not store.check(["count"])


def test_compare_set(store):
    assert store.compare_set("key", "expected", "desired") == b"expected"
    assert not store.check(["key"])
    assert store.compare_set("key", "", "first") == b"first"
    assert store.compare_set("key", "", "second") == b"first"
    assert store.compare_set("key", "wrong", "second") == b"first"
    assert store.compare_set("key", "first", "") == b""
    assert store.get("key") == b""
    assert store.compare_set("key", b"", b"last") == b"last"


def test_append(store):
    store.append("key", "a")
    store.append("key", b"b")
    assert store.get("key") == b"ab"


def test_check_and_delete(store):
    store.set("key", "value")
    store.set("key2", "value")
    assert store.check(["key", "key2"])
    assert not store.check(["key", "other"])
    assert store.check([])
    assert store.delete_key("key")
    assert not store.delete_key("key")
    assert not store.check(["key"])
    assert store.num_keys() == 1


def test_one_key_is_no_list_of_keys(store):
    store.set("a", "value")
    for method in (store.check, store.wait, store.multi_get):
        with pytest.raises(TypeError):
            method("a")


def test_what_is_no_text_is_no_value(store):
    for value in (1, None, ["a"]):
        with pytest.raises(TypeError):
            store.set("key", value)
    assert not store.check(["key"])


def test_a_queue_is_in_order_and_apart_from_values(store):
    for item in ("1", b"2", "3"):
        store.queue_push("queue", item)
    assert store.queue_len("queue") == 3
    assert store.num_keys() == 0
    assert store.check(["queue"])
    store.wait(["queue"])
    assert not store.delete_key("queue")
    assert [store.queue_pop("queue"), store.queue_pop("queue", True), store.queue_pop("queue", block=False)] == [
        b"1",
        b"2",
        b"3",
    ]
    assert store.queue_len("queue") == 0
    assert not store.check(["queue"])
    assert store.queue_len("never used") == 0


def test_an_empty_queue_raises_where_nobody_waits(store):
    with pytest.raises(RuntimeError) as raised:
        store.queue_pop("queue", False)
    assert type(raised.value).__name__ == QueueEmptyError.__name__


def test_waits_end_with_a_runtime_error(store):
    store.set_timeout(SHORT)
    store.queue_push("queue", "item")
    for wait in (
        lambda: store.get("missing"),
        lambda: store.get("queue"),
        lambda: store.multi_get(["missing"]),
        lambda: store.wait(["missing"]),
        lambda: store.wait(["missing"], SHORT),
        lambda: store.queue_pop("missing"),
        lambda: store.barrier("barrier", 2, SHORT),
    ):
        with pytest.raises(RuntimeError):
            wait()


def test_the_timeout_is_a_timedelta(store):
    store.set_timeout(timedelta(seconds=7))
    assert store.timeout == timedelta(seconds=7)
    assert store.clone().timeout == timedelta(seconds=7)


def test_a_clone_has_the_same_keys(store):
    store.set("key", "value")
    assert store.clone().get("key") == b"value"
    assert store.has_extended_api()


def test_a_value_is_waited_for(store, in_threads):
    got = []
    waiting = in_threads(lambda: got.append(store.get("key")), lambda: got.append(store.multi_get(["key", "other"])))
    store.set("key2", "no")
    store.set("other", "b")
    store.set("key", "a")
    for thread in waiting:
        thread.join(LONG_S)
    assert sorted(got, key=str) == [[b"a", b"b"], b"a"]


def test_an_item_is_waited_for_and_nobody_else_gets_it(store, in_threads):
    got = []
    waiting = in_threads(*[lambda: got.append(store.queue_pop("queue"))] * 4)
    for number in range(4):
        store.queue_push("queue", str(number))
    for thread in waiting:
        thread.join(LONG_S)
    assert sorted(got) == [b"0", b"1", b"2", b"3"]


def test_a_barrier_holds_until_all_are_there(store, in_threads):
    passed = []
    waiting = in_threads(*[lambda: passed.append(store.barrier("barrier", 3))] * 2)
    while store.add("barrier/num_members", 0) < 2:
        time.sleep(0.001)
    assert passed == []
    store.barrier("barrier", 3)
    for thread in waiting:
        thread.join(LONG_S)
    assert passed == [None, None]
    store.barrier("barrier", 3)


def test_concurrent_changes_are_not_lost(store, in_threads):
    def change():
        for _ in range(25):
            store.add("sum", 1)
            store.append("text", "x")

    for thread in in_threads(*[change] * 4):
        thread.join(LONG_S)
    assert store.get("sum") == b"100"
    assert store.get("text") == b"x" * 100


# What only ours do


@pytest.fixture(params=["local", "shared"])
def our_store(request):
    return LocalStore(LONG_S) if request.param == "local" else request.getfixturevalue("make_shared")()


def test_a_wait_that_is_too_long_names_what_is_missing(our_store):
    our_store.set("here", "x")
    with pytest.raises(StoreTimeoutError, match=r"^not in the store after 0\.01 s: missing, too$"):
        our_store.wait(["here", "missing", "too"], timeout=0.01)
    with pytest.raises(TimeoutError):
        our_store.get("missing", timeout=timedelta(seconds=0.01))


def test_more_keys_than_values_set_nothing(our_store):
    with pytest.raises(ValueError, match="2 keys and 1 values"):
        our_store.multi_set(["a", "b"], ["1"])
    assert our_store.num_keys() == 0


def test_the_message_says_which_value_is_no_number(our_store):
    our_store.set("key", "text")
    with pytest.raises(ValueError, match=r"^the value of 'key' is not a number: b'text'$"):
        our_store.add("key", 1)


# What only the shared one does


def test_nodes_see_each_others_keys_and_not_those_of_another_prefix(make_shared):
    one, other, stranger = make_shared(), make_shared(), make_shared("run/2/")
    one.set("key", "value")
    assert other.get("key") == b"value"
    assert not stranger.check(["key"])
    assert stranger.num_keys() == 0


def test_nodes_wait_for_each_other(make_shared, in_threads):
    seen = []

    def node(rank):
        store = make_shared()
        store.set(f"node/{rank}", str(rank))
        seen.append(store.multi_get([f"node/{other}" for other in range(12)]))

    for thread in in_threads(*[lambda rank=rank: node(rank) for rank in range(12)]):
        thread.join(LONG_S)
    assert seen == [[str(rank).encode() for rank in range(12)]] * 12


def test_what_is_too_much_for_one_transaction_takes_several(make_shared):
    store = make_shared()
    keys = [f"key/{number}" for number in range(150)]
    store.multi_set(keys, keys)
    assert store.multi_get(keys) == [key.encode() for key in keys]
    large = bytes(700_000)
    store.multi_set(["a", "b", "c"], [large] * 3)
    assert store.multi_get(["a", "b", "c"]) == [large] * 3


def test_a_wait_ends_when_the_store_is_closed(make_shared, closing, in_threads):
    errors = []
    store = make_shared()

    def wait():
        try:
            store.get("key")
        except StoreUnavailableError as error:
            errors.append(str(error))

    (waiting,) = in_threads(wait)
    closing.close()
    waiting.join(LONG_S)
    assert errors == ["the store was closed"]


class Outages(MemoryStore):
    """A store that does not answer every other read."""

    def __init__(self, keyspace, reads_that_fail):
        super().__init__(keyspace)
        self.reads_that_fail = reads_that_fail

    async def get_prefix(self, prefix):
        if self.reads_that_fail:
            self.reads_that_fail -= 1
            raise StoreUnavailableError("no answer")
        return await super().get_prefix(prefix)


def test_a_wait_bears_a_short_outage(make_shared, closing):
    loop_thread = closing.enter_context(LoopThread())
    blocking = closing.enter_context(BlockingStore(Outages(KeySpace(), reads_that_fail=2), loop_thread))
    store = SharedStore(blocking, "run/")
    store.set("key", "value")
    assert store.get("key", LONG_S) == b"value"


def test_a_wait_does_not_bear_a_long_outage(make_shared, closing, monkeypatch):
    monkeypatch.setattr(shared_store, "OUTAGE_MAX_S", 0.5)
    loop_thread = closing.enter_context(LoopThread())
    blocking = closing.enter_context(BlockingStore(Outages(KeySpace(), reads_that_fail=10**9), loop_thread))
    with pytest.raises(StoreUnavailableError, match="no answer"):
        SharedStore(blocking, "run/").get("key", LONG_S)
