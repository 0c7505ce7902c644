"""Where the output of a set of processes goes.

`holdfast.run_directory` has the layout of the directories.

If the disk is full when a run begins, the user gets an error. If it fills up later, that must not end a running job: an
attempt without room for all of its directories and files has no log files, and its streams are the parent's.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod

from holdfast.logger import get_logger
from holdfast.processes.std import Std, to_map
from holdfast.record_types import like_dataclass
from holdfast.run_directory import RunDirectory, make_temporary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.run_directory import AttemptDirectory

ENTRY_POINT_GROUPS = ("holdfast.logs_specs", "torchrun.logs_specs")
"""Where `find_logs_specs` searches; the first group that has the name wins."""

log = get_logger(__name__)


@like_dataclass
class LogsDest:
    """Where the output of one attempt goes, by local rank.

    `stdouts` and `stderrs` hold a path, or "" for a stream that stays the parent's. `tee_stdouts` and `tee_stderrs`
    hold the files that are also shown on the console.
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

    __hash__ = None  # type: ignore[assignment]  # how Python says that equal objects have no hash


class LogsSpecs(ABC):
    """The user's choice of where the output of a set of processes goes. Subclass it to send the output elsewhere.

    `local_ranks_filter` limits the console to these local ranks; None or an empty set shows every rank.
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

        Called once for each attempt. `envs` holds `TORCHELASTIC_RUN_ID` and `TORCHELASTIC_RESTART_COUNT`; this adds the
        path of the error file to each as `TORCHELASTIC_ERROR_FILE`.
        """

    @property
    @abstractmethod
    def root_log_dir(self) -> str:
        """The directory that all runs share."""


class DefaultLogsSpecs(LogsSpecs):
    """Files in a directory.

    `log_dir` is created if it is missing; None or "" creates a new one in the temporary directory. With `/dev/null`
    there are no files at all: every stream stays the parent's, except for ranks that `local_ranks_filter` hides.

    Raises:
        InputError: the directory cannot be created.
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
        self._is_temporary = not log_dir
        self._run: RunDirectory | None = None
        self._has_begun = False

    @property
    def root_log_dir(self) -> str:
        return self._root

    @property
    def run_dir(self) -> str | None:
        """The directory of this run, from its first attempt on; None if there are no files."""
        return None if self._run is None else self._run.path

    @property
    def run_directory(self) -> RunDirectory | None:
        """The same as an object, which notices if the directory is removed or replaced."""
        return self._run

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """Create the directories of one attempt. In the first attempt, a process creates its files when it opens them.
        Later attempts create them here, where they can still do without.

        The paths are absolute: a process may change its working directory before it fails.

        Raises:
            InputError: a directory cannot be created in the first attempt. Later attempts do without.
        """
        if self._root == os.devnull:
            return self._nowhere(envs)
        try:
            dest = self._dest(self._make_attempt(envs), envs)
            if self._has_begun:
                _make_files({*dest.stdouts.values(), *dest.stderrs.values()} - {"", os.devnull})
        except OSError as error:
            if not self._has_begun:
                raise _cannot_make(error) from error
            log.warning("no log files for this attempt: cannot make %r: %s", error.filename, error.strerror)
            return self._nowhere(envs)
        self._has_begun = True
        return dest

    def _dest(self, attempt: AttemptDirectory, envs: dict[int, dict[str, str]]) -> LogsDest:
        redirects, tees = self._streams(envs)
        dest = LogsDest(filtered_stdout=attempt.filtered_stdout, filtered_stderr=attempt.filtered_stderr)
        for rank, env in envs.items():
            out, err = attempt.stdout(rank), attempt.stderr(rank)
            to_file = redirects[rank] | tees[rank]
            shown = self._is_shown(rank)
            otherwise = "" if shown else os.devnull
            dest.stdouts[rank] = out if Std.OUT in to_file else otherwise
            dest.stderrs[rank] = err if Std.ERR in to_file else otherwise
            if shown and Std.OUT in tees[rank]:
                dest.tee_stdouts[rank] = out
            if shown and Std.ERR in tees[rank]:
                dest.tee_stderrs[rank] = err
            dest.error_files[rank] = env["TORCHELASTIC_ERROR_FILE"] = attempt.error_file(rank)
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

    def _make_attempt(self, envs: dict[int, dict[str, str]]) -> AttemptDirectory:
        env = next(iter(envs.values()), {})
        if self._run is None:
            run_id = env.get("TORCHELASTIC_RUN_ID", "none")
            self._run = RunDirectory.create(self._root, run_id, is_temporary=self._is_temporary)
        return self._run.make_attempt(env.get("TORCHELASTIC_RESTART_COUNT", "0"), envs)

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

    __hash__ = None  # type: ignore[assignment]  # how Python says that equal objects have no hash


def find_logs_specs(name: str | None = None) -> type[LogsSpecs]:
    """The implementation that is installed under `name`; `DefaultLogsSpecs` for None and "default".

    Raises:
        InputError: unknown name, or it cannot be imported.
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
            return make_temporary()
        os.makedirs(log_dir, exist_ok=True)
    except OSError as error:
        raise _cannot_make(error) from error
    return log_dir


def _make_files(paths: Iterable[str]) -> None:
    """Create all of these, or none. Opening them later needs no space: a worker could not handle a full disk."""
    made: list[str] = []
    try:
        for path in paths:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
            made.append(path)
    except OSError:
        for path in made:
            os.unlink(path)
        raise


def _cannot_make(error: OSError) -> Exception:
    from holdfast.errors.tree import InputError

    # Also an OSError of the kind that callers of torch's class expect: a file in place of the directory is named so.
    kind = NotADirectoryError if isinstance(error, FileExistsError) else type(error)

    class LogDirectoryError(InputError, kind):  # type: ignore[misc, valid-type]  # the base is known only now
        pass

    return LogDirectoryError(
        f"cannot make the log directory {error.filename!r}: {error.strerror}; "
        f"give another log directory, or {os.devnull} for no log files"
    )
