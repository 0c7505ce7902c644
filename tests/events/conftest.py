from __future__ import annotations

import functools

import pytest
from fresh_python import run_fresh

from holdfast.events import destinations


@pytest.fixture(autouse=True)
def _fresh_handlers(monkeypatch):
    """No test sees a handler, or a level, of another."""
    monkeypatch.delenv("LOGLEVEL", raising=False)
    monkeypatch.setattr(destinations, "_handlers", dict(destinations._handlers))


@pytest.fixture
def run_python():
    """Run Python code in a process of its own, with additions to the environment and to the module path."""
    return functools.partial(run_fresh, without=("LOGLEVEL",))
