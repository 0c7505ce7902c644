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
    "source", [PLAIN, *(pytest.param(source, marks=pytest.mark.torch) for source in (NUMPY, TORCH))]
)
@pytest.mark.parametrize("nproc", [1, 3])
def test_numbers_differ_between_workers_attempts_and_runs(jobs, source, nproc):
    script = jobs.file(
        "script.py", f"{source}\nimport os, sys\nsys.exit(os.environ['TORCHELASTIC_RESTART_COUNT'] == '0')"
    )
    options = ("-r", "3", "--max-restarts", "1")
    found = []
    for ended in (jobs.warm(script, nproc=nproc, options=options), jobs.warm(script, nproc=nproc, options=options)):
        complete = [worker.stdout.splitlines() for attempt in ended.attempts for worker in attempt]
        found += [each for each in complete if len(each) == len(complete[-1])]
    assert len(found) >= 2 + 2 * nproc
    for values in zip(*found, strict=True):
        assert len(set(values)) == len(found), values


@pytest.mark.torch
@pytest.mark.parametrize("nproc", [1, 2])
def test_torch_has_as_many_threads_as_ever(jobs, nproc):
    source = "import torch\nx = torch.rand(500, 500) @ torch.rand(500, 500)\nprint(torch.get_num_threads())\n"
    script = jobs.file("script.py", source)
    assert lines(jobs.warm(script, nproc=nproc)) == lines(jobs.cold(script, nproc=nproc))


def test_a_seed_that_is_given_holds(jobs):
    script = jobs.file("script.py", f"import random\nrandom.seed(5)\nprint(random.random())\n{HASH}")
    env = {"PYTHONHASHSEED": "42"}
    assert lines(jobs.warm(script, nproc=2, env=env)) == lines(jobs.cold(script, nproc=2, env=env))


def test_hashes_of_text_are_the_same_in_all_workers_of_a_run_and_others_in_the_next(jobs):
    script = jobs.file("script.py", HASH)
    one, same, other, _ = lines(jobs.warm(script, nproc=2), jobs.warm(script, nproc=2))
    assert one == same
    assert one != other
