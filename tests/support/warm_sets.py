"""Sets of workers, cold and warm, without an agent: a process starts them that has one template for many.

What a worker sees and how it ends is the doing of the keeper and the template, so programs are compared here at a
fraction of what a job costs.
"""

from __future__ import annotations

import json
import subprocess
import sys

import warm_starter
from warm_jobs import Worker, environment

END_MAX_S = 60


class Set:
    """How a set ended: the exit codes by rank, and what its workers wrote."""

    def __init__(self, codes, workers):
        self.codes = codes
        self.workers = workers


class Sets:
    """Runs sets in `directory`. `modules` are what the template imports; for None, what each program does."""

    def __init__(self, directory, modules=None, env=None, **popen):
        self.directory = directory
        self._modules = None if modules is None else list(modules)
        self._runs = 0
        self._process = subprocess.Popen(
            [sys.executable, warm_starter.__file__],
            **{
                "env": environment(**{"TMPDIR": directory, "PYTHONDONTWRITEBYTECODE": "1", **(env or {})}),
                "cwd": directory,
                "stdin": subprocess.PIPE,
                "stdout": subprocess.PIPE,
                "text": True,
                **popen,
            },
        )

    def file(self, name, source):
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
        return str(path)

    def run(self, *words, warm, nproc=1):
        """A set of ``python -u words``; `warm` is whether it is forked."""
        self._runs += 1
        logs = self.directory / f"sets.{id(self)}.{self._runs}"
        logs.mkdir()
        request = [list(map(str, words)), warm, nproc, str(logs), self._modules]
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the process that starts sets has died"
        directories = sorted(path.parent for path in logs.rglob("stdout.log"))
        return Set(json.loads(answer), [Worker(directory) for directory in directories])

    def close(self):
        self._process.communicate(timeout=END_MAX_S)
