"""An agent's pages: nobody else removes them while the agent lives, and no worker can harm the agent by its page."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys

import pytest

from holdfast.agent import shared_memory
from holdfast.agent.shared_memory import WorkerPages, read_page, request_stop
from holdfast.worker.shared_memory import BEATS, LISTENS, PAGE_BYTES, REASON_MAX_BYTES, STEP, STOP_NS, Page

PATIENCE_S = 60.0


@pytest.fixture
def memory(tmp_path, monkeypatch):
    monkeypatch.setattr(shared_memory, "MEMORY", str(tmp_path))
    return tmp_path


def touch(path):
    with open(path, "w"):
        pass


def test_every_attempt_has_fresh_names_and_nothing_stays(memory):
    ours = WorkerPages()
    first = ours.open([0, 1])
    assert list(first) == [0, 1]
    touch(first[0])
    second = ours.open([0, 1])
    assert not set(first.values()) & set(second.values())
    assert not os.path.exists(first[0])
    touch(second[1])
    ours.close()
    ours.close()
    assert os.listdir(memory) == []


def test_directories_that_a_worker_made_in_place_of_its_page_are_removed(memory):
    ours = WorkerPages()
    for path in ours.open([0, 1, 2]).values():
        os.makedirs(f"{path}/deeper")
        touch(f"{path}/deeper/file")
    touch(f"{path}.stop")
    ours.close()
    assert os.listdir(memory) == []


def test_what_a_killed_agent_left_is_removed_and_what_a_living_one_has_is_not(memory):
    script = f"""
import os
from holdfast.agent import shared_memory
shared_memory.MEMORY = {str(memory)!r}
for path in shared_memory.WorkerPages().open([0]).values():
    open(path, "w").close()
os._exit(9)
"""
    subprocess.run([sys.executable, "-c", script], check=False)
    (left,) = os.listdir(memory)
    living, another = WorkerPages(), WorkerPages()
    path = living.open([0])[0]
    touch(path)
    assert left not in os.listdir(memory)
    another.open([0])
    assert os.path.exists(path)
    another.close()
    living.close()
    assert os.listdir(memory) == []


def test_without_a_memory_file_system_any_temporary_directory_does(tmp_path, monkeypatch):
    monkeypatch.setattr(shared_memory, "MEMORY", "/nowhere")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    ours = WorkerPages()
    assert ours.open([0])[0].startswith(str(tmp_path))
    ours.close()


@pytest.mark.root
def test_a_memory_file_system_that_takes_no_more_names_is_not_used(tmp_path, monkeypatch):
    memory = tmp_path / "memory"
    memory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "nr_inodes=1", "none", memory], check=True)
    try:
        monkeypatch.setattr(shared_memory, "MEMORY", str(memory))
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        ours = WorkerPages()
        assert os.path.dirname(os.path.dirname(ours.open([0])[0])) == str(tmp_path)
        ours.close()
        monkeypatch.setenv("TMPDIR", str(memory))
        with pytest.raises(OSError, match="No space left"):
            ours.open([0])
        ours.close()
    finally:
        subprocess.run(["umount", memory], check=True)
    assert os.listdir(tmp_path) == ["memory"]


def test_a_link_that_somebody_made_leads_an_agent_nowhere(memory, tmp_path_factory):
    precious = tmp_path_factory.mktemp("home") / "precious"
    touch(precious)
    os.symlink(precious.parent, memory / f"{shared_memory.PREFIX}0123456789abcdef")
    ours = WorkerPages()
    ours.open([0])
    ours.close()
    assert precious.exists()


@pytest.mark.root
def test_what_another_user_left_is_left_alone_by_root(memory):
    theirs = memory / f"{shared_memory.PREFIX}0123456789abcdef"
    theirs.mkdir()
    touch(theirs / "1.0")
    os.chown(theirs, 65534, 65534)
    ours = WorkerPages()
    ours.open([0])
    ours.close()
    assert os.listdir(theirs) == ["1.0"]


def no_page(path):
    pass


def short_file(path):
    path.write_bytes(bytes(7) + b"x")


def other_layout(path):
    path.write_bytes(b"x" * PAGE_BYTES)


def leased_file(path):
    """Opening such a file waits until its holder lets go of it, if the opener is willing to wait."""
    path.write_bytes(b"x" * PAGE_BYTES)
    holder = os.open(path, os.O_RDWR)
    fcntl.fcntl(holder, fcntl.F_SETSIG, signal.SIGURG)  # which is ignored
    fcntl.fcntl(holder, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    return holder


@pytest.mark.parametrize(
    "make", [no_page, short_file, other_layout, os.mkfifo, os.mkdir, leased_file, lambda path: os.symlink(path, path)]
)
def test_what_is_no_page(tmp_path, make):
    path = tmp_path / "page"
    held = make(path)
    assert read_page(str(path)) is None
    if held is not None:
        assert not request_stop(str(path), "drained", 1)
        os.close(held)


def test_a_number_of_a_page_is_what_the_worker_wrote_last(tmp_path):
    path = str(tmp_path / "page")
    page = Page.make(path)
    page.numbers[BEATS] = 7
    before = read_page(path)
    page.numbers[BEATS] = 8
    assert (before[BEATS], read_page(path)[BEATS], read_page(path)[STEP]) == (7, 8, -1)
    assert request_stop(path, "é" * REASON_MAX_BYTES, 9)
    assert (page.numbers[STOP_NS], page.reason) == (9, "é" * (REASON_MAX_BYTES // 2))


GRACE_S = 60.0


def test_a_page_that_is_made_after_the_request_has_it(memory):
    ours = WorkerPages()
    paths = ours.open([0])
    assert not ours.ask_to_stop("the machine is freed", GRACE_S, [0])
    assert read_page(paths[0]) is None, "a request alone is no page: the program may not use one"
    page = Page.make(paths[0])
    assert page.numbers[STOP_NS] > 0
    assert (page.reason, page.numbers[BEATS], page.numbers[STEP]) == ("the machine is freed", 0, -1)
    ours.close()
    assert os.listdir(memory) == []


@pytest.mark.usefixtures("memory")
def test_a_worker_that_does_not_listen_yet_is_asked_too():
    ours = WorkerPages()
    pages = [Page.make(path) for path in ours.open([0, 1]).values()]
    pages[0].numbers[LISTENS] = 1
    assert ours.ask_to_stop("the machine is freed", GRACE_S, [0, 1])
    assert [bool(page.numbers[STOP_NS]) for page in pages] == [True, True]
    ours.close()


@pytest.mark.usefixtures("memory")
def test_only_workers_that_are_named_are_asked_and_listen():
    ours = WorkerPages()
    ended, running = (Page.make(path) for path in ours.open([0, 1]).values())
    ended.numbers[LISTENS] = 1
    assert not ours.ask_to_stop("the machine is freed", GRACE_S, [1])
    assert (bool(ended.numbers[STOP_NS]), bool(running.numbers[STOP_NS])) == (False, True)
    ours.close()


HANG_TIMEOUT_S = 1

TRUNCATES = f"""
import os, time
from holdfast import worker
begin = time.monotonic()
while time.monotonic() < begin + {HANG_TIMEOUT_S}:  # until the agent has seen a heartbeat
    worker.heartbeat()
os.truncate(os.environ["HOLDFAST_WORKER_PAGE"], 0)
time.sleep(600)
"""


def test_a_worker_that_truncates_its_page_is_watched_like_one_without_a_page(tmp_path):
    script = tmp_path / "bus.py"
    script.write_text(TRUNCATES)
    options = ["--nproc-per-node", "1", "--hang-timeout", str(HANG_TIMEOUT_S), "--log-dir", tmp_path / "logs"]
    ended = subprocess.run(
        [sys.executable, "-m", "holdfast", "run", *options, script],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ended.returncode == 1
    assert "no output and no CPU use" in ended.stderr


READS_A_PAGE_THAT_IS_CUT = """
import os
from holdfast.agent.progress import WatchedWorker
from holdfast.worker import heartbeat
path = os.environ["HOLDFAST_WORKER_PAGE"]
heartbeat(3)
watched = WatchedWorker(os.getpid(), path)
print(watched.read(0).beats)
os.truncate(path, 0)
print(watched.read(0).beats)
"""


def test_a_page_that_was_read_and_is_truncated_then_is_no_page(tmp_path):
    environ = os.environ | {"HOLDFAST_WORKER_PAGE": str(tmp_path / "page")}
    script = [sys.executable, "-c", READS_A_PAGE_THAT_IS_CUT]
    ended = subprocess.run(script, env=environ, stdout=-1, text=True, timeout=PATIENCE_S, check=False)
    assert (ended.returncode, ended.stdout) == (0, "1\n0\n")


SHRINKS_AND_GROWS = """
import itertools, os
from holdfast.worker.shared_memory import LAYOUT, LISTENS, PAGE_BYTES, VERSION, Page
path = os.environ["HOLDFAST_WORKER_PAGE"]
page = bytearray(PAGE_BYTES)
numbers = memoryview(page).cast("q")
numbers[VERSION] = LAYOUT
numbers[LISTENS] = 1
fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
for lap in itertools.count():
    os.pwrite(fd, page, 0)
    if lap == 0:
        print("ready", flush=True)
    os.ftruncate(fd, 0)
"""

LOOKS = 2_000
"""How often the agent looks at the page that shrinks. A mapped page kills it within a few looks."""

ASKS_OFTEN = f"""
import os, sys
from holdfast.agent.progress import WatchedWorker
from holdfast.agent.shared_memory import WorkerPages
pages = WorkerPages()
pages._paths = {{0: os.environ["HOLDFAST_WORKER_PAGE"]}}
worker = WatchedWorker(os.getpid(), pages._paths[0])
asked = 0
for _ in range({LOOKS}):
    asked += pages.ask_to_stop("the machine is freed", 60.0, [0])
    assert worker.read(0) is not None
print("unharmed", asked > 0)
"""


def test_a_page_that_shrinks_at_any_moment_harms_no_agent(tmp_path):
    environ = os.environ | {"HOLDFAST_WORKER_PAGE": str(tmp_path / "page")}
    worker = subprocess.Popen([sys.executable, "-c", SHRINKS_AND_GROWS], env=environ, stdout=subprocess.PIPE, text=True)
    try:
        assert worker.stdout.readline() == "ready\n"
        agent = subprocess.run(
            [sys.executable, "-c", ASKS_OFTEN], env=environ, stdout=-1, text=True, timeout=PATIENCE_S, check=False
        )
    finally:
        worker.kill()
        worker.communicate()
    assert (agent.returncode, agent.stdout) == (0, "unharmed True\n")
