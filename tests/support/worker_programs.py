"""A program as Python runs it, and the same program as a worker, to be compared."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from holdfast.processes import DefaultLogsSpecs, Std, start_processes

DEADLINE_S = 120


class Ended:
    """How a program ended, and what it left."""

    def __init__(self, code, stdout, stderr, error_file=None, page=None):
        self.code = code
        self.stdout = stdout
        self.stderr = stderr
        self.error = json.loads(error_file.read_text()) if error_file and error_file.exists() else None
        self.page = page

    @property
    def seen(self):
        """What everybody sees of it."""
        return {"code": self.code, "stdout": _text(self.stdout), "stderr": _text(self.stderr)}

    @property
    def message(self):
        return self.error["message"]["message"]

    @property
    def traceback(self):
        return self.error["message"]["extraInfo"]["py_callstack"]

    @property
    def thread(self):
        return self.error["message"]["extraInfo"].get("thread")

    @property
    def stacks(self):
        return Path(f"{self.page}.stacks").read_text()


def _text(output):
    """Addresses are another each time, and so is what a busy machine makes multiprocessing's tracker say at the end."""
    output = re.sub(r"^.*resource_tracker\.py:\d+: UserWarning: .*\n(?:  .*\n)?", "", output, flags=re.MULTILINE)
    return re.sub(r"0x[0-9a-f]{6,}", "0x...", output)


class Programs:
    """Runs programs in `directory`, whose environment is this process's and `env`."""

    def __init__(self, directory, env=None):
        self.directory = Path(directory)
        self.env = env or {}
        self._runs = 0

    def file(self, name, source):
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
        return str(path)

    def plain(self, *words, python=sys.executable):
        """``python -u words...``"""
        self._runs += 1
        out, err = (self.directory / f"plain.{self._runs}.{name}" for name in ("out", "err"))
        with open(out, "ab") as stdout, open(err, "ab") as stderr:
            code = subprocess.call(
                [python, "-u", *words],
                env={**os.environ, **self.env},
                stdout=stdout,
                stderr=stderr,
                cwd=self.directory,
                timeout=DEADLINE_S,
            )
        return Ended(code, out.read_text(), err.read_text())

    def start(self, *words, command=sys.executable, **env):
        """A worker that runs, and its page."""
        self._runs += 1
        page = str(self.directory / f"page.{self._runs}")
        logs = DefaultLogsSpecs(str(self.directory / "logs"), redirects=Std.ALL)
        env = {"HOLDFAST_WORKER_PAGE": page, **self.env, **env}
        before = os.getcwd()
        os.chdir(self.directory)
        try:
            return start_processes("set", command, {0: words}, {0: env}, logs, shutdown_timeout=60), page
        finally:
            os.chdir(before)

    def worker(self, *words, command=sys.executable, **env):
        """The same as a worker, as ``holdfast run`` starts it."""
        context, page = self.start(*(("-u", *words) if command == sys.executable else words), command=command, **env)
        with context:
            result = context.wait(DEADLINE_S)
        assert result is not None, f"{words} is not at its end"
        return Ended(
            result.failures[0].exitcode if result.failures else 0,
            Path(result.stdouts[0]).read_text(),
            Path(result.stderrs[0]).read_text(),
            Path(context.logs.error_files[0]),
            page,
        )
