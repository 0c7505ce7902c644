"""Jobs through the command line, cold and warm, to be compared."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

DEADLINE_S = 120
NOT_OURS = ("PET_", "TORCHELASTIC_", "HOLDFAST_", "PYTHON")
NOT_OURS_EITHER = {"OMP_NUM_THREADS", "LOGLEVEL", "CUDA_VISIBLE_DEVICES", "NO_COLOR"}
SUPPORT = os.path.dirname(os.path.abspath(__file__))
IMPORTED = "the template has imported"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def parent_of(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def environment(**added):
    """The environment of the tests without what would steer a job or an interpreter. None takes a variable away."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(NOT_OURS) and name not in NOT_OURS_EITHER and name not in added
    }
    return {**kept, **{name: str(value) for name, value in added.items() if value is not None}}


class Worker:
    """What a worker wrote, and its error file."""

    def __init__(self, directory):
        self.stdout = _read(directory / "stdout.log")
        self.stderr = _read(directory / "stderr.log")
        error = directory / "error.json"
        self.error = json.loads(error.read_text()) if error.exists() else None


class Ended:
    """How a job ended. `workers` are those of the last attempt, by rank."""

    def __init__(self, code, stdout, stderr, logs):
        self.code = code
        self.stdout = stdout
        self.stderr = stderr
        self.logs = logs
        self.attempts = [
            [Worker(path) for path in sorted(attempt.iterdir()) if path.is_dir()]
            for run in logs.iterdir()
            for attempt in sorted(run.glob("attempt_*"), key=_number_of)
        ]
        self.workers = self.attempts[-1] if self.attempts else []

    @property
    def starts(self):
        """Which attempts began warm, as far as the agent says."""
        return self.stderr.count(IMPORTED)

    @property
    def exit_codes(self):
        return sorted(set(re.findall(r"exitcode\s*: (-?\d+)", self.stderr)))

    @property
    def remarks(self):
        """What the agent says of warm and cold starts."""
        return [
            line.partition("holdfast.warm.template: ")[2]
            for line in self.stderr.splitlines()
            if "warm.template" in line
        ]


class Jobs:
    """Runs jobs in `directory`, whose processes end with the test."""

    def __init__(self, directory):
        self.directory = Path(directory)
        self.env = {}
        self._runs = 0
        self._processes = []

    def file(self, name, source):
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
        return str(path)

    def start(self, *words, options=(), nproc=1, env=None, logs=None, terminal=False, **popen):
        """A job that runs: ``holdfast run options words``. On a `terminal`, all that it writes counts as stderr."""
        self._runs += 1
        logs = logs or self.directory / f"logs.{self._runs}"
        logs.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "holdfast", "run", "--nproc-per-node", nproc, "--log-dir", logs]
        master = -1
        if terminal:
            master, slave = pty.openpty()
            popen = {**popen, **dict.fromkeys(("stdin", "stdout", "stderr"), slave)}
        process = subprocess.Popen(
            [*map(str, command), *map(str, options), *map(str, words)],
            env=environment(TMPDIR=self.directory, LOGLEVEL="INFO", **{**self.env, **(env or {})}),
            **{
                "cwd": self.directory,
                "text": True,
                "stdin": subprocess.DEVNULL,
                "stdout": subprocess.PIPE,
                "stderr": subprocess.PIPE,
                "start_new_session": True,
                **popen,
            },
        )
        if terminal:
            os.close(slave)
        process.logs, process.terminal = logs, master
        self._processes.append(process)
        return process

    def wait(self, process):
        if process.terminal >= 0:
            stdout, stderr = "", _read_terminal(process.terminal)
            process.wait(DEADLINE_S)
        else:
            stdout, stderr = process.communicate(timeout=DEADLINE_S)
        return Ended(process.returncode, stdout, stderr, process.logs)

    def run(self, *words, options=("-r", "3"), **how):
        return self.wait(self.start(*words, options=options, **how))

    def cold(self, *words, options=("-r", "3"), **how):
        ended = self.run(*words, options=options, **how)
        assert IMPORTED not in ended.stderr
        return ended

    def warm(self, *words, options=("-r", "3"), **how):
        ended = self.run(*words, options=("--warm", *options), **how)
        assert len(ended.remarks) == 1, ended.stderr
        assert ended.remarks[0].startswith(IMPORTED)
        return ended

    def both(self, *words, options=("-r", "3"), **how):
        """The job cold and warm, at the same time."""
        cold = self.start(*words, options=options, **how)
        warm = self.start(*words, options=("--warm", *options), **how)
        cold, warm = self.wait(cold), self.wait(warm)
        assert IMPORTED not in cold.stderr
        assert [remark.startswith(IMPORTED) for remark in warm.remarks] == [True], warm.stderr
        return cold, warm

    def close(self):
        for process in self._processes:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            if process.terminal >= 0:
                os.close(process.terminal)


def _number_of(attempt):
    """Of a directory: the restart count, and after a dot how often nodes have come or gone."""
    return tuple(map(int, attempt.name.removeprefix("attempt_").split(".")))


def _read_terminal(fd):
    """All that is written to it until nobody has it open."""
    text = b""
    with contextlib.suppress(OSError):
        while data := os.read(fd, 65536):
            text += data
    return text.decode(errors="replace")


def _read(path):
    return path.read_text(errors="surrogateescape") if path.exists() else ""
