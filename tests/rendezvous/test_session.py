"""A node's session in a real store: what it tells, what it writes, and how it ends."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from holdfast.coordination.client import EmbeddedStore
from holdfast.coordination.errors import StoreUnavailableError
from holdfast.coordination.keyspace import KeySpace
from holdfast.coordination.model import Put, Transaction
from holdfast.coordination.server import EmbeddedServer
from holdfast.rendezvous import RendezvousClosedError, RendezvousParameters, RendezvousTimeoutError, session
from holdfast.rendezvous.elastic_settings import ElasticSettings
from holdfast.rendezvous.ended_runs import note_end
from holdfast.rendezvous.fencing import Fencing
from holdfast.rendezvous.handover import Broke, Ended, Left, Reached, Recorded, Started, Stopped
from holdfast.rendezvous.hosting import free_port
from holdfast.rendezvous.reasons import Reasons
from holdfast.rendezvous.records import End, EndKind, Failure, Keys, Node, encode
from holdfast.rendezvous.session import Session

DEADLINE_S = 60.0
KEYS = Keys("run")
GIVEN_KEYS = Keys("static")
NODE = Node("node7", "", 0, "default", 1)
END = End(EndKind.CLOSED, "somebody closed it")


class Told:
    """A session, and the events that it tells. It waits for nothing but them."""

    def __init__(self, backend="c10d", endpoint=None, nodes=(1, 2), run_id="run", **config):
        self.endpoint = endpoint or f"127.0.0.1:{free_port('127.0.0.1')}"
        params = RendezvousParameters(backend, self.endpoint, run_id, *nodes, **{"last_call_timeout": 0.01, **config})
        self.settings = ElasticSettings(params, {})
        self.events = asyncio.Queue()
        place = self.settings.place
        self.session = Session(
            self.settings,
            Reasons("run", place.name, place.may_return, self.settings.limits.join_timeout_s),
            Fencing(lambda: None),
            tell=self.events.put_nowait,
            start_in_loop=asyncio.ensure_future,
            made_s=None,
        )

    async def seek(self):
        await self.session.seek(replace(NODE, rank=self.settings.rank), self.settings.limits)

    async def told(self, kind):
        """The next event of that kind, and nothing else on the way."""
        event = await self.events.get()
        assert type(event) is kind, event
        return event


def run(story, **options):
    async def tell():
        told = Told(**options)
        async with asyncio.timeout(DEADLINE_S):
            try:
                return await story(told)
            finally:
                await told.session.end(0.0)

    return asyncio.run(tell())


def given_rank(rank, **others):
    """One of two nodes that were told their ranks."""
    meeting_port = free_port("127.0.0.1")  # the one beside another free port may be taken
    return {"backend": "static", "nodes": (2, 2), "rank": rank, "meeting_port": meeting_port, **others}


def test_a_node_that_seeks_a_place_reaches_the_store_and_starts():
    async def story(told):
        await told.seek()
        await told.told(Reached)
        started = await told.told(Started)
        (member,) = started.generation.members
        assert (member.host, member.address, started.rank) == ("node7", "127.0.0.1", 0)
        assert started.generation.master_port == started.hosting.port
        assert await told.session.count_waiting() == 0

    run(story)


def test_what_the_agent_says_before_the_node_takes_part_is_not_heard():
    async def story(told):
        told.session.succeed()
        told.session.announce_leave("SIGTERM")
        told.session.close_job(END)
        told.session.fail(Failure("", "node7", 0, 0, 1, 1, "no more data", 0))
        await told.session.write_end(END)
        assert told.events.empty()

    run(story)


def test_a_failure_is_of_this_node_unless_it_names_another_one():
    async def story(told):
        await told.seek()
        await told.told(Reached)
        started = await told.told(Started)
        told.session.fail(Failure("", "node7", 0, 0, 4711, 1, "no more data", 0))
        assert "no more data" in (await told.told(Stopped)).reason
        nodes = await told.session.store.get_prefix(KEYS.group)
        own = started.generation.members[0].node.encode()
        assert any(b"no more data" in entry.value and own in entry.value for entry in nodes.entries)

    run(story)


def test_a_node_that_is_done_hears_that_it_is_recorded_and_then_of_the_end():
    async def story(told):
        await told.seek()
        await told.told(Reached)
        started = await told.told(Started)
        assert await told.session.missing(started.generation) == ["node7 (rank 0)"]
        told.session.succeed()
        assert await told.told(Recorded) == Recorded(1)
        assert (await told.told(Ended)).end.kind is EndKind.SUCCEEDED
        left = await told.told(Left)
        assert (left.end.kind, left.is_recorded, left.has_joined) == (EndKind.SUCCEEDED, True, True)

    run(story)


def test_the_end_is_written_once_with_and_without_the_member():
    async def story(told):
        await told.seek()
        await told.told(Reached)
        await told.told(Started)
        await told.session.write_end(END)
        await told.session.write_end(End(EndKind.FAILED, "too late"))
        assert (await told.told(Ended)).end == END
        assert (await told.told(Stopped)).reason == END.reason
        told.session.close_job(End(EndKind.FAILED, "too late"))
        assert (await told.told(Left)).end == END

    run(story)


def test_one_request_for_stacks_at_a_time_and_only_in_its_round():
    async def story(told):
        await told.seek()
        await told.told(Reached)
        await told.told(Started)
        assert not await told.session.ask_for_stacks(7, "request", "another round")
        assert await told.session.ask_for_stacks(1, "request", "a person asks")
        assert not await told.session.ask_for_stacks(1, "another", "a person asks")
        await told.session.stacks_gathered()
        assert await told.session.store.get(KEYS.stacks) is None

    run(story)


@pytest.mark.parametrize(
    ("backend", "named", "trouble"),
    [("c10d", "no store is running at ENDPOINT", "could not be reached"), ("etcd", "etcd at ENDPOINT", "refused")],
)
def test_a_store_that_is_not_there_yet_is_named_once(backend, named, trouble, caplog, monkeypatch):
    monkeypatch.setattr(session, "SAY_AFTER_S", 0.0)

    async def story(told):
        await told.seek()
        return told.endpoint, (await told.told(Broke)).error

    config = {"is_host": "false"} if backend == "c10d" else {}
    endpoint, error = run(story, backend=backend, join_timeout=0.5, **config)
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith(f"run 'run': {named.replace('ENDPOINT', endpoint)}")
    assert said.endswith("; still trying")
    assert said.count(f"at {endpoint}") == 1
    assert isinstance(error, RendezvousTimeoutError)
    assert "could not be reached for 0.5 s: " in str(error)
    assert trouble in str(error)
    assert str(error).count(f"etcd at {endpoint}") == (backend == "etcd")


def test_an_agent_that_comes_after_the_end_does_not_begin_the_job_anew():
    async def story(told):
        note_end("run", told.settings.place.name, END)
        await told.seek()
        error = (await told.told(Broke)).error
        assert isinstance(error, RendezvousClosedError)
        assert "run 'run' ended before this agent could join it (closed: somebody closed it)" in str(error)

    run(story)


def test_a_bug_that_ends_the_loop_is_told_and_the_store_is_closed():
    async def story(told):
        bug = SystemExit("a plug-in has left")
        await told.session.die(bug)
        assert (await told.told(Broke)).error is bug
        await told.seek()
        await told.told(Reached)
        await told.told(Started)
        await told.session.die(bug)
        assert (await told.told(Broke)).error is bug
        told.session.let_go()  # as the bridge does
        host, _, port = told.endpoint.rpartition(":")
        async with EmbeddedStore(host, int(port), token=b"", users=frozenset()) as client:
            with pytest.raises(StoreUnavailableError, match="no store is running"):
                await client.get("x")

    async def tell():
        async with asyncio.timeout(DEADLINE_S):
            await story(Told())

    asyncio.run(tell())


# Nodes that were told their ranks


class OldServer(EmbeddedServer):
    """The server of a job that has ended. `left` is set when a client has looked and has left."""

    is_over = False

    def __init__(self):
        keyspace = KeySpace()
        keyspace.transact(Transaction((), (Put(GIVEN_KEYS.end, encode(END)),)))
        super().__init__(keyspace)
        self.left = asyncio.Event()

    def ended(self, connection):
        super().ended(connection)
        self.left.set()

    async def close(self):
        self.is_over = True
        await super().close()


async def serve(server, place):
    await server.start("127.0.0.1", int(place.name.rpartition(":")[2]))


def test_the_store_of_the_job_before_is_not_taken_for_that_of_this_one():
    async def story(told):
        old, new = OldServer(), EmbeddedServer()
        await serve(old, told.settings.place)
        seeking = asyncio.ensure_future(told.seek())
        await old.left.wait()
        await old.close()
        await serve(new, told.settings.place)
        try:
            await seeking
            await told.told(Reached)
        finally:
            await told.session.end(0.0)
            await new.close()

    run(story, **given_rank(1))


def test_the_store_of_the_job_before_may_go_while_it_is_looked_at(monkeypatch):
    get = EmbeddedStore.get

    async def story(told):
        old, new = OldServer(), EmbeddedServer()
        await serve(old, told.settings.place)

        async def get_late(store, key):
            await store.connected()
            if not old.is_over:
                await old.close()
                await serve(new, told.settings.place)
            return await get(store, key)

        monkeypatch.setattr(EmbeddedStore, "get", get_late)
        try:
            await told.seek()
            await told.told(Reached)
        finally:
            await told.session.end(0.0)
            await old.close()
            await new.close()

    run(story, **given_rank(1, join_timeout=20))


def test_a_store_of_an_ended_job_that_stays_is_named_when_time_is_up():
    async def story(told):
        old = OldServer()
        await serve(old, told.settings.place)
        try:
            await told.seek()
            error = (await told.told(Broke)).error
        finally:
            await old.close()
        assert isinstance(error, RendezvousTimeoutError)
        assert str(error) == f"{told.settings.place.name} still serves a job that has ended"

    run(story, **given_rank(1, join_timeout=0.3))


def test_a_job_that_was_here_before_is_no_reason_not_to_begin():
    async def story(told):
        note_end("run", told.settings.place.name, END)
        await told.seek()
        await told.told(Reached)

    run(story, **given_rank(0))


def test_nodes_with_given_ranks_have_the_masters_address_as_they_were_told_it():
    async def story(first):
        place = {"endpoint": first.endpoint, "meeting_port": first.settings.place.name.rpartition(":")[2]}
        second = Told(**given_rank(1, run_id="another", **place))
        try:
            await asyncio.gather(first.seek(), second.seek())
            ours, theirs = [(await told.told(Reached), await told.told(Started))[1] for told in (first, second)]
            assert ours.generation == theirs.generation
            assert (ours.rank, theirs.rank) == (0, 1)
            assert f"{ours.generation.master_address}:{ours.generation.master_port}" == first.endpoint
            assert (f"127.0.0.1:{ours.hosting.port}", theirs.hosting) == (first.endpoint, None)
        finally:
            await second.session.end(0.0)

    run(story, **given_rank(0))
