"""A run's directory: the names of its files, and how to find the directories of a job.

```
<log_dir, or a fresh torchelastic_* in the temporary directory>
└── <run id>_<random>              one for each agent, private to its user
    ├── events.jsonl               what happened: reports are made from it
    ├── requests                   a named pipe that the running agent reads
    ├── report.html                where a page was asked for
    ├── stacks
    │   ├── <name>.txt             where the workers were, for people
    │   └── <name>.json            the same for programs
    └── attempt_<restart count>    one for each start of the processes
        ├── <local rank>
        │   ├── stdout.log         where redirected or tee'd
        │   ├── stderr.log
        │   └── error.json         where the process recorded an error
        ├── filtered_stdout.log    where duplicate filters are given
        └── filtered_stderr.log
```

The restart count does not rise when processes restart because of another node, so an attempt's directory may already
exist. It is left as it is: the next ones are `attempt_<n>.1`, `attempt_<n>.2` and so on.
"""

from __future__ import annotations

import os
import re
import time

from holdfast.files import is_regular

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

RUN_ID_MAX_CHARS = 60
"""How much of a run id its directory's name shows: with 4 bytes to a character, this fits into a file name."""

AGENTS_MAX = 4096
"""How many agents' directories inside a directory are read."""

EVENTS = "events.jsonl"
REPORT_PAGE = "report.html"

_REQUESTS = "requests"
_STACKS = "stacks"
_RANDOM_BYTES = 4


class RunDirectory:
    """The directory of one agent's part in a job. It may be missing, or be something else: see `is_run`."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path

    @classmethod
    def create(cls, log_dir: str, run_id: str) -> RunDirectory:
        """Create the directory of a new run in `log_dir`.

        Raises:
            OSError: it cannot be created.
        """
        return cls(make_random(os.path.join(os.path.abspath(log_dir), f"{_file_name(run_id)}_")))

    def __repr__(self) -> str:
        return f"RunDirectory({self.path!r})"

    @property
    def events(self) -> str:
        """The file of the run's events, one JSON object a line."""
        return os.path.join(self.path, EVENTS)

    @property
    def requests(self) -> str:
        """The named pipe that the agent reads as long as it runs."""
        return os.path.join(self.path, _REQUESTS)

    @property
    def report_page(self) -> str:
        """The default file of the report as a page."""
        return os.path.join(self.path, REPORT_PAGE)

    def stacks(self, name: str, suffix: str) -> str:
        """The file of the stacks of this name: "txt" for people, "json" for programs."""
        return os.path.join(self.path, stacks_file(name, suffix))

    def has_events(self) -> bool:
        """Whether there is anything in place of the event log, readable or not."""
        return os.path.lexists(self.events)

    def is_run(self) -> bool:
        """Whether this directory holds an event log."""
        return is_regular(self.events)

    # Writing

    def make_attempt(self, restart_count: str, ranks: Iterable[int]) -> AttemptDirectory:
        """Create a new directory for an attempt, with one for each rank in it.

        Raises:
            OSError: a directory cannot be created.
        """
        # A clean-up of the temporary directory may have removed it during a long run.
        os.makedirs(self.path, 0o700, exist_ok=True)
        attempt = AttemptDirectory(_make_next(os.path.join(self.path, f"attempt_{_file_name(restart_count)}")))
        for rank in ranks:
            os.mkdir(attempt.of_rank(rank))
        return attempt

    def make_stacks(self) -> None:
        """Create the directory for stacks, unless it exists.

        Raises:
            OSError: it cannot be created.
        """
        os.makedirs(os.path.join(self.path, _STACKS), 0o700, exist_ok=True)

    # Finding

    def siblings(self) -> list[RunDirectory]:
        """The runs beside this one with the same run id, as those of the job's other nodes are. Never raises."""
        parent, name = os.path.split(os.path.abspath(self.path))
        try:
            beside = runs_in(parent)
        except OSError:
            return []
        names = ((os.path.basename(run.path), run) for run in beside)
        return [run for other, run in names if other != name and _run_id_in(other) == _run_id_in(name)]


class AttemptDirectory:
    """The directory of one attempt in a run's directory, with the files of its processes."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path

    @property
    def filtered_stdout(self) -> str:
        return os.path.join(self.path, "filtered_stdout.log")

    @property
    def filtered_stderr(self) -> str:
        return os.path.join(self.path, "filtered_stderr.log")

    def of_rank(self, local_rank: int) -> str:
        return os.path.join(self.path, str(local_rank))

    def stdout(self, local_rank: int) -> str:
        return os.path.join(self.of_rank(local_rank), "stdout.log")

    def stderr(self, local_rank: int) -> str:
        return os.path.join(self.of_rank(local_rank), "stderr.log")

    def error_file(self, local_rank: int) -> str:
        return os.path.join(self.of_rank(local_rank), "error.json")


def runs_in(directory: str) -> list[RunDirectory]:
    """The runs whose directories are in `directory`, by name, at most `AGENTS_MAX`.

    Raises:
        OSError: `directory` cannot be read.
    """
    runs = (RunDirectory(os.path.join(directory, name)) for name in sorted(os.listdir(directory)))
    return [run for run in runs if run.is_run()][:AGENTS_MAX]


def stacks_name(why: str = "", at: float | None = None) -> str:
    """A new name for stacks, such as "hang-20260131T235959-0a1b2c3d". `at` is in Unix seconds: by default now."""
    moment = time.strftime("%Y%m%dT%H%M%S", time.localtime(at))
    return "-".join([*([why] if why else []), moment, os.urandom(_RANDOM_BYTES).hex()])


def stacks_file(name: str, suffix: str) -> str:
    """The path of stacks, relative to the run's directory."""
    return os.path.join(_STACKS, f"{name}.{suffix}")


def make_random(start: str) -> str:
    """Create a private directory whose name is `start` and eight random characters.

    Raises:
        OSError: it cannot be created.
    """
    while True:
        path = start + os.urandom(_RANDOM_BYTES).hex()
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            continue
        return path


def _run_id_in(name: str) -> str:
    """The run id in the name of a run's directory: the part that all nodes of a job share."""
    return name.rpartition("_")[0]


def _make_next(path: str) -> str:
    """Create a directory: `path`, or if that exists the first free one of `path`.1, `path`.2 ..."""
    candidate, count = path, 0
    while True:
        try:
            os.mkdir(candidate)
        except FileExistsError:
            count += 1
            candidate = f"{path}.{count}"
        else:
            return candidate


def _file_name(text: str) -> str:
    """`text` as part of a file name: no separators, nothing that a shell or a terminal would interpret."""
    return re.sub(r"[^\w.=+-]", "_", text[:RUN_ID_MAX_CHARS])
