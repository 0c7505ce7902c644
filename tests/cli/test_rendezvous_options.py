"""Where a job meets, for the commands beside ``holdfast run``: each takes the same words and variables."""

from __future__ import annotations

import pytest

from holdfast.cli import doctor, forget

COMMANDS = {
    "doctor": lambda *words: doctor._parser().parse_args(words),
    "forget": lambda *words: forget._parser().parse_args(["job7", *words]),
}


@pytest.fixture(params=COMMANDS)
def parse(request):
    return COMMANDS[request.param]


@pytest.mark.parametrize("form", ["--{}", "--rdzv-{}", "--rdzv_{}"])
def test_every_spelling(parse, form):
    options = parse(form.format("endpoint"), "etcd0,etcd1", form.format("backend"), "etcd")
    assert (options.endpoint, options.backend) == ("etcd0,etcd1", "etcd")


@pytest.mark.parametrize("name", ["--rdzv-conf", "--rdzv_conf"])
def test_settings(parse, name):
    assert parse(name, "user=me").rdzv_conf == "user=me"


def test_what_is_not_given_is_taken_from_the_environment(parse, monkeypatch):
    for name, value in {"ENDPOINT": "etcd7", "BACKEND": "etcd", "CONF": "user=me"}.items():
        monkeypatch.setenv(f"PET_RDZV_{name}", value)
    options = parse()
    assert (options.endpoint, options.backend, options.rdzv_conf) == ("etcd7", "etcd", "user=me")
    assert parse("--rdzv-endpoint", "etcd8").endpoint == "etcd8"


def test_the_backend_has_a_default_of_the_command(monkeypatch):
    assert COMMANDS["forget"]().backend == "etcd"
    assert COMMANDS["doctor"]().backend is None
    # The doctor looks at machines of jobs that meet, and the variable may be of a job that does not.
    monkeypatch.setenv("PET_RDZV_BACKEND", "static")
    assert COMMANDS["doctor"]().backend is None
