"""The table of backends: every module that treats one backend differently from another asks it."""

from __future__ import annotations

import ast
import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast.coordination.access import Access
from holdfast.coordination.store import CoordinationStore
from holdfast.doctor.examination import CHECKS
from holdfast.errors import InputError
from holdfast.rendezvous import RendezvousParameters, rendezvous_handler_registry
from holdfast.rendezvous.backends import BACKENDS, EMBEDDED, ETCD, STATIC, Backend, backend_named
from holdfast.rendezvous.elastic_settings import ElasticSettings
from holdfast.rendezvous.known_settings import COMMON_KEYS, KEYS, Times

SOURCE = Path(holdfast.__file__).parent

EVERY = pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS)
ALL = pytest.mark.parametrize("backend", [*BACKENDS.values(), STATIC], ids=[*BACKENDS, STATIC.name])


def parameters(backend, **config):
    if backend.has_given_ranks:
        return RendezvousParameters(backend.name, "127.0.0.1", "run", 2, 2, **{"rank": 1, **config})
    return RendezvousParameters(backend.name, "127.0.0.1", "run", 1, 2, **config)


@ALL
def test_an_entry_is_a_backend_that_a_job_can_name(backend):
    assert backend_named(backend.name) is backend
    assert backend.name in rendezvous_handler_registry.names()
    handler = rendezvous_handler_registry.create_handler(parameters(backend))
    assert handler.get_backend() == backend.name
    assert handler.shutdown()


@ALL
def test_the_place_of_an_entry_opens_a_store_and_says_how_another_process_reaches_it(backend):
    config = {"is_host": "false"} if "is_host" in backend.own_keys else {}
    place = ElasticSettings(parameters(backend, **config)).place

    async def opens():
        async with await place.open() as store:
            return isinstance(store, CoordinationStore)

    assert asyncio.run(opens())
    assert isinstance(place.access(), Access)
    assert place.access().may_return is place.may_return is backend.is_external


@ALL
def test_the_settings_and_the_lease_of_an_entry_are_those_of_a_job(backend):
    assert KEYS[backend.name] == COMMON_KEYS | backend.own_keys
    assert not COMMON_KEYS & backend.own_keys
    assert Times(parameters(backend)).attempts == backend.keep_alive_attempts


@EVERY
def test_the_doctor_has_the_topics_that_look_at_the_store(backend):
    assert backend.doctor_topics
    assert backend.doctor_topics <= CHECKS.keys()


@pytest.mark.parametrize(
    ("backend", "endpoint", "expected"),
    [
        (EMBEDDED, "node0", [("node0", 29400)]),
        (EMBEDDED, " [fd00::1]:7 ", [("fd00::1", 7)]),
        (ETCD, "https://etcd0, etcd1:4001,[fd00::1]", [("etcd0", 2379), ("etcd1", 4001), ("fd00::1", 2379)]),
    ],
)
def test_endpoints_are_hosts_and_ports(backend, endpoint, expected):
    assert list(backend.endpoints(endpoint)) == expected


@pytest.mark.parametrize(
    ("backend", "endpoint", "message"),
    [
        (EMBEDDED, "http://node0", "write HOST:PORT"),
        (ETCD, "etcd0,,etcd1", "write HOST:PORT"),
        (ETCD, "me:se,cret@etcd0", "it contains an @"),
    ],
)
def test_an_endpoint_that_cannot_be_read_is_bad_input(backend, endpoint, message):
    with pytest.raises(InputError, match=message) as error:
        backend.endpoints(endpoint)
    assert "cret" not in str(error.value)


@pytest.mark.parametrize("endpoint", ["a,b", "https://a:29400", "a:2379"])
def test_only_a_backend_with_members_is_told_from_its_endpoint(endpoint):
    assert ETCD.is_likely(endpoint)
    assert not EMBEDDED.is_likely(endpoint)
    assert not ETCD.is_likely("a:29400")
    assert not ETCD.is_likely("")


def test_the_table_imports_no_engine():
    code = "import sys, holdfast.rendezvous.backends; print(*(m for m in sys.modules if m.startswith('holdfast')))"
    said = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True, timeout=60)
    own = {"holdfast", "holdfast._lazy", "holdfast.rendezvous", "holdfast.rendezvous.backends"}
    assert set(said.stdout.split()) <= own


def test_a_new_backend_is_used_by_all_who_ask_the_table(monkeypatch):
    """Its place is asked for with what the settings mean: nothing else has to know its name."""
    asked = []
    place = object()

    def make_place(params, answer_timeout_s, users, environ):
        asked.append((params.get("colour"), answer_timeout_s, users, environ))
        return place

    new = Backend(
        "new",
        default_port=1234,
        own_keys=frozenset(("colour",)),
        keep_alive_attempts=6,
        make_place=make_place,
        doctor_topics=frozenset(),
    )
    monkeypatch.setitem(BACKENDS, "new", new)
    monkeypatch.setitem(KEYS, "new", COMMON_KEYS | new.own_keys)
    settings = ElasticSettings(parameters(new, colour="red"), {})
    assert settings.place is place
    assert (settings.ttl_s, asked) == (6.0, [("red", 2.0, frozenset(), {})])


def test_nobody_compares_names_of_backends():
    """A comparison with a literal name is a place that a new entry would miss."""
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Compare):
                literals = {each.value for each in ast.walk(node) if isinstance(each, ast.Constant)}
                assert not literals & set(BACKENDS), f"{path.relative_to(SOURCE)}:{node.lineno}"
