"""Records are as good as dataclasses, and cost no import."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import pprint
from typing import ClassVar

import pytest
from fresh_python import run_fresh

from holdfast.agent import RunResult, WorkerSpec, WorkerState
from holdfast.events import Event, EventSource, NodeState, RdzvEvent
from holdfast.launcher import LaunchConfig
from holdfast.processes import LogsDest, RunProcsResult
from holdfast.record_types import Frozen, Record
from holdfast.rendezvous import RendezvousStoreInfo


class Point(Frozen):
    unit: ClassVar[str] = "m"
    x: int
    y: int = 2


class Place(Point):
    name: str = ""


class Draft(Record):
    lines: list
    title: str = "untitled"


def test_fields_by_position_and_by_name():
    assert (Point(1).x, Point(1).y, Point(1, 5).y, Point(y=3, x=4).x) == (1, 2, 5, 4)
    assert repr(Place(1, name="home")) == "Place(x=1, y=2, name='home')"


@pytest.mark.parametrize(
    ("make", "wrong"),
    [
        (Point, r"Point\(\) needs x"),
        (lambda: Point(1, 2, 3), r"Point\(\) takes 2 arguments, not 3"),
        (lambda: Point(1, x=2), r"Point\(\) got several values for argument 'x'"),
        (lambda: Point(1, z=2), r"Point\(\) has no argument 'z'"),
    ],
)
def test_wrong_arguments(make, wrong):
    with pytest.raises(TypeError, match=wrong):
        make()


def test_equality_is_that_of_class_and_fields():
    assert Point(1) == Point(1, 2)
    assert Point(1) != Point(2)
    assert Point(1) != Place(1)
    assert len({Point(1), Point(1, 2), Point(3)}) == 2


def test_frozen_ones_do_not_change():
    with pytest.raises(AttributeError, match="Point does not change; x cannot be set"):
        Point(1).x = 2
    with pytest.raises(AttributeError, match="x cannot be deleted"):
        del Point(1).x
    assert Point(1).replace(y=7) == Point(1, 7)


def test_others_do():
    draft = Draft(["a"])
    draft.title = "b"
    assert draft == Draft(["a"], "b")
    with pytest.raises(TypeError, match="unhashable"):
        hash(draft)


@pytest.mark.parametrize("record", [Point(1), Place(1, 2, "home"), Draft(["a"], "b")])
def test_what_dataclasses_and_pickle_do_with_them(record):
    assert dataclasses.is_dataclass(record)
    assert [field.name for field in dataclasses.fields(record)] == list(vars(record))
    assert dataclasses.asdict(record) == vars(record)
    first = dataclasses.fields(record)[0].name
    assert getattr(dataclasses.replace(record, **{first: 9}), first) == 9
    assert pickle.loads(pickle.dumps(record)) == copy.deepcopy(record) == record


WITH_AN_INIT = [
    LaunchConfig(1, 2, 3, rdzv_configs={"a": 1}),
    WorkerSpec("r", 2, "handler", entrypoint="true", args=("x",)),
    RunResult(WorkerState.FAILED, return_values={0: 1}),
    Event("e", EventSource.AGENT, 1.0, {"a": 1}),
    RdzvEvent("r", "id", "text", "host", 7, NodeState.RUNNING),
    RunProcsResult({0: 1}, stdouts={0: "out"}),
    LogsDest(stdouts={0: "out"}, filtered_stderr="err"),
    RendezvousStoreInfo("host", 7),
]


@pytest.mark.parametrize("record", WITH_AN_INIT, ids=lambda record: type(record).__name__)
def test_what_torch_has_as_dataclasses_passes_for_one_here(record):
    names = [field.name for field in dataclasses.fields(record)]
    assert dataclasses.asdict(record) == {name: getattr(record, name) for name in names}
    assert dataclasses.replace(record) == pickle.loads(pickle.dumps(record)) == copy.deepcopy(record) == record
    other = dataclasses.replace(record, **{names[0]: record.state if names[0] == "state" else "other"})
    assert names[0] == "state" or (other != record and getattr(other, names[0]) == "other")
    pprint.pformat(record)


def test_patterns():
    match Place(1, 2, "home"):
        case Place(x, _, name):
            assert (x, name) == (1, "home")


def test_a_signature_for_help():
    assert str(inspect.signature(Place)) == "(x: 'int', y: 'int' = 2, name: 'str' = '')"


def test_what_is_done_once_the_fields_are_set():
    class Sorted(Record):
        lines: list

        def __post_init__(self):
            self.lines = sorted(self.lines)

    assert Sorted(["b", "a"]).lines == ["a", "b"]


def test_no_costly_import():
    ended = run_fresh("""
        import sys
        import holdfast.record_types
        print({"dataclasses", "inspect", "typing"} & set(sys.modules))
    """)
    assert (ended.stdout, ended.stderr) == ("set()\n", "")
