from __future__ import annotations

import subprocess
import sys

import pytest

from holdfast.metrics import ConsoleMetricHandler, MetricData, MetricHandler, NullMetricHandler

DATA = MetricData(1700000000.5, "torchelastic", "workers.trainer.run_total", 1)


def test_data_is_a_tuple_with_names():
    assert DATA == (1700000000.5, "torchelastic", "workers.trainer.run_total", 1)
    assert (DATA.timestamp, DATA.group_name, DATA.name, DATA.value) == DATA
    assert MetricData(timestamp=DATA[0], group_name=DATA[1], name=DATA[2], value=DATA[3]) == DATA


def test_console_prints_a_line_on_stdout(capsys):
    ConsoleMetricHandler().emit(DATA)
    assert capsys.readouterr() == ("[1700000000.5][torchelastic]: workers.trainer.run_total=1\n", "")


def test_console_prints_at_once():
    code = """
import os
from holdfast.metrics import ConsoleMetricHandler, MetricData
ConsoleMetricHandler().emit(MetricData(1, "g", "n", 2))
os._exit(0)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "[1][g]: n=2\n"


def test_null_does_nothing(capfd):
    NullMetricHandler().emit(DATA)
    assert capfd.readouterr() == ("", "")


def test_a_handler_must_have_emit():
    class Deaf(MetricHandler):
        pass

    with pytest.raises(TypeError, match="emit"):
        Deaf()
