"""Directories that jobs write to: the temporary directory and the log directory."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING, NamedTuple

from holdfast.doctor.finding import Finding, Topic, size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.doctor.context import Context

FREE_MIN_BYTES = 64 << 20
"""With less, the logs of a job fill the disk."""

FREE_GOOD_BYTES = 1 << 30
"""Roughly what kernel compilers and data loaders put into the temporary directory."""

INODES_MIN = 1000

SOCKET_DIRECTORY_MAX_CHARS = 70
"""A socket's path has at most 107 characters; multiprocessing adds about 35 to the directory."""

TEMPORARY_VARIABLES = ("TMPDIR", "TEMP", "TMP")
TEMPORARY_DIRECTORIES = ("/tmp", "/var/tmp")  # noqa: S108 - files there get a random name

_topic = Topic("files")


class Place(NamedTuple):
    """A directory, and what can be done in it."""

    path: str
    error: str = ""
    """Why no file can be created there."""

    free_bytes: int = 0
    free_inodes: int | None = None
    """None if the file system does not count them."""

    is_noexec: bool = False
    checked_at: str = ""
    """The nearest existing parent that was checked instead, if the directory does not exist yet."""


def check(context: Context) -> list[Finding]:
    first, *others = map(probe, temporary_directories(context.environ))
    instead = next((place.path for place in others if not place.error), "") if first.error else ""
    findings = [judge_temporary(first, _named_by(context.environ), instead)]
    if context.log_dir and context.log_dir != os.devnull:
        findings.append(judge_logs(probe_parents(os.path.abspath(context.log_dir))))
    return findings


def temporary_directories(environ: Mapping[str, str]) -> list[str]:
    """The candidates for the temporary directory, in order."""
    return [*(environ[name] for name in TEMPORARY_VARIABLES if environ.get(name)), *TEMPORARY_DIRECTORIES]


def probe(path: str) -> Place:
    try:
        with tempfile.NamedTemporaryFile(prefix="holdfast-doctor-", dir=path) as file:
            file.write(b"x")
            file.flush()
        usage = os.statvfs(path)
    except OSError as error:
        return Place(path, error.strerror or str(error))
    inodes = usage.f_favail if usage.f_files else None
    return Place(path, "", usage.f_bavail * usage.f_frsize, inodes, bool(usage.f_flag & os.ST_NOEXEC))


def probe_parents(path: str) -> Place:
    """The nearest existing parent of a directory that is to be created."""
    nearest = path
    while not os.path.exists(nearest):
        nearest = os.path.dirname(nearest)
    return probe(nearest)._replace(path=path, checked_at=nearest if nearest != path else "")


def judge_temporary(place: Place, variable: str, instead: str = "") -> Finding:
    """Judge the first candidate. `instead` is the directory that is used if that one is not writable."""
    named = f"the temporary directory, {place.path}" + (f" ({variable})" if variable else "")
    other = "set TMPDIR to another directory"
    if place.error and instead:
        what = f"{named}, cannot be written to: {place.error}; {instead} is used instead"
        return _topic.warning("temporary", what, f"repair it, or {other}")
    if place.error:
        return _topic.problem("temporary", f"{named}, cannot be written to: {place.error}", f"repair it, or {other}")
    short = _judge_space("temporary", place, named, other)
    if short is not None:
        return short
    if len(place.path) > SOCKET_DIRECTORY_MAX_CHARS:
        return _topic.warning(
            "temporary",
            f"{named}, has a long name ({len(place.path)} characters)",
            f"paths of sockets in it are too long for the kernel ('AF_UNIX path too long'): {other}",
        )
    if place.is_noexec:
        return _topic.note(
            "temporary",
            f"{named}, has {size(place.free_bytes)} free, but programs in it may not be run (noexec)",
            f"kernel compilers (torch.compile, triton, C++ extensions) load their output from there: {other} if you "
            "use them",
        )
    return _topic.ok("temporary", f"{named}, has {size(place.free_bytes)} free")


def judge_logs(place: Place) -> Finding:
    named = f"the log directory, {place.path}"
    if place.checked_at:
        named += f" (will be made in {place.checked_at})"
    if place.error:
        return _topic.problem("logs", f"{named}, cannot be written to: {place.error}", "choose another --log-dir")
    short = _judge_space("logs", place, named, "choose another --log-dir")
    return short or _topic.ok("logs", f"{named}, has {size(place.free_bytes)} free")


def _judge_space(check: str, place: Place, named: str, other: str) -> Finding | None:
    if place.free_inodes is not None and place.free_inodes < INODES_MIN:
        what = f"{named}, has room for {place.free_inodes} more files (df -i)"
        return _topic.problem(check, what, f"remove files, or {other}")
    what = f"{named}, has {size(place.free_bytes)} free"
    if place.free_bytes < FREE_MIN_BYTES:
        return _topic.problem(check, what, f"remove files, or {other}")
    if place.free_bytes < FREE_GOOD_BYTES:
        return _topic.warning(check, what, f"logs and compiler caches fill it: remove files, or {other}")
    return None


def _named_by(environ: Mapping[str, str]) -> str:
    return next((name for name in TEMPORARY_VARIABLES if environ.get(name)), "")
