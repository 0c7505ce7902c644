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

A clean-up of the temporary directory may remove a run's directory during a long run, and another user may take the name
then. So an agent checks before each use that the directory is still the one it made. If it is not, the run continues in
a new directory with a new name; see `RunDirectory.ensure`.
"""

from __future__ import annotations

import errno
import os
import re
import time
from itertools import islice

from holdfast.files import directory_identity, is_below_another_owner, is_regular, other_owner

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from holdfast.files import DirectoryIdentity

RUN_ID_MAX_CHARS = 60
"""How much of a run id its directory's name shows: with 4 bytes to a character, this fits into a file name."""

AGENTS_MAX = 4096
"""How many agents' directories inside a directory are read."""

EVENTS = "events.jsonl"
REPORT_PAGE = "report.html"

_REQUESTS = "requests"
_STACKS = "stacks"
_RANDOM_BYTES = 4
_PRIVATE = 0o700
_BY_UMASK = 0o777
_TEMPORARY_DIRECTORIES = ("/tmp", "/var/tmp")  # noqa: S108 - the directory made there has a random name and mode 0700


class RunDirectory:
    """The directory of one agent's part in a job. It may be missing, or be something else: see `is_run`.

    `path` changes when an agent's own directory is lost, and `on_move` is called with the lost one; see `ensure`.
    """

    __slots__ = ("_origin", "on_move", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.on_move: Callable[[str], object] | None = None
        self._origin: _Origin | None = None

    @classmethod
    def create(cls, log_dir: str, run_id: str, *, is_temporary: bool = False) -> RunDirectory:
        """Create the directory of a new run in `log_dir`. `is_temporary` says that `make_temporary` made `log_dir`.

        Raises:
            OSError: it cannot be created.
        """
        run = cls("")
        run._make(os.path.abspath(log_dir), run_id, is_temporary=is_temporary)
        return run

    def _make(self, log_dir: str, run_id: str, *, is_temporary: bool) -> None:
        path = make_random(os.path.join(log_dir, f"{_file_name(run_id)}_"))
        self._origin = _Origin(path, log_dir, run_id, is_temporary=is_temporary)
        self.path = path

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

    def ensure(self) -> None:
        """Check that this is still the directory that `create` made. If it is not, continue in a new one, and say so.

        The new one is beside the old one if `log_dir` was given and is still there, or can be made again. It is in a
        new temporary directory if another user has taken the place.

        Raises:
            OSError: no new directory can be made; or `create` did not make this one, and it is missing, a link, or
                another user's.
        """
        origin = self._origin
        if origin is None:
            if directory_identity(self.path) is None or other_owner(self.path) is not None:
                raise FileNotFoundError(errno.ENOENT, "it is missing or not ours", self.path)
            return
        if directory_identity(self.path) == origin.identity:
            return
        log_dir, is_temporary = origin.next_place()
        lost = self.path
        self._make(log_dir, origin.run_id, is_temporary=is_temporary)
        from holdfast.errors.notice import notice

        notice(f"the run's directory {lost!r} was removed or replaced; the run continues in {self.path!r}")
        if self.on_move is not None:
            self.on_move(lost)

    def make_attempt(self, restart_count: str, ranks: Iterable[int]) -> AttemptDirectory:
        """Create a new directory for an attempt, with one for each rank in it.

        Their mode follows the umask if the user chose `log_dir`: a user who opens the run's directory to others shares
        its logs. In the temporary directory they are private.

        Raises:
            OSError: a directory cannot be created.
        """
        self.ensure()
        mode = _PRIVATE if self._origin is None or self._origin.is_temporary else _BY_UMASK
        attempt = AttemptDirectory(_make_next(os.path.join(self.path, f"attempt_{_file_name(restart_count)}"), mode))
        for rank in ranks:
            os.mkdir(attempt.of_rank(rank), mode)
        return attempt

    def make_stacks(self) -> None:
        """Create the directory for stacks, unless it exists.

        Raises:
            OSError: it cannot be created.
        """
        self.ensure()
        path = os.path.join(self.path, _STACKS)
        try:
            os.mkdir(path, _PRIVATE)
        except FileExistsError:
            if directory_identity(path) is None:
                raise

    # Finding

    def siblings(self) -> list[RunDirectory]:
        """The runs beside this one with the same run id, as those of the job's other nodes are. Never raises.

        Runs of other users are left out: they are not of this job, and anyone can make them in a shared directory.
        """
        parent, name = os.path.split(os.path.abspath(self.path))
        try:
            owner = os.stat(self.path).st_uid
            others = [other for other in sorted(os.listdir(parent)) if _run_id_in(other) == _run_id_in(name)]
        except OSError:
            return []
        beside = (RunDirectory(os.path.join(parent, other)) for other in others if other != name)
        return list(islice((run for run in beside if _belongs_to(owner, run.path) and run.is_run()), AGENTS_MAX))


class _Origin:
    """How an agent made its run's directory: enough to recognise it, and to make another one.

    Raises:
        FileNotFoundError: the new directory is gone already.
    """

    __slots__ = ("_log_dir", "_log_dir_identity", "identity", "is_temporary", "run_id")

    def __init__(self, path: str, log_dir: str, run_id: str, *, is_temporary: bool) -> None:
        self.run_id = run_id
        self.is_temporary = is_temporary
        self._log_dir = log_dir
        self._log_dir_identity = self._found_log_dir()
        self.identity: DirectoryIdentity | None = directory_identity(path)
        if self.identity is None or self._log_dir_identity is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    def next_place(self) -> tuple[str, bool]:
        """The directory in which to make another one, and whether it is temporary.

        Raises:
            OSError: it is missing and cannot be made.
        """
        if self._found_log_dir() == self._log_dir_identity or (not self.is_temporary and self._has_new_log_dir()):
            return self._log_dir, self.is_temporary
        return make_temporary(), True

    def _found_log_dir(self) -> DirectoryIdentity | None:
        return directory_identity(self._log_dir, follow=not self.is_temporary)  # the user's own may be a link

    def _has_new_log_dir(self) -> bool:
        """Whether the directory that the user chose was replaced by this user or root, or is missing and made again."""
        if not os.path.lexists(self._log_dir):
            if is_below_another_owner(self._log_dir):
                return False
            os.makedirs(self._log_dir, exist_ok=True)
        return os.lstat(self._log_dir).st_uid in (0, os.geteuid()) and other_owner(self._log_dir) is None


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

    If there are more, runs of other users are left out first.

    Raises:
        OSError: `directory` cannot be read.
    """
    runs = (RunDirectory(os.path.join(directory, name)) for name in sorted(os.listdir(directory)))
    found = [run for run in runs if run.is_run()]
    if len(found) > AGENTS_MAX:
        found.sort(key=lambda run: other_owner(run.path) is not None)  # stable
    return sorted(found[:AGENTS_MAX], key=lambda run: run.path)


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
            os.mkdir(path, _PRIVATE)
        except FileExistsError:
            continue
        return path


def make_temporary() -> str:
    """Create a private directory in the temporary directory.

    Like `tempfile.mkdtemp`, without importing it: the import costs more than a worker's start.

    Raises:
        OSError: it cannot be created.
    """
    wanted = [path for name in ("TMPDIR", "TEMP", "TMP") if (path := os.environ.get(name))]
    *others, last = [*wanted, *_TEMPORARY_DIRECTORIES]
    for directory in others:
        try:
            return make_random(os.path.join(os.path.abspath(directory), "torchelastic_"))
        except OSError:
            continue
    return make_random(os.path.join(last, "torchelastic_"))


def _run_id_in(name: str) -> str:
    """The run id in the name of a run's directory: the part that all nodes of a job share."""
    return name.rpartition("_")[0]


def _belongs_to(owner: int, directory: str) -> bool:
    """Whether `directory` belongs to `owner`, to this user or to root."""
    found = directory_identity(directory, follow=True)
    return found is not None and found[2] in (owner, os.geteuid(), 0)


def _make_next(path: str, mode: int) -> str:
    """Create a directory: `path`, or if that exists the first free one of `path`.1, `path`.2 ..."""
    candidate, count = path, 0
    while True:
        try:
            os.mkdir(candidate, mode)
        except FileExistsError:
            count += 1
            candidate = f"{path}.{count}"
        else:
            return candidate


def _file_name(text: str) -> str:
    """`text` as part of a file name: no separators, nothing that a shell or a terminal would interpret."""
    return re.sub(r"[^\w.=+-]", "_", text[:RUN_ID_MAX_CHARS])
