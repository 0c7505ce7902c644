from __future__ import annotations

import time

import pytest

from holdfast.watchdog import TimerClient, configure, expires, section
from holdfast.watchdog.fifo import RequestPipe
from holdfast.watchdog.request import parse_request


class Recorder(TimerClient):
    def __init__(self, failing=()):
        self.calls = []
        self.failing = failing

    def acquire(self, scope_id, expiration_time):
        self.calls.append(("acquire", scope_id, expiration_time))

    def release(self, scope_id):
        self.calls.append(("release", scope_id))
        if "release" in self.failing:
            raise BrokenPipeError("gone")

    @property
    def names(self):
        return [call[:2] for call in self.calls]


@pytest.fixture
def client():
    return Recorder()


@pytest.fixture(autouse=True)
def nothing_configured(monkeypatch):
    monkeypatch.setattr(section, "_configured", [])
    monkeypatch.delenv("TORCHELASTIC_TIMER_FILE", raising=False)


def test_a_section_sets_its_timer_and_releases_it(client):
    before = time.time()
    with expires(after=60, scope="s", client=client):
        assert client.names == [("acquire", "s")]
        assert before + 60 <= client.calls[0][2] <= time.time() + 60
    assert client.names == [("acquire", "s"), ("release", "s")]


def test_what_goes_wrong_inside_releases_and_comes_through(client):
    with pytest.raises(KeyError), expires(60, "s", client):
        raise KeyError
    assert client.names == [("acquire", "s"), ("release", "s")]


def test_what_goes_wrong_inside_is_not_hidden_by_a_release_that_fails():
    client = Recorder(failing=["release"])
    with pytest.raises(KeyError), expires(60, "s", client):
        raise KeyError
    with pytest.raises(BrokenPipeError), expires(60, "s", client):
        pass


def test_a_decorated_function_sets_its_timer_at_each_call(client):
    @expires(after=60, scope="s", client=client)
    def add(a, b):
        return a + b

    assert client.calls == []
    assert (add(1, b=2), add(3, b=4)) == (3, 7)
    assert client.names == [("acquire", "s"), ("release", "s")] * 2
    assert add.__name__ == "add"


def test_the_default_scope_is_the_place_in_the_program(client):
    code = compile(
        "with expires(1, client=client):\n    pass\nwith expires(1,\n    client=client):\n    pass\n",
        "train.py",
        "exec",
    )
    exec(code, {"expires": expires, "client": client})
    assert client.names[::2] == [("acquire", "train.py#1"), ("acquire", "train.py#3")]


def test_the_default_scope_of_a_decorated_function_is_its_own(client):
    code = "@expires(1, client=client)\ndef f():\n    pass\n@expires(1, client=client)\ndef g():\n    f()\n\ng()\n"
    exec(compile(code, "train.py", "exec"), {"expires": expires, "client": client})
    assert client.names == [
        ("acquire", "train.py#4"),
        ("acquire", "train.py#1"),
        ("release", "train.py#1"),
        ("release", "train.py#4"),
    ]


def test_the_configured_client_is_used_where_none_is_given(client):
    configure(Recorder())
    configure(client)
    other = Recorder()
    with expires(1, "s"), expires(1, "t", client=other):
        pass
    assert client.names == [("acquire", "s"), ("release", "s")]
    assert other.names == [("acquire", "t"), ("release", "t")]


def test_a_function_can_be_decorated_before_anything_is_configured(client):
    @expires(1, "s")
    def function():
        pass

    configure(client)
    function()
    assert client.names == [("acquire", "s"), ("release", "s")]


def test_the_agents_watchdog_needs_no_configuration(path, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_TIMER_FILE", path)
    pipe = RequestPipe(path)
    with expires(1, "s"):
        pass
    acquired, released = map(parse_request, pipe.read())
    assert (acquired.scope_id, acquired.signal) == ("s", 9)
    assert released.is_release
    pipe.close()


@pytest.mark.parametrize("value", [None, ""])
def test_without_a_watchdog_the_error_says_how_to_get_one(monkeypatch, value):
    if value is not None:
        monkeypatch.setenv("TORCHELASTIC_TIMER_FILE", value)
    entered = []
    with pytest.raises(RuntimeError, match=r"call holdfast\.watchdog\.configure\(client\) first"), expires(1):
        entered.append(True)
    assert entered == []


def test_configured_to_none_there_is_no_client(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHELASTIC_TIMER_FILE", str(tmp_path / "pipe"))
    configure(None)
    with pytest.raises(RuntimeError, match=r"call holdfast\.watchdog\.configure\(client\) first"), expires(60, "s"):
        pass
