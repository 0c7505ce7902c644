"""How long a function's return value of 100 MB takes to its parent.

One process, spawned. In all: from the call of `start_processes` to the value in the parent's hands; torch's child
imports torch on the way, whatever the function is. The return alone: from the function's last line on. That is also
measured with a torch that is asked to poll every millisecond, where the transport is compared and not the poll.

The limit is to pickle the value into memory and out of it; for the whole, a bare interpreter that makes it and pickles
it into a pipe.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from benchmarks.measuring import Measurement, Rounds, Target, in_turns
from benchmarks.subject import HOLDFAST, POLL_PERIOD_S, TORCH, rank_environments
from benchmarks.topics import VALUES
from benchmarks.value_worker import produce, value
from benchmarks.workplace import Subject

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.workplace import Workplace

VALUE_BYTES = 100_000_000
SHORT_PERIOD_S = 0.001

_EAGER_TORCH = "eager torch"
_PICKLE = "pickle in memory"
_PIPE = "pickle from a pipe"
_NO_SLOWER = Target(1.0, at_most=True, against=TORCH)


def measure(workplace: Workplace) -> list[Measurement]:
    with Subject(HOLDFAST, "value", workplace) as holdfast, Subject(TORCH, "value", workplace) as torch:
        everybody: dict[str, Callable[[int], dict[str, float]]] = {
            HOLDFAST: lambda _: holdfast.ask(workplace.fresh("value"), POLL_PERIOD_S),
            TORCH: lambda _: torch.ask(workplace.fresh("value"), POLL_PERIOD_S),
            _PICKLE: lambda _: {"return": _pickled_ms()},
            _PIPE: lambda _: {"total": _piped_ms()},
        }
        if not workplace.quick:
            everybody[_EAGER_TORCH] = lambda _: torch.ask(workplace.fresh("value"), SHORT_PERIOD_S)
        answers = in_turns(1 if workplace.quick else 5, everybody)

    def samples(what: str, torch: str, *others: str) -> dict[str, Rounds]:
        columns = {HOLDFAST: HOLDFAST, TORCH: torch, **{name: name for name in others}}
        return {column: [[answer[what]] for answer in answers[name]] for column, name in columns.items()}

    size = f"{VALUE_BYTES // 10**6} MB value"
    in_all = samples("total", TORCH, _PIPE)
    alone = samples("return", TORCH, _PICKLE)
    rows = [
        Measurement(f"{size}: start → in hand", "ms", in_all, [_NO_SLOWER], topic=VALUES, is_headline=True),
        Measurement(f"{size}: function's end → in hand", "ms", alone, [_NO_SLOWER], topic=VALUES),
    ]
    if _EAGER_TORCH in answers:
        eager = samples("return", _EAGER_TORCH, _PICKLE)
        rows.append(Measurement(f"{size}: … torch polling every ms", "ms", eager, [_NO_SLOWER], topic=VALUES))
    return rows


def subject(system: Any, directory: str, period_s: float) -> dict[str, float]:
    """Milliseconds in all, and of the return alone."""
    clock = os.path.join(directory, "clock")
    logs_specs = system.DefaultLogsSpecs(log_dir=os.path.join(directory, "logs"))
    began = time.monotonic_ns()
    context = system.start_processes("value", produce, {0: (VALUE_BYTES, clock)}, rank_environments(1), logs_specs)
    result = context.wait(-1, period_s)
    in_hand = time.monotonic_ns()
    assert result.return_values[0] == value(VALUE_BYTES), "the value came back changed"
    with open(clock) as file:
        returned = int(file.read())
    return {"total": (in_hand - began) / 1e6, "return": (in_hand - returned) / 1e6}


def _pickled_ms() -> float:
    made = value(VALUE_BYTES)
    began = time.monotonic_ns()
    pickle.loads(pickle.dumps(made, protocol=pickle.HIGHEST_PROTOCOL))
    return (time.monotonic_ns() - began) / 1e6


def _piped_ms() -> float:
    program = (
        "import pickle, sys\n"
        f"pickle.dump(b'holdfast' * ({VALUE_BYTES} // 8), sys.stdout.buffer, protocol={pickle.HIGHEST_PROTOCOL})"
    )
    began = time.monotonic_ns()
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", program], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        made = pickle.load(child.stdout)
    took_ms = (time.monotonic_ns() - began) / 1e6
    assert len(made) == VALUE_BYTES
    return took_ms
