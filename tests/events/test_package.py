from __future__ import annotations

import inspect
import pkgutil

import pytest
from costly_imports import COSTLY_IMPORTS

import holdfast.events
from holdfast.events import Event, EventLog, RdzvEvent, construct_and_record_rdzv_event, record, record_rdzv_event


def test_no_module_hides_behind_a_public_name():
    modules = {module.name for module in pkgutil.iter_modules(holdfast.events.__path__)}
    assert not modules & set(holdfast.events.__all__)


def test_the_defaults_import_nothing_heavy(run_python):
    code = f"""
        import sys
        before = set(sys.modules)
        import holdfast.events as events
        for name in events.__all__:
            getattr(events, name)
        events.record(events.Event("name", events.EventSource.AGENT))
        events.construct_and_record_rdzv_event("run", "joined", events.NodeState.FAILED)
        print(sorted({COSTLY_IMPORTS!r} & (set(sys.modules) - before)))
    """
    ended = run_python(code)
    assert ended.stdout == "[]\n", ended.stderr


@pytest.mark.parametrize(
    ("function", "parameters"),
    [
        (Event, ["name", "source", "timestamp", "metadata"]),
        (
            RdzvEvent,
            [
                *("name", "run_id", "message", "hostname", "pid", "node_state"),
                *("master_endpoint", "rank", "local_id", "error_trace"),
            ],
        ),
        (record, ["event", "destination"]),
        (record_rdzv_event, ["event"]),
        (
            construct_and_record_rdzv_event,
            [
                *("run_id", "message", "node_state", "name", "hostname", "pid"),
                *("master_endpoint", "local_id", "rank"),
            ],
        ),
        (EventLog, ["path", "destination"]),
    ],
)
def test_the_parameters_are_the_agreed_ones(function, parameters):
    assert list(inspect.signature(function).parameters) == parameters
