from __future__ import annotations

import os
import subprocess
import sys

import pytest
from memory_cgroup import EAT, MIB, MemoryCgroup

from holdfast.processes.oom import (
    INITIAL_PID_NAMESPACE,
    KILLED_BY_KERNEL,
    MemoryHierarchy,
    OomWatch,
    counted_kills,
    limit_bytes,
    logged_kill,
    memory_cgroup,
    memory_hierarchy,
)

DEADLINE_S = 60

HYBRID = """\
23 1 254:0 / / rw,relatime - ext4 /dev/root rw
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
34 31 0:31 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 /docker/ab /sys/fs/cgroup/memory rw,relatime shared:10 master:3 - cgroup cgroup rw,memory
"""
UNIFIED = """\
23 1 254:0 / / rw,relatime - ext4 /dev/root rw
30 23 0:26 / /sys/fs/cgroup\\040of\\134mine rw,nosuid - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot
"""

LINE = "3,812,55004411,-;{}: Killed process {} (python3) total-vm:120004kB, anon-rss:98304kB, UID:0\n"


def kill_line(pid, why="Memory cgroup out of memory"):
    return LINE.format(why, pid)


class Kernel:
    """The files that the kernel speaks in, in a directory: processes, cgroups of one version, a log."""

    def __init__(self, directory, *, is_v2):
        self.is_v2 = is_v2
        self.proc = directory / "proc"
        self.cgroups = directory / "cgroups"
        self.log = directory / "kmsg"
        self.watches = []
        self.log.write_text("")
        self.write(self.proc / "self/mountinfo", self.mount())
        (self.proc / "self/ns").mkdir()
        self.namespace(INITIAL_PID_NAMESPACE)
        self.process("self", "/agent")
        self.write(self.proc / "vmstat", "nr_free_pages 3\noom_kill 0\n")

    def mount(self):
        kind = "cgroup2 cgroup2 rw" if self.is_v2 else "cgroup cgroup rw,memory"
        return f"35 31 0:32 / {self.cgroups} rw,relatime - {kind}\n"

    @staticmethod
    def write(path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def namespace(self, name):
        link = self.proc / "self/ns/pid"
        link.unlink(missing_ok=True)
        link.symlink_to(name)

    def process(self, pid, cgroup):
        number = "0::" if self.is_v2 else "0::/elsewhere\n4:memory:"
        self.write(self.proc / str(pid) / "cgroup", f"{number}{cgroup}\n")

    def cgroup(self, path, kills, limit=""):
        directory = self.cgroups / path.lstrip("/")
        if self.is_v2:
            self.write(directory / "memory.events", f"low 0\nmax 9\noom 4\noom_kill {kills}\noom_group_kill 0\n")
        else:
            self.write(directory / "memory.oom_control", f"oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n")
        if limit:
            self.write(directory / ("memory.max" if self.is_v2 else "memory.limit_in_bytes"), f"{limit}\n")

    def machine(self, kills):
        self.write(self.proc / "vmstat", f"nr_free_pages 3\noom_kill {kills}\n")

    def say(self, text):
        with open(self.log, "a") as file:
            file.write(text)

    def watch(self, *pids):
        self.watches.append(OomWatch(pids, proc=str(self.proc), kernel_log=str(self.log)))
        return self.watches[-1]

    def close(self):
        for watch in self.watches:
            watch.close()


@pytest.fixture(params=["v1", "v2"])
def kernel(request, tmp_path):
    made = Kernel(tmp_path, is_v2=request.param == "v2")
    yield made
    made.close()


@pytest.fixture
def v1(tmp_path):
    made = Kernel(tmp_path, is_v2=False)
    yield made
    made.close()


@pytest.fixture
def v2(tmp_path):
    made = Kernel(tmp_path, is_v2=True)
    yield made
    made.close()


# What the kernel writes


def test_where_both_versions_are_mounted_the_one_that_has_memory_is_taken():
    hierarchy = memory_hierarchy(HYBRID)
    assert (hierarchy.point, hierarchy.root, hierarchy.is_v2) == ("/sys/fs/cgroup/memory", "/docker/ab", False)


def test_the_unified_hierarchy_at_a_place_with_a_strange_name():
    hierarchy = memory_hierarchy(UNIFIED)
    assert (hierarchy.point, hierarchy.root, hierarchy.is_v2) == ("/sys/fs/cgroup of\\mine", "/", True)


@pytest.mark.parametrize("text", ["", "nonsense", "1 2 3\n", "1 2 0:3 / /x rw -", "35 31 0:32 / / rw - ext4 a b"])
def test_without_cgroups_there_is_no_hierarchy(text):
    assert memory_hierarchy(text) is None


def test_the_memory_cgroup_of_a_process():
    text = "9:name=systemd:/a\n4:cpu,memory:/b:c\n0::/d\n"
    assert memory_cgroup(text, is_v2=False) == "/b:c"
    assert memory_cgroup(text, is_v2=True) == "/d"
    assert memory_cgroup("9:name=systemd:/a\n", is_v2=True) == ""


@pytest.mark.parametrize(
    ("root", "path", "directory"),
    [
        ("/", "/", "/m"),
        ("/", "/a/b", "/m/a/b"),
        ("/a", "/a/b", "/m/b"),
        ("/a", "/a", "/m"),
        ("/a", "/ab/c", "/m"),  # another's
        ("/", "/../b", "/m"),  # beyond the namespace
        ("/", "", "/m"),
    ],
)
def test_the_directory_of_a_cgroup(root, path, directory):
    assert MemoryHierarchy("/m", root, is_v2=True).directory(path) == directory


def test_the_counters_of_both_versions_and_of_the_machine():
    assert counted_kills("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n") == 3
    assert counted_kills("oom 7\noom_kill 2\noom_group_kill 1\n") == 2
    assert counted_kills("oom_kill_disable 0\nunder_oom 0\n") is None
    assert counted_kills("oom_kill many\n") is None


def test_limits():
    assert limit_bytes("67108864\n") == 64 * MIB
    assert limit_bytes("max\n") is None
    assert limit_bytes("9223372036854771712\n") is None
    assert limit_bytes("") is None


@pytest.mark.parametrize(
    ("record", "kill"),
    [
        (kill_line(41), (41, "cgroup")),
        (kill_line(41, "Out of memory"), (41, "machine")),
        (kill_line(41, "Out of memory (oom_kill_allocating_task)"), (41, "machine")),
        ("3,812,55,-;Killed process 41 (a b) c) total-vm:1kB", (41, "")),
        ("3,812,55,-;Memory cgroup out of memory: Kill process 41 (a) score 9 or sacrifice child", None),
        ("11,812,55,-;Out of memory: Killed process 41 (a)", None),  # a program's words
        (" SUBSYSTEM=memory", None),
        ("3,812,55,-;Killed process many", None),
        ("", None),
    ],
)
def test_records_of_the_kernels_log(record, kill):
    assert logged_kill(record) == kill


# What follows


def test_a_process_that_the_log_names_was_killed_for_memory(kernel):
    kernel.cgroup("/job", 3, 64 * MIB)
    kernel.process(41, "/job")
    kernel.process(42, "/job")
    watch = kernel.watch(41, 42)
    kernel.cgroup("/job", 4, 64 * MIB)
    kernel.say("6,811,5,-;python3 invoked oom-killer\n SUBSYSTEM=x\n" + kill_line(42))
    assert watch.verdict(41) == ""
    assert watch.verdict(42) == f"{KILLED_BY_KERNEL}: its memory cgroup was at its limit of 64 MiB"


def test_the_limit_may_be_that_of_a_cgroup_above(kernel):
    kernel.cgroup("/top", 0, 2048 * MIB)
    kernel.cgroup("/top/job", 0)
    kernel.process(41, "/top/job")
    watch = kernel.watch(41)
    kernel.say(kill_line(41))
    assert watch.verdict(41).endswith("its limit of 2,048 MiB")


def test_a_machine_without_memory(kernel):
    kernel.cgroup("/job", 0, 64 * MIB)
    kernel.process(41, "/job")
    watch = kernel.watch(41)
    kernel.say(kill_line(41, "Out of memory"))
    assert watch.verdict(41) == f"{KILLED_BY_KERNEL}: the machine was out of memory"


def test_a_log_that_does_not_say_more(kernel):
    watch = kernel.watch(41)
    kernel.say("3,812,55,-;Killed process 41 (python3) total-vm:1kB\n")
    assert watch.verdict(41) == f"{KILLED_BY_KERNEL}, according to the kernel's log"


def test_what_the_log_said_before_does_not_count(kernel):
    kernel.cgroup("/job", 1)
    kernel.process(41, "/job")
    kernel.say(kill_line(41))
    assert kernel.watch(41).verdict(41) == ""


def test_without_a_log_the_cgroups_counter_decides(kernel):
    kernel.log.unlink()
    kernel.cgroup("/job", 3, 64 * MIB)
    kernel.cgroup("/other", 0)
    kernel.process(41, "/job")
    kernel.process(42, "/other")
    watch = kernel.watch(41, 42)
    kernel.cgroup("/job", 4, 64 * MIB)
    kernel.machine(1)
    assert watch.verdict(42) == ""
    assert watch.verdict(41) == f"{KILLED_BY_KERNEL}: its memory cgroup counted such a kill, and has a limit of 64 MiB"


def test_a_log_of_another_namespaces_identifiers_is_not_heard(kernel):
    kernel.namespace("pid:[4026532297]")
    kernel.cgroup("/job", 0)
    kernel.process(41, "/job")
    kernel.process(42, "/job")
    watch = kernel.watch(41, 42)
    kernel.say(kill_line(42))
    assert watch.verdict(42) == ""
    kernel.cgroup("/job", 1)
    assert watch.verdict(41) == f"{KILLED_BY_KERNEL}: its memory cgroup counted such a kill"


def test_a_kill_explains_one_process_and_does_so_again_when_asked_again(kernel):
    kernel.log.unlink()
    kernel.cgroup("/job", 0)
    for pid in (41, 42, 43):
        kernel.process(pid, "/job")
    watch = kernel.watch(41, 42, 43)
    kernel.cgroup("/job", 2)
    assert [bool(watch.verdict(pid)) for pid in (43, 41, 42, 43, 41, 42)] == [True, True, False] * 2


def test_a_kill_that_the_log_says_was_anothers_explains_nothing(kernel):
    kernel.cgroup("/job", 0)
    kernel.process(41, "/job")
    watch = kernel.watch(41)
    kernel.cgroup("/job", 1)
    kernel.say(kill_line(999))  # a child of the worker's
    assert watch.verdict(41) == ""


def test_a_log_that_is_late_makes_no_difference(kernel):
    kernel.cgroup("/job", 0)
    kernel.process(41, "/job")
    kernel.process(42, "/job")
    watch = kernel.watch(41, 42)
    kernel.cgroup("/job", 1)
    assert watch.verdict(41)
    kernel.say(kill_line(41))
    assert watch.verdict(42) == ""


def test_a_process_that_ended_before_it_was_looked_at_had_the_agents_cgroup(kernel):
    kernel.log.unlink()
    kernel.cgroup("/agent", 0)
    watch = kernel.watch(41)
    kernel.cgroup("/agent", 1)
    assert watch.verdict(41)


def test_the_machines_counter_decides_only_where_no_cgroup_counts(kernel):
    kernel.log.unlink()
    kernel.process(41, "/job")
    kernel.cgroup("/job", 0)
    beside_a_cgroup = kernel.watch(41)
    (kernel.proc / "self/mountinfo").write_text("")
    alone = kernel.watch(41)
    kernel.machine(1)
    assert beside_a_cgroup.verdict(41) == ""
    assert alone.verdict(41) == f"{KILLED_BY_KERNEL}: the machine counted such a kill during its run"


def test_a_machine_that_says_nothing(tmp_path):
    watch = OomWatch([41], proc=str(tmp_path), kernel_log=str(tmp_path / "kmsg"))
    assert watch.verdict(41) == ""
    watch.close()


def test_in_version_1_a_kill_above_is_not_one_of_this_cgroup(v1):
    v1.log.unlink()
    v1.cgroup("/top", 0)
    v1.cgroup("/top/job", 0)
    v1.process(41, "/top/job")
    watch = v1.watch(41)
    v1.cgroup("/top", 1)
    assert watch.verdict(41) == ""


def test_in_version_2_the_nearest_cgroup_that_counts_decides(v2):
    v2.log.unlink()
    v2.cgroup("/top", 0)
    v2.process(41, "/top/job")  # without a controller of its own
    v2.process(42, "/top")
    watch = v2.watch(41, 42)
    v2.cgroup("/top", 1)
    assert watch.verdict(41)
    assert watch.verdict(42) == ""


def test_in_version_2_a_cgroup_that_is_gone_was_counted_above(v2):
    v2.log.unlink()
    v2.cgroup("/top", 0)
    v2.cgroup("/top/job", 0)
    v2.process(41, "/top/job")
    watch = v2.watch(41)
    v2.cgroup("/top", 1)
    (v2.cgroups / "top/job/memory.events").unlink()
    assert watch.verdict(41)


# With the real kernel


@pytest.fixture
def small_cgroup():
    cgroup = MemoryCgroup(96 * MIB)
    yield cgroup
    cgroup.close()


@pytest.fixture
def in_cgroup(small_cgroup):
    """Runs a program in the small cgroup; returns the process."""
    started = []

    def run(program):
        process = subprocess.Popen(small_cgroup.command([sys.executable, "-c", program]), stdin=subprocess.PIPE)
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.root
@pytest.mark.parametrize("log", ["/dev/kmsg", os.devnull])
def test_a_process_that_eats_too_much_is_told_from_one_that_is_killed(in_cgroup, small_cgroup, log):
    waiting = in_cgroup("import sys; sys.stdin.read()")
    hungry = in_cgroup(f"import sys; sys.stdin.read()\n{EAT}")
    while not all(os.path.basename(small_cgroup.directory) in _cgroups(each) for each in (waiting, hungry)):
        os.sched_yield()
    watch = OomWatch([waiting.pid, hungry.pid], kernel_log=log)
    hungry.communicate(timeout=DEADLINE_S)
    waiting.kill()
    waiting.communicate(timeout=DEADLINE_S)
    assert (hungry.returncode, waiting.returncode) == (-9, -9)
    verdict = watch.verdict(hungry.pid)
    assert watch.verdict(waiting.pid) == ""
    assert verdict.startswith(KILLED_BY_KERNEL)
    assert "96 MiB" in verdict
    watch.close()


def _cgroups(process):
    with open(f"/proc/{process.pid}/cgroup") as file:
        return file.read()
