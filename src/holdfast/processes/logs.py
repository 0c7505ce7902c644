"""Where the output of a set of processes goes.

```
<log_dir, or a fresh torchelastic_* in the temporary directory>
└── <run id>_<random>              one for each agent, private to its user
    └── attempt_<restart count>    one for each start of the processes
        ├── <local rank>
        │   ├── stdout.log         where redirected or tee'd
        │   ├── stderr.log
        │   └── error.json         where the process recorded an error
        ├── filtered_stdout.log    where duplicate filters are given
        └── filtered_stderr.log
```

The restart count does not rise when processes restart because of somebody else, so an attempt's directory may
be there already. It is left as it is: the next ones are `attempt_<n>.1`, `attempt_<n>.2` and so on.

A disk that is full when a run begins is the user's to know of. One that fills up later must not end a job that runs:
an attempt that finds no place for all of its directories and files has none, and its streams are the parent's.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod

from holdfast.logger import get_logger
from holdfast.processes.std import Std, to_map

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

RUN_ID_MAX_CHARS = 60
"""How much of a run id its directory's name shows: with 4 bytes to a character, what a file name can hold."""

ENTRY_POINT_GROUPS = ("holdfast.logs_specs", "torchrun.logs_specs")
"""Where `find_logs_specs` looks; the first group that has the name wins."""

log = get_logger(__name__)

_OUT, _ERR = "stdout.log", "stderr.log"
_TEMPORARY_DIRECTORIES = ("/tmp", "/var/tmp")  # noqa: S108 - the directory made there has a random name and mode 0700


class LogsDest:
    """Where the output of one attempt goes, by local rank.

    `stdouts` and `stderrs` hold a path, or "" for a stream that stays the parent's. `tee_stdouts` and
    `tee_stderrs` hold the files that are shown on the console as well.
    """

    __slots__ = (  # noqa: RUF023 - the order of the constructor, which repr shows
        "stdouts",
        "stderrs",
        "tee_stdouts",
        "tee_stderrs",
        "error_files",
        "filtered_stdout",
        "filtered_stderr",
    )

    def __init__(
        self,
        stdouts: dict[int, str] | None = None,
        stderrs: dict[int, str] | None = None,
        tee_stdouts: dict[int, str] | None = None,
        tee_stderrs: dict[int, str] | None = None,
        error_files: dict[int, str] | None = None,
        filtered_stdout: str = "",
        filtered_stderr: str = "",
    ) -> None:
        self.stdouts = {} if stdouts is None else stdouts
        self.stderrs = {} if stderrs is None else stderrs
        self.tee_stdouts = {} if tee_stdouts is None else tee_stdouts
        self.tee_stderrs = {} if tee_stderrs is None else tee_stderrs
        self.error_files = {} if error_files is None else error_files
        self.filtered_stdout = filtered_stdout
        self.filtered_stderr = filtered_stderr

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"LogsDest({fields})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LogsDest):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]


class LogsSpecs(ABC):
    """What a user wants of the output of a set of processes: to be subclassed by who wants it elsewhere.

    `local_ranks_filter` limits the console to these local ranks; None or an empty set is every rank.
    """

    def __init__(
        self,
        log_dir: str | None = None,
        redirects: Std | dict[int, Std] = Std.NONE,
        tee: Std | dict[int, Std] = Std.NONE,
        local_ranks_filter: set[int] | None = None,
    ) -> None:
        self._root_log_dir = log_dir
        self._redirects = redirects
        self._tee = tee
        self._local_ranks_filter = local_ranks_filter

    @abstractmethod
    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """The destinations of one attempt of the processes with these environments, by local rank.

        Called once for each attempt. `envs` holds `TORCHELASTIC_RUN_ID` and `TORCHELASTIC_RESTART_COUNT`; the
        path of the error file is put into each as `TORCHELASTIC_ERROR_FILE`.
        """

    @property
    @abstractmethod
    def root_log_dir(self) -> str:
        """The directory that all runs share."""


class DefaultLogsSpecs(LogsSpecs):
    """Files in a directory.

    `log_dir` is made where it is missing; None or "" is a fresh one in the temporary directory. With `/dev/null`
    there are no files at all: every stream stays the parent's, but for ranks that `local_ranks_filter` hides.

    Raises:
        InputError: the directory cannot be made.
    """

    def __init__(
        self,
        log_dir: str | None = None,
        redirects: Std | dict[int, Std] = Std.NONE,
        tee: Std | dict[int, Std] = Std.NONE,
        local_ranks_filter: set[int] | None = None,
    ) -> None:
        super().__init__(log_dir, redirects, tee, local_ranks_filter)
        self._root: str = _root_directory(log_dir)
        self._run_dir: str | None = None
        self._has_begun = False

    @property
    def root_log_dir(self) -> str:
        return self._root

    @property
    def run_dir(self) -> str | None:
        """The directory of this run, from its first attempt on; None where there are no files."""
        return self._run_dir

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """Makes the directories of one attempt. The files of the first one come into being when a process opens them;
        those of later ones are made here, where an attempt can still do without.

        The paths are absolute: a process may change its working directory before it fails.

        Raises:
            InputError: a directory cannot be made, and it is the first attempt. A later one does without.
        """
        if self._root == os.devnull:
            return self._nowhere(envs)
        try:
            attempt_dir = self._make_attempt(envs)
            dest = self._dest(attempt_dir, envs)
            if self._has_begun:
                _make_files({*dest.stdouts.values(), *dest.stderrs.values()} - {"", os.devnull})
        except OSError as error:
            if not self._has_begun:
                raise _cannot_make(error) from error
            log.warning("no log files for this attempt: cannot make %r: %s", error.filename, error.strerror)
            return self._nowhere(envs)
        self._has_begun = True
        return dest

    def _dest(self, attempt_dir: str, envs: dict[int, dict[str, str]]) -> LogsDest:
        redirects, tees = self._streams(envs)
        dest = LogsDest(
            filtered_stdout=os.path.join(attempt_dir, "filtered_stdout.log"),
            filtered_stderr=os.path.join(attempt_dir, "filtered_stderr.log"),
        )
        for rank, env in envs.items():
            rank_dir = os.path.join(attempt_dir, str(rank))
            out, err = os.path.join(rank_dir, _OUT), os.path.join(rank_dir, _ERR)
            to_file = redirects[rank] | tees[rank]
            shown = self._is_shown(rank)
            otherwise = "" if shown else os.devnull
            dest.stdouts[rank] = out if Std.OUT in to_file else otherwise
            dest.stderrs[rank] = err if Std.ERR in to_file else otherwise
            if shown and Std.OUT in tees[rank]:
                dest.tee_stdouts[rank] = out
            if shown and Std.ERR in tees[rank]:
                dest.tee_stderrs[rank] = err
            dest.error_files[rank] = env["TORCHELASTIC_ERROR_FILE"] = os.path.join(rank_dir, "error.json")
        return dest

    def _nowhere(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        for env in envs.values():
            env["TORCHELASTIC_ERROR_FILE"] = ""
        return LogsDest(
            stdouts={rank: "" if self._is_shown(rank) else os.devnull for rank in envs},
            stderrs={rank: "" if self._is_shown(rank) else os.devnull for rank in envs},
            tee_stdouts=dict.fromkeys(envs, os.devnull),
            tee_stderrs=dict.fromkeys(envs, os.devnull),
            error_files=dict.fromkeys(envs, os.devnull),
            filtered_stdout=os.devnull,
            filtered_stderr=os.devnull,
        )

    def _is_shown(self, rank: int) -> bool:
        return not self._local_ranks_filter or rank in self._local_ranks_filter

    def _streams(self, envs: Iterable[int]) -> tuple[dict[int, Std], dict[int, Std]]:
        size = max(envs, default=-1) + 1
        return to_map(self._redirects, size), to_map(self._tee, size)

    def _make_attempt(self, envs: dict[int, dict[str, str]]) -> str:
        """A fresh directory for an attempt, with one for each rank in it."""
        env = next(iter(envs.values()), {})
        if self._run_dir is None:
            run_id = _file_name(env.get("TORCHELASTIC_RUN_ID", "none"))
            self._run_dir = _make_random(os.path.join(os.path.abspath(self._root), f"{run_id}_"))
        # Whoever tidies the temporary directory may have taken it during a long run.
        os.makedirs(self._run_dir, 0o700, exist_ok=True)
        restart_count = _file_name(env.get("TORCHELASTIC_RESTART_COUNT", "0"))
        attempt_dir = _make_next(os.path.join(self._run_dir, f"attempt_{restart_count}"))
        for rank in envs:
            os.mkdir(os.path.join(attempt_dir, str(rank)))
        return attempt_dir

    def __repr__(self) -> str:
        return (
            f"DefaultLogsSpecs(root_log_dir={self._root!r}, redirects={self._redirects!r}, "
            f"tee={self._tee!r}, local_ranks_filter={self._local_ranks_filter!r})"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DefaultLogsSpecs):
            return NotImplemented
        return (
            self._root == other._root
            and self._redirects == other._redirects
            and self._tee == other._tee
            and self._local_ranks_filter == other._local_ranks_filter
        )

    __hash__ = None  # type: ignore[assignment]


def find_logs_specs(name: str | None = None) -> type[LogsSpecs]:
    """The implementation that was installed under `name`; `DefaultLogsSpecs` for None and "default".

    Raises:
        InputError: there is none of that name, or it cannot be imported.
    """
    if name is None or name == "default":
        return DefaultLogsSpecs
    from holdfast.plugins import load_plugin

    specs: type[LogsSpecs] = load_plugin("--logs-specs", name, ENTRY_POINT_GROUPS, ["default"], lambda found: found)
    return specs


def _root_directory(log_dir: str | None) -> str:
    if log_dir == os.devnull:
        return log_dir
    try:
        if not log_dir:
            return _make_temporary()
        os.makedirs(log_dir, exist_ok=True)
    except OSError as error:
        raise _cannot_make(error) from error
    return log_dir


def _make_temporary() -> str:
    """As `tempfile.mkdtemp` would, but without its import, which costs more than a worker's start."""
    wanted = [path for name in ("TMPDIR", "TEMP", "TMP") if (path := os.environ.get(name))]
    *others, last = [*wanted, *_TEMPORARY_DIRECTORIES]
    for directory in others:
        try:
            return _make_random(os.path.join(os.path.abspath(directory), "torchelastic_"))
        except OSError:
            continue
    return _make_random(os.path.join(last, "torchelastic_"))


def _make_files(paths: Iterable[str]) -> None:
    """Make all of these, or none. Who opens them later needs no room for it, and could do nothing about a full disk."""
    made: list[str] = []
    try:
        for path in paths:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
            made.append(path)
    except OSError:
        for path in made:
            os.unlink(path)
        raise


def _make_random(start: str) -> str:
    """A new private directory whose name is `start` and eight random characters."""
    while True:
        path = start + os.urandom(4).hex()
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            continue
        return path


def _make_next(path: str) -> str:
    """A new directory: `path`, or where that is there already the first free of `path`.1, `path`.2 ..."""
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
    """`text` as part of one file name: no separators, nothing that a shell or a terminal would act on."""
    return re.sub(r"[^\w.=+-]", "_", text[:RUN_ID_MAX_CHARS])


def _cannot_make(error: OSError) -> Exception:
    from holdfast.errors.tree import InputError

    return InputError(
        f"cannot make the log directory {error.filename!r}: {error.strerror}; "
        f"give another log directory, or {os.devnull} for no log files"
    )
