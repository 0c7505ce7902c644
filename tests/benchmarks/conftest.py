from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))


@pytest.fixture
def root():
    return ROOT


@pytest.fixture
def results():
    """Made up: something of every kind that tables and pages have to show."""
    from benchmarks.measuring import Measurement, Target
    from benchmarks.results import Results
    from benchmarks.topics import COLD_START, FOOTPRINT, LOGS, MACHINE, NODES, RENDEZVOUS

    met, missed = Target(0.1, at_most=True, against="torch"), Target(0.5, at_most=True)
    return Results(
        {"holdfast": "1.2.3", "processors": "2 of <Made & Up>"},
        False,
        [
            Measurement(
                "a job of 2",
                "ms",
                {"holdfast": [[80.0], [90.0], [100.0]], "torch": [[1000.0], [1800.0], [2500.0]], "least": [[40.0]] * 3},
                [met],
                topic=COLD_START,
                is_headline=True,
            ),
            Measurement("fork", "ms", {"fork": [[0.5], [0.7]]}, topic=MACHINE),
            Measurement(
                "a link is cut | mended",
                "s",
                {"holdfast": [[3.0], [3.1], [3.2]], "torch": [[20.0], [20.0]]},
                [missed],
                topic=NODES,
                ceiling=20.0,
                is_headline=True,
            ),
            *(
                Measurement(
                    f"{nodes} agents meet",
                    "s",
                    {"holdfast": [[nodes / 1000]], "torch": [[min(nodes / 5, 60.0)]], "bare": [[nodes / 1e4]]},
                    topic=RENDEZVOUS,
                    ceiling=60.0,
                    nodes=nodes,
                )
                for nodes in (16, 64, 256, 1000)
            ),
            Measurement(
                "tee",
                "MB/s",
                {"holdfast": [[90.0]], "torch": [[50.0]], "shell": [[100.0]]},
                [Target(0.7, at_most=False, against="shell"), Target(1.0, at_most=False, against="torch")],
                topic=LOGS,
            ),
            Measurement("lines lost", "lines", {"holdfast": [[0.0]], "torch": [[0.0]]}, topic=LOGS),
            Measurement("wake-ups", "per s", {"holdfast": [[0.0]], "torch": [[10.5]]}, topic=FOOTPRINT),
        ],
    )
