"""What no two processes share, they do not share because they were forked from one."""

from __future__ import annotations

import pytest

PLAIN = """
import multiprocessing, os, random, secrets, tempfile, threading, uuid
process = multiprocessing.current_process()
print(random.random(), bytes(process.authkey).hex(), secrets.token_hex(8), uuid.uuid4(), uuid.uuid1(), os.getpid(),
      next(tempfile._get_candidate_names()), sep="\\n")
"""

NUMPY = "import numpy as np\nprint(np.random.rand(), np.random.default_rng().random(), sep='\\n')\n"

TORCH = "import torch\nprint(torch.initial_seed(), torch.rand(3).tolist(), sep='\\n')\n"

HASH = "print(hash('text'), hash(b'bytes'))\n"


def lines(*endings):
    return [worker.stdout.splitlines() for ended in endings for worker in ended.workers]


@pytest.mark.parametrize(
    ("source", "nproc"),
    [(PLAIN, 1), (PLAIN, 3), pytest.param(NUMPY + TORCH, 3, marks=pytest.mark.torch)],
    ids=["one", "plain", "torch"],
)
def test_numbers_differ_between_workers_attempts_and_runs(jobs, source, nproc):
    script = jobs.file(
        "script.py", f"{source}\nimport os, sys\nsys.exit(os.environ['TORCHELASTIC_RESTART_COUNT'] == '0')"
    )
    options = ("--warm", "-r", "3", "--max-restarts", "1")
    runs = [jobs.start(script, nproc=nproc, options=options) for _ in range(2)]
    found = []
    for ended in map(jobs.wait, runs):
        assert ended.starts == 1, ended.stderr
        complete = [worker.stdout.splitlines() for attempt in ended.attempts for worker in attempt]
        found += [each for each in complete if len(each) == len(complete[-1])]
    assert len(found) >= 2 + 2 * nproc
    for values in zip(*found, strict=True):
        assert len(set(values)) == len(found), values


def test_a_seed_that_is_given_holds(jobs):
    script = jobs.file("script.py", f"import random\nrandom.seed(5)\nprint(random.random())\n{HASH}")
    env = {"PYTHONHASHSEED": "42"}
    cold, warm = jobs.both(script, nproc=2, env=env)
    assert lines(warm) == lines(cold)


def test_hashes_of_text_are_the_same_in_all_workers_of_a_run_and_others_in_the_next(jobs):
    script = jobs.file("script.py", HASH)
    one, same, other, _ = lines(jobs.warm(script, nproc=2), jobs.warm(script, nproc=2))
    assert one == same
    assert one != other
