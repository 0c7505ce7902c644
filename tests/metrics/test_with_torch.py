"""The same program with torch's metrics and with ours."""

from __future__ import annotations

import re

import pytest

PROGRAM = """
import warnings; warnings.simplefilter("ignore")
from MODULE import *
from MODULE import MetricHandler, configure, prof, put_metric, ConsoleMetricHandler, getStream

class Show(MetricHandler):
    def emit(self, metric_data):
        print(metric_data)

class Trainer:
    @prof
    def train(self):
        pass

    @prof(group="mine")
    def fail(self):
        raise ValueError

@prof
def function():
    pass

def outer():
    @prof
    def inner():
        pass
    inner()

configure(Show())
configure(ConsoleMetricHandler(), "console")
put_metric("workers.trainer.run_total", 1)
put_metric("a", 2, "console")
getStream("other").add_value("b", 3)
Trainer().train()
try:
    Trainer().fail()
except ValueError:
    pass
function()
outer()
"""


@pytest.mark.torch
def test_shows_the_same(run_python):
    shown = []
    for module in ("torch.distributed.elastic.metrics", "holdfast.metrics"):
        ended = run_python(PROGRAM.replace("MODULE", module))
        assert ended.returncode == 0, ended.stderr
        shown.append(re.sub(r"\d+\.\d+", "TIME", re.sub(r"(?<=\.ms', value=)\d+", "DURATION", ended.stdout)))
    theirs, ours = shown
    assert ours == theirs
    assert "MetricData(timestamp=TIME, group_name='mine', name='Trainer.fail.failure', value=1)" in ours
