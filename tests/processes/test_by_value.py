"""Functions that no other process could import, as in a notebook: the main module has no file."""

from __future__ import annotations

import functools
import linecache
import pickle
import subprocess
import sys

import functions
import pytest

from holdfast.processes.by_value import ByValue, needs_value

SESSION = """
import functools, sys
from holdfast.launcher import LaunchConfig, elastic_launch

class Point:
    def __init__(self, x):
        self.x = x

scale = 3

def scaled(point):
    return Point(scale * point.x)

def launch(function, *args):
    config = LaunchConfig(1, 1, 2, start_method=sys.argv[1], max_restarts=0)
    return elastic_launch(config, function)(*args)
"""


def session(script, *args):
    return subprocess.run(
        [sys.executable, "-c", SESSION + script, *args], capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.parametrize("start_method", ["spawn", "forkserver", "fork"])
def test_a_function_of_a_session_its_classes_and_what_it_uses(start_method):
    shown = session(
        """
values = launch(scaled, Point(5))
print({rank: point.x for rank, point in values.items()}, all(type(point) is Point for point in values.values()))
print(launch(lambda x: x + scale, 1))
print(launch(functools.partial(scaled, Point(7)))[0].x)
""",
        start_method,
    )
    assert shown.stdout == "{0: 15, 1: 15} True\n{0: 4, 1: 4}\n21\n", shown.stderr


def test_without_cloudpickle_the_error_says_what_to_install():
    shown = session("sys.modules['cloudpickle'] = None; launch(scaled, Point(5))", "spawn")
    assert shown.returncode == 1
    assert "install holdfast with its extra notebook (cloudpickle)" in shown.stderr


def test_a_failure_in_a_cell_is_shown_with_its_traceback():
    shown = session("def fail(): raise ValueError('on purpose')\nlaunch(fail)", "spawn")
    assert "ValueError: on purpose" in shown.stderr


def test_what_has_a_name_is_not_sent_by_value():
    assert not needs_value(functions.double)
    assert not needs_value(functools.partial(functions.double, 1))
    assert not needs_value(print)
    assert needs_value(lambda: 1)
    assert needs_value(functools.partial(lambda x: x, 1))

    def inner():
        pass

    assert needs_value(inner)


CELL = """
import linecache
source = '''# the first cell
def fail(number):
    denominator = number - number  # zero
    return number / denominator  # the line of the cell
'''
linecache.cache["<cell 1>"] = (len(source), None, source.splitlines(keepends=True), "<cell 1>")
linecache.cache["<cell 2>"] = (5, None, ["# other\\n"], "<cell 2>")
exec(compile(source, "<cell 1>", "exec"))
"""


@pytest.mark.parametrize("start_method", ["spawn", "forkserver", "fork"])
def test_a_traceback_shows_the_lines_of_the_cell(start_method):
    shown = session(CELL + "launch(fail, 3)", start_method)
    assert 'File "<cell 1>", line 4, in fail\n' in shown.stderr
    assert "return number / denominator  # the line of the cell" in shown.stderr.rpartition("Root Cause")[2]


def test_only_the_cells_that_the_function_is_from_are_sent(monkeypatch):
    namespace = {"__name__": "__main__"}
    exec(compile("def own(): pass", "<cell 1>", "exec"), namespace)
    for name in ("<cell 1>", "<cell 2>"):
        monkeypatch.setitem(linecache.cache, name, (1, None, [f"# {name}\n"], name))
    pickled = pickle.dumps(ByValue(namespace["own"]))
    assert b"# <cell 1>" in pickled
    assert b"# <cell 2>" not in pickled
    monkeypatch.delitem(linecache.cache, "<cell 1>")
    pickle.loads(pickled)
    assert linecache.getline("<cell 1>", 1) == "# <cell 1>\n"
