"""Ways to fail as small records, and the runs of real jobs that fail so, with the verdict that the job left."""

from __future__ import annotations

import glob
import json
import os
import signal
import subprocess
import sys
import textwrap

from signpost import Signpost

DEADLINE_S = 60
"""How long a job may take, which mostly is well under a second."""

SCRIPT = "train.py"

_STEERS_A_JOB = ("PET_", "TORCHELASTIC_", "HOLDFAST_", "TORCH_", "PYTHON_EXEC")


class Way:
    """One way to fail: a program and what holdfast is to say of it.

    Attributes:
        name: the test's name.
        script: the text of train.py. Files and named pipes of `files` lie beside it, in the working directory.
        kind, rank, exception: of the verdict's cause.
        text: what its message has, in this order.
        where: what the place in the user's code has; "" if there is none.
        victims: how many others failed because of it.
        exit_code: of the job.
        workers: how many there are.
        options: of `holdfast run`.
        words: what is run instead of the script.
        outside: done from outside as soon as the script has written its pid to the pipe `post`.
    """

    def __init__(
        self,
        name,
        script,
        kind,
        *text,
        rank=0,
        exception="",
        where="",
        victims=0,
        exit_code=1,
        workers=1,
        options=(),
        words=(SCRIPT,),
        files=(),
        environment=(),
        outside=None,
    ):
        self.name = name
        self.script = textwrap.dedent(script).lstrip("\n")
        self.kind = kind
        self.text = text
        self.rank = rank
        self.exception = exception
        self.where = where
        self.victims = victims
        self.exit_code = exit_code
        self.workers = workers
        self.options = options
        self.words = words
        self.files = {name: textwrap.dedent(text).lstrip("\n") for name, text in dict(files).items()}
        self.environment = dict(environment)
        self.outside = outside

    def __repr__(self):
        return self.name


class Outcome:
    """How a job ended, and the lines of its event log."""

    def __init__(self, exit_code, stdout, stderr, lines):
        self.exit_code = exit_code
        self.stdout = stdout
        self.stderr = stderr
        self.lines = lines

    def details(self, name):
        """What all events of this name say."""
        events = map(json.loads, self.lines)
        return [event["metadata"]["details"] for event in events if event["name"] == name]

    @property
    def verdict(self):
        """The last one; None if there is none."""
        return next(reversed(self.details("holdfast.verdict")), None)

    def __repr__(self):
        return f"exit code {self.exit_code}\n{self.stdout}\n{self.stderr}\n{''.join(self.lines)}"


class FailingJobs:
    """Runs jobs in a directory. `close` ends what still runs."""

    def __init__(self, directory):
        self.directory = str(directory)
        self.log_dir = os.path.join(self.directory, "logs")
        self._post = Signpost(os.path.join(self.directory, "post"))
        self._started = []

    def run(self, way, *, command=list):
        """Run a job that fails in this way, as what `command` makes of the words of its command line."""
        self.prepare(way)
        process = self._start(command(self.words(way)), way.environment)
        if way.outside is not None:
            way.outside(self._post.pids(1)[0])
        stdout, stderr = process.communicate(timeout=DEADLINE_S)
        return Outcome(process.returncode, stdout, stderr, self._lines())

    def prepare(self, way):
        os.mkfifo(self._path("between"))
        for name, text in {**way.files, SCRIPT: way.script}.items():
            os.makedirs(os.path.dirname(self._path(name)), exist_ok=True)
            with open(self._path(name), "w") as file:
                file.write(text)
                os.fchmod(file.fileno(), 0o755)

    def words(self, way):
        options = ["--log-dir", self.log_dir, "--nproc-per-node", str(way.workers), *way.options]
        return [sys.executable, "-m", "holdfast", "run", *options, *way.words]

    def close(self):
        for process in self._started:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.communicate(timeout=DEADLINE_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.communicate()
        self._post.close()

    def _start(self, words, environment):
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(_STEERS_A_JOB)}
        process = subprocess.Popen(
            words,
            cwd=self.directory,
            env={**inherited, "TMPDIR": self.directory, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        self._started.append(process)
        return process

    def _lines(self):
        """What the event logs of the runs have."""
        lines = []
        for path in glob.glob(os.path.join(glob.escape(self.log_dir), "*", "events.jsonl")):
            with open(path) as file:
                lines += file
        return lines

    def _path(self, name):
        return os.path.join(self.directory, name)
