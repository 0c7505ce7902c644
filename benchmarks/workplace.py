"""What a run of the benchmark works with: its size, its files, and a process for each system under test."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from multiprocessing.connection import Pipe
from typing import Any, Self

ANSWER_MAX_S = 120
"""A round that takes longer hangs."""

_HERE = os.path.dirname(os.path.abspath(__file__))


class BenchmarkError(Exception):
    """A measurement could not be made."""


class Workplace:
    """A temporary directory that is gone at the end, and whether the run is a quick one."""

    def __init__(self, *, quick: bool) -> None:
        self.quick = quick
        self._directory = tempfile.TemporaryDirectory(prefix="holdfast-bench-", ignore_cleanup_errors=True)

    def path(self, name: str) -> str:
        return os.path.join(self._directory.name, name)

    def fresh(self, name: str) -> str:
        """An empty directory; what was in it is gone."""
        path = self.path(name)
        shutil.rmtree(path, ignore_errors=True)
        os.mkdir(path)
        return path

    def require_bytes(self, needed: int) -> None:
        free = shutil.disk_usage(self._directory.name).free
        if free < needed:
            raise BenchmarkError(
                f"{self._directory.name} has room for {free / 1e9:.1f} GB and this needs {needed / 1e9:.1f} GB; "
                "set TMPDIR to a directory with more, or use --quick"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._directory.cleanup()


class Subject:
    """A process with one system, ready to be asked for rounds of one scenario."""

    def __init__(self, system: str, scenario: str, workplace: Workplace, console: str = os.devnull) -> None:
        self._title = f"{system} in scenario {scenario}"
        self._messages = workplace.path(f"{system}-{scenario}.messages")
        self._connection, theirs = Pipe()
        with open(console, "wb") as stdout, open(self._messages, "wb") as stderr, theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.subject", system, scenario, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                pass_fds=[theirs.fileno()],
                cwd=os.path.dirname(_HERE),
            )

    def ask(self, *args: object) -> Any:
        """One round: what the scenario's `subject` returns for these."""
        self._connection.send(args)
        return self._answer()

    def _answer(self) -> Any:
        try:
            if self._connection.poll(ANSWER_MAX_S):
                return self._connection.recv()
            problem = f"did not answer within {ANSWER_MAX_S} s"
        except EOFError:
            problem = f"ended, with exit code {self._process.wait()}"
        with open(self._messages, errors="replace") as messages:
            raise BenchmarkError(f"{self._title} {problem}; it wrote:\n{messages.read().strip() or 'nothing'}")

    def __enter__(self) -> Self:
        """Wait for its imports, so that they are not at work when somebody else is measured."""
        try:
            self._answer()
        except BaseException:
            self.__exit__(BaseException)
            raise
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._connection.close()
        if kind is not None:
            self._process.kill()
        self._process.wait(ANSWER_MAX_S)


def script(name: str) -> str:
    """The path of a program of this directory."""
    return os.path.join(_HERE, name)
