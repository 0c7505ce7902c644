"""A disk that is full: the job goes on, and what fails is told as it is."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.root

ENDED_MAX_S = 60

FILL = """
import os, sys

def fill(disk, what):
    try:
        for number in range(10**6):
            with open(f"{disk}/filler{number}", "wb", buffering=0) as file:
                while what == "space":
                    file.write(bytes(4096))
    except OSError:
        pass
"""

FAIL = f"""{FILL}
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    *where, both_run = sys.argv[1:]
    if os.environ["RANK"] == "0":
        open(both_run).close()
        fill(*where)
        raise ConnectionResetError("the peer is gone")
    open(both_run, "w").close()
    import signal
    signal.pause()
if sys.argv[2] == "files":  # else there is no room for a line
    sys.stdout.write(f"second attempt of {{os.environ['RANK']}}\\n")
"""


@pytest.fixture
def disk(tmp_path):
    """A file system with little room."""
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,nr_inodes=200", "none", place], check=True)
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


@pytest.mark.parametrize("what", ["space", "files"])
@pytest.mark.parametrize("warm", [[], ["--warm"]], ids=["cold", "warm"])
def test_a_disk_that_fills_up_ends_nothing_and_hides_nothing(disk, tmp_path, what, warm):
    script = tmp_path / "script.py"
    script.write_text(FAIL)
    both_run = tmp_path / "both-run"
    os.mkfifo(both_run)
    command = [*("--nproc-per-node", "2"), *("--max-restarts", "1"), *("--log-dir", disk), "--redirects", "3"]
    ended = subprocess.run(
        [sys.executable, "-m", "holdfast", "run", *warm, *command, script, disk, what, both_run],
        capture_output=True,
        text=True,
        timeout=ENDED_MAX_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "rank 0 failed: ConnectionResetError: the peer is gone" in ended.stderr
    if what == "files":  # there is no directory for the second attempt, so that its output is the console's
        assert "no log files for this attempt" in ended.stderr
        assert sorted(ended.stdout.splitlines()) == ["second attempt of 0", "second attempt of 1"]
    assert "No space left on device" in ended.stderr


RUN_SHORT_OF_FILES = f"""{FILL}
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    disk, room, both_run = sys.argv[1:]
    if os.environ["RANK"] == "0":
        open(both_run).close()
        fill(disk, "files")
        for number in range(int(room)):
            os.unlink(f"{{disk}}/filler{{number}}")
        os.kill(os.getpid(), 9)
    open(both_run, "w").close()
    import signal
    signal.pause()
sys.stdout.write(f"second attempt of {{os.environ['RANK']}}\\n")
sys.stdout.flush()
"""

ROOM_FOR_ALL = 10
"""How many files and directories the second attempt of two workers makes at most, with the stacks of the first."""


@pytest.mark.parametrize("streams", ["--redirects", "--tee"])
@pytest.mark.parametrize("room", range(ROOM_FOR_ALL + 1))
def test_a_disk_with_room_for_a_few_files_only_ends_nothing(disk, tmp_path, room, streams):
    script = tmp_path / "script.py"
    script.write_text(RUN_SHORT_OF_FILES)
    both_run = tmp_path / "both-run"
    os.mkfifo(both_run)
    command = [*("--nproc-per-node", "2"), *("--max-restarts", "1"), *("--log-dir", disk), streams, "3"]
    ended = subprocess.run(
        [sys.executable, "-m", "holdfast", "run", *command, script, disk, str(room), both_run],
        capture_output=True,
        text=True,
        timeout=ENDED_MAX_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "rank 0 failed" in ended.stderr
    logs = sorted(disk.glob("*/attempt_1/*/std*.log"))
    if "no log files for this attempt" in ended.stderr:  # its output is the console's, and all of it is
        assert logs == []
        said = ended.stdout.splitlines()
    else:
        assert [str(path.relative_to(path.parents[1])) for path in logs] == [
            *("0/stderr.log", "0/stdout.log"),
            *("1/stderr.log", "1/stdout.log"),
        ]
        said = [path.read_text().strip() for path in logs if path.name == "stdout.log"]
    assert sorted(said) == ["second attempt of 0", "second attempt of 1"]


def test_a_full_disk_does_not_take_the_watchdogs_pipe(disk, tmp_path):
    """The stacks of the workers that were stopped would take the room of a pipe that is made anew."""
    script = tmp_path / "script.py"
    script.write_text(f"""{RUN_SHORT_OF_FILES}
from holdfast.watchdog import FileTimerClient, configure, expires
configure(FileTimerClient(os.environ["TORCHELASTIC_TIMER_FILE"]))
with expires(after=600):
    pass
""")
    both_run = tmp_path / "both-run"
    os.mkfifo(both_run)
    command = [*("--nproc-per-node", "2"), *("--max-restarts", "1"), *("--log-dir", disk / "logs")]
    ended = subprocess.run(
        [sys.executable, "-m", "holdfast", "run", *command, script, disk, "0", both_run],
        env={**os.environ, "TMPDIR": str(disk), "TORCHELASTIC_ENABLE_FILE_TIMER": "1"},
        capture_output=True,
        text=True,
        timeout=ENDED_MAX_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert sorted(ended.stdout.splitlines()) == ["second attempt of 0", "second attempt of 1"]
    assert list(disk.glob("watchdog_timer_*")) == []
