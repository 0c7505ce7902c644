"""Which runs have ended on this machine, for an agent that comes too late.

The embedded store ends with the agent that serves it, and what became of the job is gone with it. An agent that starts
on the same machine a little later would serve a new store and run the finished job again. So the agent that served
leaves a note, and one that is about to serve reads it.

An agent is late if it is certain that it belongs to the job that has ended: its process began before that, or it is
another task of the same step of a scheduler's job. The same task is a script that repeats the command. Everybody else
runs the job anew, as somebody who repeats a command expects. So does a process that runs one job after the other, such
as a notebook: what it begins after the end is new.
"""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from holdfast.decoding import Seconds, UndecodableError, bound_lines, decoded
from holdfast.events.run_index import index_directory
from holdfast.files import open_regular, write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.rendezvous.records import End

NOTES_MAX = 200
"""How many notes are kept; the oldest go first."""

NOTE_MAX_BYTES = 16_384
"""How long a note may be; a longer one is none of ours."""

REASON_MAX_CHARACTERS = 1_000
"""How much of an end's reason is noted."""

RECENT_S = 60.0
"""An end this long ago is worth a line when the same run id is used again."""

LAUNCHES = (
    ("SLURM_JOB_ID", "SLURM_RESTART_COUNT", "SLURM_STEP_ID"),
    ("PBS_JOBID", "PBS_ARRAY_INDEX"),
    ("LSB_JOBID", "LSB_JOBINDEX"),
)
"""What schedulers call the start of a job, all of which its processes have in common ..."""

TASKS = ("SLURM_PROCID", "PBS_TASKNUM", "LSF_PM_TASKID")
"""... and what tells them apart."""


class Note(Struct, frozen=True):
    """The end of a run: what it was, when it was on the clock of this boot, and which launch it belonged to."""

    kind: str
    reason: str
    ended_s: Seconds
    boot: str
    launch: str = ""
    task: str = ""

    def __post_init__(self) -> None:
        bound_lines(self, REASON_MAX_CHARACTERS, "kind", "reason")


def launch_of(environ: Mapping[str, str]) -> str:
    """What names the start of this process's job, if a scheduler started it; "" otherwise."""
    for names in LAUNCHES:
        if environ.get(names[0]):
            return "/".join(f"{name}={environ.get(name, '')}" for name in names)
    return ""


def task_of(environ: Mapping[str, str]) -> str:
    """Which of the processes of its launch this one is."""
    return "/".join(environ.get(name, "") for name in TASKS)


def note_end(run_id: str, endpoint: str, end: End, environ: Mapping[str, str] = os.environ) -> None:
    """Leave a note. Never raises: without it, things are as they would be on another machine."""
    directory = _directory()
    if not directory:
        return
    note = Note(end.kind, end.reason[:REASON_MAX_CHARACTERS], now_s(), _boot(), launch_of(environ), task_of(environ))
    with suppress(OSError):
        os.makedirs(directory, mode=0o700, exist_ok=True)
        write_whole(os.path.join(directory, _name(run_id, endpoint)), msgspec.json.encode(note))
        _forget_the_oldest(directory)


def find_end(run_id: str, endpoint: str) -> Note | None:
    """The note on this run, if it ended on this machine since it was booted."""
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
    """Whether this process belongs to the job that has ended. `made_s` is when it made this agent, by `now_s`, if that
    is not its first one.
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
    """The clock of this boot, which also runs while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _began_s() -> float:
    """When this process began, on the clock of this boot."""
    with open("/proc/self/stat", "rb") as file:
        ticks = int(file.read().rpartition(b")")[2].split()[19])
    return ticks / os.sysconf("SC_CLK_TCK")


def _boot() -> str:
    """Which boot of which machine this is: homes are shared between machines."""
    with suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()
    return ""
