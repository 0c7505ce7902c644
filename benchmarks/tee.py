"""How fast four workers print 200 MB each, with a tee to the console and to files.

The worker is a Python script that prints lines of 100 bytes. Its output is a file, so Python buffers it in blocks:
the fastest way to print, and so the one in which a tee costs most. The console is a file on the same disk. A pipe to
`cat > /dev/null` would cost about as much, but would leave nothing to check: here every byte of the console is
compared with the workers' files after the clock has stopped, and those with what the workers were to print.

The limit is the shell's redirection of the same four workers to files, with no console. Throughput counts the bytes
that the workers print. It ends in the page cache, for all.

Two things that would favour one over the other are the same for all. Every worker leads a session, as both systems
have it: the kernel shares processors between sessions first, so that on a busy machine four workers in one session
get less than four in four. And every round begins with a disk that has nothing left to write of the last one.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.measuring import Measurement, Target, in_turns
from benchmarks.printed import prefix, wrong_lines_in_file, wrong_lines_on_console
from benchmarks.printing_worker import LINE_BYTES
from benchmarks.subject import HOLDFAST, POLL_PERIOD_S, TORCH, rank_environments
from benchmarks.topics import LOGS
from benchmarks.workplace import Subject, script

if TYPE_CHECKING:
    from benchmarks.workplace import Workplace

WORKERS = 4
WHOLE_BYTES = 200_000_000
QUICK_BYTES = 20_000_000

_SHELL = "plain shell"
_NAME = "tee"
_TARGETS = (Target(0.7, at_most=False, against=_SHELL), Target(1.0, at_most=False, against=TORCH))
_NOTHING_LOST = Target(0.0, at_most=True)


class Printed(NamedTuple):
    """One round: how fast it was, and how many lines are not where they should be, in files and on the console."""

    megabytes_per_s: float
    wrong_lines: int


def measure(workplace: Workplace) -> list[Measurement]:
    size = QUICK_BYTES if workplace.quick else WHOLE_BYTES
    lines = size // LINE_BYTES
    workplace.require_bytes(WORKERS * lines * (2 * LINE_BYTES + len(prefix(_NAME, 0))))
    answers = in_turns(
        1 if workplace.quick else 3,
        {
            HOLDFAST: lambda _: _with_tee(HOLDFAST, lines, workplace),
            _SHELL: lambda _: _redirected(lines, workplace),
            TORCH: lambda _: _with_tee(TORCH, lines, workplace),
        },
    )
    speed = {name: [[each.megabytes_per_s] for each in rounds] for name, rounds in answers.items()}
    # Of all rounds together: a median would forgive a round.
    wrong = {name: [[float(sum(each.wrong_lines for each in answers[name]))]] for name in (HOLDFAST, TORCH)}
    title = f"{WORKERS} workers print {size // 10**6} MB each"
    return [
        Measurement(title, "MB/s", speed, _TARGETS, topic=LOGS, is_headline=True),
        Measurement(f"{title}: lines lost or torn", "lines", wrong, [_NOTHING_LOST], topic=LOGS, is_headline=True),
    ]


def _with_tee(system: str, lines: int, workplace: Workplace) -> Printed:
    directory = _clean_directory(workplace)
    console = os.path.join(directory, "console")
    with Subject(system, "tee", workplace, console) as subject:
        seconds, files = subject.ask(lines, directory)
    wrong_lines = sum(wrong_lines_in_file(path, rank, lines) for rank, path in enumerate(files))
    wrong_lines += wrong_lines_on_console(console, _NAME, files)
    workplace.fresh("tee")
    return Printed(_megabytes(lines) / seconds, wrong_lines)


def subject(system: Any, lines: int, directory: str) -> tuple[float, list[str]]:
    """Seconds from the start to all lines in the files and out of this process's stdout, and those files."""
    logs_specs = system.DefaultLogsSpecs(log_dir=os.path.join(directory, "logs"), tee=system.Std.OUT)
    args = {rank: (script("printing_worker.py"), str(rank), str(lines)) for rank in range(WORKERS)}
    began = time.monotonic()
    context = system.start_processes(_NAME, sys.executable, args, rank_environments(WORKERS), logs_specs)
    result = context.wait(-1, POLL_PERIOD_S)
    sys.stdout.flush()
    seconds = time.monotonic() - began
    assert not result.is_failed(), result
    return seconds, [result.stdouts[rank] for rank in range(WORKERS)]


def _redirected(lines: int, workplace: Workplace) -> Printed:
    directory = _clean_directory(workplace)
    files = [os.path.join(directory, str(rank)) for rank in range(WORKERS)]
    worker = shlex.join(["setsid", sys.executable, script("printing_worker.py")])
    started = [f"{worker} {rank} {lines} > {shlex.quote(path)} &" for rank, path in enumerate(files)]
    began = time.monotonic()
    subprocess.run(["sh", "-c", " ".join([*started, "wait"])], check=True)
    seconds = time.monotonic() - began
    wrong_lines = sum(wrong_lines_in_file(path, rank, lines) for rank, path in enumerate(files))
    assert wrong_lines == 0, "the shell lost lines"
    workplace.fresh("tee")
    return Printed(_megabytes(lines) / seconds, wrong_lines)


def _clean_directory(workplace: Workplace) -> str:
    directory = workplace.fresh("tee")
    os.sync()
    return directory


def _megabytes(lines: int) -> float:
    return WORKERS * lines * LINE_BYTES / 1e6
