"""Every way to fail, as a job that really fails so: what the verdict says of it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from failing_jobs import SCRIPT, FailingJobs, Way
from memory_cgroup import EAT, MIB, MemoryCgroup
from ways_to_fail import KILLS, WAYS


@pytest.fixture
def jobs(tmp_path):
    made = FailingJobs(tmp_path)
    yield made
    made.close()


def check(way, outcome):
    """The verdict has the cause in full, each failure has an event, and the terminal shows it."""
    verdict = outcome.verdict
    assert verdict is not None, outcome
    cause = verdict["cause"]
    assert (cause["kind"], cause["rank"], cause["exception"]) == (way.kind, way.rank, way.exception), outcome
    position = 0
    for text in way.text:
        position = cause["message"].find(text, position)
        assert position >= 0, (text, cause["message"])
    assert way.where in cause["where"], cause["where"]
    assert bool(way.where) == bool(cause["where"]), cause["where"]
    assert verdict["victims"] == way.victims, outcome
    assert verdict["decision"] == "stop", outcome
    failures = outcome.details("holdfast.failure")
    assert len(failures) == 1 + way.victims, outcome
    assert way.rank in [failure["rank"] for failure in failures]
    check_terminal(way, outcome)


def check_terminal(way, outcome):
    """The block at the end shows the same."""
    assert outcome.exit_code == way.exit_code, outcome
    _, found, block = outcome.stderr.partition("Root Cause (first observed failure):")
    assert found, outcome
    victims = ("victims   : 1 more worker failed with it",) if way.victims else ()
    shown = (f"rank      : {way.rank} ", f"kind      : {way.kind}", way.where, *victims, *way.text)
    assert [text for text in shown if text not in block] == [], outcome


@pytest.mark.parametrize("way", WAYS, ids=repr)
def test_a_job_that_fails_says_how(way, jobs):
    check(way, jobs.run(way))


OUT_OF_MEMORY = Way(
    "out of memory",
    EAT,
    "out of memory",
    "Signal 9 (SIGKILL)",
    "killed by the kernel's out-of-memory killer",
    "160 MiB",
    "its peak memory was",
)


@pytest.fixture
def small_cgroup():
    cgroup = MemoryCgroup(160 * MIB)
    yield cgroup
    cgroup.close()


@pytest.mark.root
def test_a_worker_that_the_kernel_ends_for_its_memory(small_cgroup, jobs):
    check(OUT_OF_MEMORY, jobs.run(OUT_OF_MEMORY, command=small_cgroup.command))


@pytest.mark.root
def test_a_worker_that_is_killed_where_memory_is_short_has_not_run_out_of_it(small_cgroup, jobs):
    check(KILLS[0], jobs.run(KILLS[0], command=small_cgroup.command))


FUNCTION = Way(
    "in a function",
    """
    from holdfast.launcher import LaunchConfig, elastic_launch
    from holdfast.processes import DefaultLogsSpecs

    def train(epochs):
        raise ValueError(f"{epochs} epochs are too many")

    if __name__ == "__main__":
        logs = DefaultLogsSpecs(log_dir="logs")
        config = LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node=1, max_restarts=0, logs_specs=logs)
        elastic_launch(config, train)(3)
    """,
    "exception",
    "ValueError: 3 epochs are too many",
    exception="ValueError",
    where=f"{SCRIPT}:5 in train",
)


def test_a_function_that_fails_says_how(jobs):
    check(FUNCTION, jobs.run(FUNCTION, command=lambda _: [sys.executable, SCRIPT]))


@pytest.fixture
def small_disk(tmp_path):
    directory = tmp_path / "disk"
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", directory], check=True)
    yield directory
    subprocess.run(["umount", directory], check=True)


FULL_DISK = Way(
    "with no room for the error file",
    """
    import os
    with open("disk/filler", "wb", buffering=0) as filler:
        try:
            while filler.write(b"x" * 512):
                pass
        except OSError:
            pass
    raise ValueError("there is no room")
    """,
    "exception",
    "Traceback (most recent call last):",
    "ValueError: there is no room",
    exception="ValueError",
    where=f"{SCRIPT}:8",
)


@pytest.mark.root
def test_a_disk_that_is_full_hides_nothing(small_disk, jobs):
    jobs.log_dir = str(small_disk / "logs")
    check_terminal(FULL_DISK, jobs.run(FULL_DISK))


@pytest.mark.parametrize(
    ("words", "environment", "text"),
    [
        (("--no-python", "./missing"), {}, "no such program"),
        (("missing.py",), {}, "no such file"),
        ((SCRIPT,), {"PYTHON_EXEC": "./missing"}, "no such program"),
        ((SCRIPT,), {"PYTHON_EXEC": "./not-a-program"}, "Exec format error"),
        (("--no-python", "./of-no-interpreter"), {}, "of-no-interpreter"),
    ],
    ids=["program", "script", "interpreter", "no program", "no interpreter of it"],
)
def test_what_cannot_be_run_is_said_in_one_line(words, environment, text, jobs):
    way = Way(
        "missing",
        "",
        "",
        words=words,
        environment=environment,
        files={"not-a-program": "\x7fnonsense\n", "of-no-interpreter": "#!/nowhere/python\n"},
    )
    outcome = jobs.run(way)
    assert outcome.exit_code == 2, outcome
    assert outcome.stderr.startswith("holdfast run: error: ")
    assert outcome.stderr.count("\n") == 1
    assert text in outcome.stderr
    assert outcome.verdict is None
