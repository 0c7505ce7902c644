"""What only the etcd engine does: several members, passwords, certificates. The rest is in
test_conformance_of_*.py.
"""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import socket
import subprocess
import sys
import threading

import pytest
from etcd_cluster import Certificates, EtcdCluster

from holdfast.coordination.blocking import BlockingStore, LoopThread
from holdfast.coordination.errors import (
    LeaseLostError,
    StoreFullError,
    StoreRefusedError,
    StoreUnavailableError,
)
from holdfast.coordination.etcd import EtcdStore, _Space
from holdfast.coordination.model import (
    OPERATIONS_MAX,
    TRANSACTION_MAX_BYTES,
    VALUE_MAX_BYTES,
    Created,
    Delete,
    Modified,
    Put,
    Transaction,
    absent,
)
from holdfast.errors.tree import InputError
from holdfast.rendezvous.shared_store import SharedStore

LONG_S = 120.0

pytestmark = pytest.mark.etcd


def run(story, timeout_s=LONG_S):
    async def tell():
        async with asyncio.timeout(timeout_s):
            return await story

    return asyncio.run(tell())


async def put(store, key, value=b"", lease=0):
    return (await store.transact(Transaction((), (Put(key, value, lease),)))).revision


async def insist(request):
    """Ask until there is an answer: what an agent does while a cluster elects."""
    while True:
        try:
            return await request()
        except StoreUnavailableError:
            await asyncio.sleep(0.05)


@pytest.fixture
def three(tmp_path):
    with EtcdCluster(3, tmp_path / "etcd") as cluster:
        yield cluster


@pytest.fixture
def one(tmp_path):
    with EtcdCluster(1, tmp_path / "etcd") as cluster:
        yield cluster


# The loss of a member


async def increment(store, writer, times):
    """Add to a sum that all writers share, each time exactly once: an answer that is lost is looked up."""
    for number in range(1, times + 1):
        while True:
            try:
                mine = await store.get(f"done/{writer}")
                if mine is not None and int(mine.value) == number:
                    break
                total = await store.get("sum")
                count, modified = (int(total.value), total.modified) if total else (0, 0)
                guards = (Modified("sum", modified), Modified(f"done/{writer}", mine.modified if mine else 0))
                puts = (Put("sum", b"%d" % (count + 1)), Put(f"done/{writer}", b"%d" % number))
                await store.transact(Transaction(guards, puts))
            except StoreUnavailableError:
                await asyncio.sleep(0.05)


def test_no_effect_is_lost_or_doubled_when_the_leader_is_lost(three):
    async def story():
        stores = [EtcdStore(three.endpoints[n:] + three.endpoints[:n]) for n in range(3)]
        writers = [asyncio.create_task(increment(store, n, 30)) for n, store in enumerate(stores)]
        watch = stores[0].watch("sum", 1)
        async for changes in watch:
            if int(changes.changes[0].entry.value) >= 10:
                break
        await asyncio.to_thread(three.kill, three.leader())
        await asyncio.gather(*writers)
        assert (await insist(lambda: stores[0].get("sum"))).value == b"90"
        for store in stores:
            await store.close()

    run(story())


def test_a_watch_breaks_with_its_member_and_is_made_anew_from_a_snapshot(three):
    async def story():
        leader = three.leader()
        endpoints = three.endpoints[leader:] + three.endpoints[:leader]
        async with EtcdStore(endpoints) as store, EtcdStore(endpoints[1:]) as other:
            await put(store, "key/1")
            watch = store.watch("key/", 1)
            await anext(watch)
            three.kill(leader)
            with pytest.raises(StoreUnavailableError, match=r"etcd at 127\.\d+\.\d+\.\d+:2379"):
                await anext(watch)
            assert [changes async for changes in watch] == []
            await insist(lambda: put(other, "key/2"))
            snapshot = await insist(lambda: store.get_prefix("key/"))
            assert [entry.key for entry in snapshot.entries] == ["key/1", "key/2"]
            revision = await insist(lambda: put(other, "key/3"))
            watch = store.watch("key/", snapshot.revision + 1)
            assert (await anext(watch)).revision == revision

    run(story())


def test_a_lease_that_is_kept_alive_outlives_the_leader(three):
    async def story():
        leader = three.leader()
        async with EtcdStore(three.endpoints[leader:] + three.endpoints[:leader]) as store:
            lease = await store.grant(10)
            created = await put(store, "key", b"", lease.id)
            three.kill(leader)
            loop = asyncio.get_running_loop()
            end = loop.time() + 1.2 * lease.ttl_s
            while loop.time() < end:
                assert await insist(lambda: store.keep_alive(lease.id)) == lease.ttl_s
                await asyncio.sleep(1)  # the passing of time is what is tested
            entry = await insist(lambda: store.get("key"))
            assert entry.created == created
            await store.revoke(lease.id)
            with pytest.raises(LeaseLostError):
                await store.keep_alive(lease.id)

    run(story())


def test_a_member_without_a_leader_is_not_trusted(three):
    async def story():
        async with EtcdStore(three.endpoints[:1], answer_timeout_s=1) as store:
            await put(store, "key")
            watch = store.watch("key", 1)
            await anext(watch)
            three.kill(1)
            three.kill(2)
            with pytest.raises(StoreUnavailableError):
                await anext(watch)
            for request in (
                lambda: store.get("key"),
                lambda: store.get_prefix(""),
                lambda: store.transact(Transaction((absent("key"),), ())),
                lambda: put(store, "key"),
                lambda: store.grant(10),
            ):
                with pytest.raises(StoreUnavailableError, match=r"has no leader|does not answer") as raised:
                    await request()
                assert not raised.value.is_gone
            await asyncio.to_thread(three.restart, 1)
            assert (await insist(lambda: store.get("key"))).value == b""

    run(story())


def test_a_request_waits_until_there_is_a_leader(three):
    async def story():
        async with EtcdStore(three.endpoints[:1], answer_timeout_s=60) as store:
            await put(store, "key", b"kept")
            watch = store.watch("key", 1)
            await anext(watch)
            three.kill(1)
            three.kill(2)
            with pytest.raises(StoreUnavailableError):
                await anext(watch)  # so it has noticed
            request = asyncio.create_task(store.get("key"))
            await asyncio.to_thread(three.restart, 1)
            assert (await request).value == b"kept"

    run(story())


def test_a_member_that_comes_back_is_used_again(one):
    async def story():
        async with EtcdStore(one.endpoints) as store:
            await put(store, "key", b"kept")
            one.kill(0)
            with pytest.raises(StoreUnavailableError, match="does not answer"):
                await store.get("key")
            await asyncio.to_thread(one.restart, 0)
            assert (await insist(lambda: store.get("key"))).value == b"kept"

    run(story())


def stop(member):
    """Until no thread of it runs any more: the signal alone is only a request."""
    os.kill(member.process.pid, signal.SIGSTOP)
    os.waitpid(member.process.pid, os.WUNTRACED)


def test_a_member_that_is_silent_is_given_up_with_all_that_is_under_way(one):
    async def story():
        (member,) = one.members
        async with EtcdStore(one.endpoints) as store, EtcdStore(one.endpoints) as other:
            revision = await put(store, "key")
            watch = store.watch("key", revision)
            await anext(watch)
            await other.get("key")
            requests = [store.get("key") for _ in range(3)]
            stop(member)
            try:
                answers = await asyncio.gather(*requests, return_exceptions=True)
                with pytest.raises(StoreUnavailableError):
                    await anext(watch)
            finally:
                os.kill(member.process.pid, signal.SIGCONT)
            assert [type(answer) for answer in answers] == [StoreUnavailableError] * 3
            assert (await store.get("key")).modified == revision

    run(story())


def test_a_request_that_its_caller_cancels_is_cancelled_and_the_member_stays(one):
    async def story():
        (member,) = one.members
        async with EtcdStore(one.endpoints, answer_timeout_s=60) as store:
            revision = await put(store, "key")
            stop(member)
            try:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await store.get("key")
            finally:
                os.kill(member.process.pid, signal.SIGCONT)
            assert (await store.get("key")).modified == revision

    run(story())


@pytest.mark.parametrize("in_use", ["leader", "follower"])
def test_leases_and_watches_outlive_a_leader_that_falls_silent(three, in_use):
    """A follower that passes requests on to a stopped leader gives no answer either, and is kept all the same."""

    async def story():
        leader = three.leader()
        order = [leader, (leader + 1) % 3, (leader + 2) % 3]
        if in_use == "follower":
            order = [*order[1:], leader]
        endpoints = [three.endpoints[number] for number in order]
        async with EtcdStore(endpoints) as store, EtcdStore(endpoints) as other:
            lease = await store.grant(30)
            revision = await put(store, "key")
            watch = store.watch("key", revision)
            await anext(watch)
            member = store._connection._member
            stop(three.members[leader])
            assert await insist(lambda: store.keep_alive(lease.id)) == 30
            if in_use == "follower":
                assert store._connection._member is member
                await insist(lambda: put(other, "key"))
                await anext(watch)
            else:
                with pytest.raises(StoreUnavailableError):
                    await anext(watch)
                assert (await insist(lambda: store.get("key"))).modified == revision
            assert store._connection._member.endpoint != three.endpoints[leader]

    run(story())


def test_a_member_that_has_found_a_leader_again_is_kept(three):
    """That another one is left for good has a test among those of whole jobs."""

    async def story():
        follower = (three.leader() + 1) % 3
        endpoints = three.endpoints[follower:] + three.endpoints[:follower]
        async with EtcdStore(endpoints) as store:
            revision = await put(store, "key")
            watch = store.watch("key", revision)
            await anext(watch)
            member = store._connection._member
            assert member.endpoint == endpoints[0]
            member.can_serve = False  # as when it has just said so
            await put(store, "key")
            assert store._connection._member is member  # for it has one again
            assert (await anext(watch)).revision == revision + 1

    run(story())


def test_the_next_endpoint_is_tried_when_one_cannot_be_reached(etcd):
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.create_server(("127.0.0.1", 0)) as closed:
        endpoints = [closed.getsockname(), silent.getsockname(), *etcd.endpoints]
        closed.close()

        async def story():
            async with EtcdStore(endpoints) as store:
                assert await store.get("key") is None

        run(story())


def test_nobody_there_is_one_clear_line():
    with socket.create_server(("127.0.0.1", 0)) as closed:
        host, port = closed.getsockname()

    async def story():
        async with EtcdStore([(host, port)]) as store:
            for _ in range(2):
                with pytest.raises(StoreUnavailableError) as raised:
                    await store.get("key")
                assert str(raised.value).startswith(f"etcd at {host}:{port} does not answer: ")
                assert "\n" not in str(raised.value)
                assert not raised.value.is_gone

    run(story())


# A store that is not ours, or not what it was


def test_a_cluster_that_was_replaced_is_refused(one):
    async def story():
        async with EtcdStore(one.endpoints) as store:
            lease = await store.grant(30)
            await put(store, "key")
            await asyncio.to_thread(one.replace, 0, "another")
            for request in (
                lambda: store.get("key"),
                lambda: store.keep_alive(lease.id),
                lambda: put(store, "key"),
            ):
                with pytest.raises(StoreRefusedError, match=r"belongs to the cluster .*etcd was replaced or restored"):
                    await insist(request)
            with pytest.raises(StoreUnavailableError, match="belongs to the cluster"):
                await anext(store.watch("key", 1))  # whoever watches reads again, and gets the refusal then

    run(story())


def test_a_cluster_that_was_wiped_is_refused_and_its_leases_are_not_merely_lost(one):
    async def story():
        async with EtcdStore(one.endpoints) as store:
            lease = await store.grant(30)
            for _ in range(3):
                await put(store, "key")
            await asyncio.to_thread(one.replace, 0)
            for request in (
                lambda: store.keep_alive(lease.id),
                lambda: store.get("key"),
                lambda: store.get_prefix(""),
                lambda: put(store, "key"),
            ):
                with pytest.raises(StoreRefusedError, match="etcd has lost data: it is at revision 1 and was at 4"):
                    await insist(request)
            async with EtcdStore(one.endpoints) as other:
                assert await other.get("key") is None  # nothing more was written

    run(story())


def test_endpoints_of_two_clusters_are_not_mixed(one, etcd):
    async def story():
        async with EtcdStore([*one.endpoints, *etcd.endpoints]) as store, EtcdStore(etcd.endpoints) as other:
            await put(store, "mixed", b"ours")
            lease = await store.grant(30)
            await put(other, "mixed", b"theirs")
            one.kill(0)
            for request in (
                lambda: store.get("mixed"),
                lambda: store.keep_alive(lease.id),
                lambda: put(store, "mixed"),
            ):
                with pytest.raises(StoreUnavailableError, match=one.members[0].host):
                    await request()
            await asyncio.to_thread(one.restart, 0)
            assert (await insist(lambda: store.get("mixed"))).value == b"ours"
            assert (await other.get("mixed")).value == b"theirs"

    run(story())


# No space


def test_a_full_etcd_renews_reads_and_deletes_and_says_what_to_do(tmp_path):
    with EtcdCluster(1, tmp_path / "etcd", options=["--quota-backend-bytes=4194304"]) as cluster:

        async def story():
            async with EtcdStore(cluster.endpoints) as store:
                lease = await store.grant(30)
                await put(store, "key", b"value", lease.id)
                await asyncio.to_thread(cluster.fill)
                for request in (lambda: put(store, "key"), lambda: store.grant(30)):
                    with pytest.raises(StoreFullError) as raised:
                        await request()
                    for words in (
                        "NOSPACE",
                        "etcdctl compact",
                        "etcdctl defrag",
                        "alarm disarm",
                        "--quota-backend-byte",
                    ):
                        assert words in str(raised.value)
                assert await store.keep_alive(lease.id) == 30
                entry = await store.get("key")
                watch = store.watch("key", entry.modified + 1)
                await store.revoke(lease.id)
                assert (await anext(watch)).changes[0].entry is None
                assert (await store.transact(Transaction((), (Delete("key"),)))).succeeded

        run(story())


# Keys


def test_a_key_of_somebody_else_that_is_no_text_is_read_and_deleted_like_any_other(etcd):
    prefix = next(etcd.prefixes)
    key = base64.b64encode(prefix.encode() + b"node/\xff\xfe").decode()
    etcd.post(etcd.members[0], "kv/put", {"key": key, "value": ""})

    async def story():
        async with EtcdStore(etcd.endpoints, prefix=prefix) as store:
            (entry,) = (await store.get_prefix("node/")).entries
            assert await store.get(entry.key) == entry
            assert (await store.transact(Transaction((), (Delete(entry.key),)))).succeeded
            assert not (await store.get_prefix("")).entries

    asyncio.run(story())


def test_two_prefixes_are_two_stores(etcd):
    async def story():
        async with (
            EtcdStore(etcd.endpoints, prefix="/two/a/") as one,
            EtcdStore(etcd.endpoints, prefix="/two/b/") as other,
            EtcdStore(etcd.endpoints, prefix="") as everything,
        ):
            revision = await put(one, "key", b"1")
            assert await other.get("key") is None
            assert (await everything.get("/two/a/key")).created == revision
            assert "/two/a/key" in [entry.key for entry in (await everything.get_prefix("")).entries]

    run(story())


@pytest.mark.parametrize(
    ("prefix", "first", "end"),
    [("a", b"/a", b"/b"), ("", b"/", b"0"), ("\x7f", b"/\x7f", b"/\x80"), ("ÿ", b"/\xc3\xbf", b"/\xc3\xc0")],
)
def test_a_prefix_ends_before_the_next_one(prefix, first, end):
    assert _Space("/").range(prefix) == (first, end)


def test_no_prefix_at_all_is_everything():
    assert _Space("").range("") == (b"\0", b"\0")


def test_etcd_takes_all_that_the_model_allows(etcd):
    async def story():
        async with EtcdStore(etcd.endpoints) as store:
            many = tuple(Put(f"many/{n}", b"") for n in range(OPERATIONS_MAX))
            assert (await store.transact(Transaction((), many))).succeeded
            rest = TRANSACTION_MAX_BYTES - VALUE_MAX_BYTES - len("large/alarge/b")
            large = (Put("large/a", bytes(VALUE_MAX_BYTES)), Put("large/b", bytes(rest)))
            assert (await store.transact(Transaction((), large))).succeeded
            with pytest.raises(ValueError, match=f"more than {OPERATIONS_MAX} operations"):
                await store.transact(Transaction((), (*many, Put("one more", b""))))
            with pytest.raises(ValueError, match=f"more than {TRANSACTION_MAX_BYTES} bytes"):
                await store.transact(Transaction((), (*large, Put("x", b""))))

    run(story())


def test_compares_alone_are_as_fresh_as_a_read(etcd):
    async def story():
        async with EtcdStore(etcd.endpoints) as store:
            revision = await put(store, "fresh")
            outcome = await store.transact(Transaction((Created("fresh", revision),), ()))
            assert outcome.succeeded
            assert not (await store.transact(Transaction((Created("fresh", 1),), ()))).succeeded

    run(story())


def test_a_ttl_is_whole_seconds_and_not_shorter(etcd):
    async def story():
        async with EtcdStore(etcd.endpoints) as store:
            assert (await store.grant(7.2)).ttl_s == 8.0
            for ttl_s in (0.0, 1e6):
                with pytest.raises(ValueError, match="a lease of"):
                    await store.grant(ttl_s)

    run(story())


def test_the_address_from_which_etcd_is_reached(etcd):
    async def story():
        async with EtcdStore(etcd.endpoints) as store:
            assert store.local_address().startswith("127.")
            await store.get("key")
            assert store.local_address().startswith("127.")
        async with EtcdStore([("no.such.host.invalid", 1)]) as store:
            assert store.local_address() is None

    run(story())


# Passwords


async def refusal(endpoints, **options):
    async with EtcdStore(endpoints, **options) as store:
        with pytest.raises(StoreRefusedError) as raised:
            await store.get("key")
        watch = store.watch("key", 1)
        with pytest.raises((StoreRefusedError, StoreUnavailableError)):
            await anext(watch)
        return str(raised.value)


def test_passwords(one):
    one.require_passwords("right")

    async def story():
        text = await refusal(one.endpoints, user="root", password="wrong")
        assert text.endswith(":2379 refuses the login; check the user and the password")
        text = await refusal(one.endpoints)
        assert text.endswith(":2379 refuses the login; it needs a user and a password")
        async with EtcdStore(one.endpoints, user="root", password="right") as store:
            revision = await put(store, "key")
            watch = store.watch("key", 1)
            assert (await anext(watch)).revision == revision
            lease = await store.grant(10)
            assert await store.keep_alive(lease.id) == 10

    run(story())


def test_a_password_is_given_again_when_etcd_has_forgotten_it(one):
    one.require_passwords("right")

    async def story():
        async with EtcdStore(one.endpoints, user="root", password="right") as store:
            await put(store, "key")
            token = store._connection._token
            await asyncio.to_thread(one.post, one.members[0], "auth/disable", None, token)
            await asyncio.to_thread(one.post, one.members[0], "auth/enable")
            revision = await put(store, "key")
            assert (await anext(store.watch("key", revision))).revision == revision

    run(story())


def test_another_member_takes_the_same_token_when_the_leader_falls_silent(three):
    """To get a new token takes a leader."""
    leader = three.leader()
    three.require_passwords("right")

    async def story():
        endpoints = three.endpoints[leader:] + three.endpoints[:leader]
        async with EtcdStore(endpoints, user="root", password="right") as store:
            lease = await store.grant(30)
            revision = await put(store, "key", b"", lease.id)
            stop(three.members[leader])
            assert await insist(lambda: store.keep_alive(lease.id)) == 30
            assert (await insist(lambda: store.get("key"))).modified == revision

    run(story())


def test_a_password_that_nobody_asks_for_is_no_error(etcd):
    async def story():
        async with EtcdStore(etcd.endpoints, user="root", password="any") as store:
            assert await store.get("key") is None

    run(story())


# Certificates


def test_certificates(tmp_path):
    with EtcdCluster(1, tmp_path / "etcd", with_tls=True) as cluster:
        ours = cluster.certificates
        strangers = Certificates(tmp_path / "strangers", ["127.0.0.1"])
        identity = {"cert": ours.client_cert, "cert_key": ours.client_key}

        async def story():
            async with EtcdStore(cluster.endpoints, ca_cert=ours.ca_cert, **identity) as store:
                revision = await put(store, "key")
                assert (await anext(store.watch("key", 1))).revision == revision
            text = await refusal(cluster.endpoints, ca_cert=strangers.ca_cert, **identity)
            assert ": no secure connection; check the certificates (ca_cert, ssl_cert, ssl_cert_key in " in text
            assert "\n" not in text
            # Whether a server that hangs up is one that wants a certificate cannot be told.
            for options in ({}, {"ca_cert": ours.ca_cert}):
                async with EtcdStore(cluster.endpoints, **options) as store:
                    with pytest.raises((StoreRefusedError, StoreUnavailableError), match="etcd at"):
                        await store.get("key")

        run(story())


def test_what_grpc_says_on_stderr_is_not_ours(tmp_path):
    """A failed handshake is an error of ours, and gRPC's own lines about it are for nobody."""
    with EtcdCluster(1, tmp_path / "etcd", with_tls=True) as cluster:
        strangers = Certificates(tmp_path / "strangers", ["127.0.0.1"])
        program = f"""if True:
            import asyncio, os
            from holdfast.coordination.etcd import EtcdStore
            async def story():
                async with EtcdStore({cluster.endpoints}, ca_cert={strangers.ca_cert!r}) as store:
                    await store.get("key")
            try:
                asyncio.run(story())
            except Exception as error:
                print(type(error).__name__, "GRPC_VERBOSITY" in os.environ)
        """
        command = [sys.executable, "-W", "error", "-c", program]
        environment = {name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"}
        ran = subprocess.run(command, capture_output=True, text=True, timeout=LONG_S, check=False, env=environment)
        assert (ran.stdout, ran.stderr) == ("InsecureError False\n", "")


# A thread of its own


def test_it_works_in_a_loop_thread(etcd):
    with LoopThread() as loop_thread, BlockingStore(EtcdStore(etcd.endpoints), loop_thread) as blocking:
        store = SharedStore(blocking, "thread/")
        assert [store.add("count", 1) for _ in range(3)] == [1, 2, 3]
        waiting = threading.Thread(target=lambda: store.set("answer", store.get("question")))
        waiting.start()
        store.set("question", b"value")
        assert store.get("answer") == b"value"
        waiting.join()
        assert blocking.local_address().startswith("127.")


# What it is made from


@pytest.mark.parametrize(
    ("endpoints", "options", "text"),
    [
        ([], {}, "no endpoint"),
        ([("h", 1)], {"cert": "/dev/null"}, "a certificate needs its key"),
        ([("h", 1)], {"ca_cert": "/no/such/file"}, r"'/no/such/file' cannot be read: No such file"),
        ([("127.0.0.1", 1), ("h", 1)], {"user": "u", "password": "p"}, "the password would be sent to h in plain text"),
    ],
)
def test_what_does_not_fit_together_is_refused_at_once(endpoints, options, text):
    with pytest.raises(InputError, match=text):
        EtcdStore(endpoints, **options)


def test_an_etcd_that_has_answered_is_not_taken_for_one_with_tls(tmp_path):
    """A member that ends in the middle of something breaks the connection in the same way."""
    with EtcdCluster(1, tmp_path / "etcd") as cluster:

        async def story():
            async with EtcdStore(cluster.endpoints, answer_timeout_s=1.0) as store:
                await store.get("key")
                cluster.kill(0)
                with pytest.raises(StoreUnavailableError) as raised:
                    await store.get("key")
                assert "TLS" not in str(raised.value)

        run(story())
