"""Notes about runs that have ended on this machine, for agents that start too late.

The embedded store ends with the agent that serves it, and so does the record of the job's end. An agent that starts on
the same machine a little later would serve a new store and run the finished job again. So the agent that served the
store leaves a note, and an agent that is about to serve one reads it.

An agent is late if it certainly belongs to the job that has ended: its process began before the end, or it is another
task of the same step of a scheduler's job. The same task again is a script that repeats the command. Every other agent
runs the job again, as the user who repeats a command expects. So does a process that runs one job after another, such
as a notebook: an agent that it makes after the end is new.
"""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from holdfast import procfs
from holdfast.decoding import Seconds, UndecodableError, bound_lines, decoded
from holdfast.events.run_index import index_directory
from holdfast.files import open_regular, write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.rendezvous.records import End

NOTES_MAX = 200
"""The number of notes that are kept. The oldest are deleted first."""

NOTE_MAX_BYTES = 16_384
"""The size limit of a note. A longer file is not ours."""

REASON_MAX_CHARACTERS = 1_000
"""How much of an end's reason is kept."""

RECENT_S = 60.0
"""If the same run id is used again within this time after its end, that is logged."""

LAUNCHES = (
    ("SLURM_JOB_ID", "SLURM_RESTART_COUNT", "SLURM_STEP_ID"),
    ("PBS_JOBID", "PBS_ARRAY_INDEX"),
    ("LSB_JOBID", "LSB_JOBINDEX"),
)
"""The variables that identify one start of a scheduler's job. All its processes share their values."""

TASKS = ("SLURM_PROCID", "PBS_TASKNUM", "LSF_PM_TASKID")
"""The variables that distinguish the processes of one launch."""


class Note(Struct, frozen=True):
    """The end of a run: its kind and reason, its time on the clock of this boot, and the launch that it belonged to."""

    kind: str
    reason: str
    ended_s: Seconds
    boot: str
    launch: str = ""
    task: str = ""

    def __post_init__(self) -> None:
        bound_lines(self, REASON_MAX_CHARACTERS, "kind", "reason")


def launch_of(environ: Mapping[str, str]) -> str:
    """An identifier of the launch that this process belongs to, if a scheduler started it; "" otherwise."""
    for names in LAUNCHES:
        if environ.get(names[0]):
            return "/".join(f"{name}={environ.get(name, '')}" for name in names)
    return ""


def task_of(environ: Mapping[str, str]) -> str:
    """An identifier of this process among those of its launch."""
    return "/".join(environ.get(name, "") for name in TASKS)


def note_end(run_id: str, endpoint: str, end: End, environ: Mapping[str, str] = os.environ) -> None:
    """Leave a note. Never raises: without a note, a late agent behaves as it would on another machine."""
    directory = _directory()
    if not directory:
        return
    note = Note(end.kind, end.reason[:REASON_MAX_CHARACTERS], now_s(), _boot(), launch_of(environ), task_of(environ))
    with suppress(OSError):
        os.makedirs(directory, mode=0o700, exist_ok=True)
        write_whole(os.path.join(directory, _name(run_id, endpoint)), msgspec.json.encode(note))
        _forget_the_oldest(directory)


def find_end(run_id: str, endpoint: str) -> Note | None:
    """The note about this run, if the run ended on this machine since the last boot."""
    directory = _directory()
    try:
        with open(open_regular(os.path.join(directory, _name(run_id, endpoint))), "rb") as file:
            is_ours = bool(directory) and os.fstat(file.fileno()).st_uid == os.geteuid()
            data = file.read(NOTE_MAX_BYTES) if is_ours else b""
        note = decoded(msgspec.json.Decoder(Note), data)
    except (OSError, UndecodableError):
        return None
    return note if note.boot == _boot() else None


def is_late(
    note: Note,
    environ: Mapping[str, str] = os.environ,
    began_s: float | None = None,
    made_s: float | None = None,
) -> bool:
    """Whether this process belongs to the job that has ended.

    `made_s` is when the process made this agent, by `now_s`, unless it is the first agent of the process.
    """
    if made_s is not None:
        return made_s < note.ended_s
    launch = launch_of(environ)
    if launch and launch == note.launch and task_of(environ) != note.task:
        return True
    return (_began_s() if began_s is None else began_s) < note.ended_s


def seconds_ago(note: Note) -> float:
    return max(0.0, now_s() - note.ended_s)


def _directory() -> str:
    index = index_directory()
    return os.path.join(os.path.dirname(index), "ended") if index else ""


def _name(run_id: str, endpoint: str) -> str:
    digest = hashlib.sha256(f"{endpoint}\0{run_id}".encode("utf-8", "surrogatepass")).hexdigest()
    return f"{digest[:32]}.json"


def _forget_the_oldest(directory: str) -> None:
    paths = [entry.path for entry in os.scandir(directory) if entry.name.endswith(".json")]
    for path in sorted(paths, key=os.path.getmtime)[:-NOTES_MAX]:
        os.unlink(path)


def now_s() -> float:
    """The time on the clock of this boot, which also counts while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _began_s() -> float:
    """When this process started, on the clock of this boot."""
    return procfs.stat(procfs.SELF).began_s


def _boot() -> str:
    """An identifier of this boot of this machine. Machines may share a home directory."""
    with suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()
    return ""
