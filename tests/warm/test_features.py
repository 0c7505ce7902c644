"""What else there is works as ever when workers are forked."""

from __future__ import annotations

import json
import re
import signal

import pytest
from warm_jobs import SUPPORT, free_port

WARM = "import sys\nIS_WARM = 'library_of_test' in sys.modules\nimport library_of_test\nassert IS_WARM\n"


@pytest.fixture(autouse=True)
def library(jobs):
    jobs.env["PYTHONPATH"] = jobs.directory / "installed" / "site-packages"
    jobs.file("installed/site-packages/library_of_test.py", "")


def test_a_tee_with_prefixes(jobs):
    script = jobs.file("script.py", f"{WARM}print('hello')\nprint('there', file=sys.stderr)\n")
    ended = jobs.warm(script, nproc=2, options=("-t", "3"))
    assert sorted(ended.stdout.splitlines()) == ["[default0]:hello", "[default1]:hello"]
    assert [worker.stdout for worker in ended.workers] == ["hello\n", "hello\n"]
    assert [worker.stderr for worker in ended.workers] == ["there\n", "there\n"]


def test_output_that_is_not_redirected(jobs):
    script = jobs.file("script.py", f"{WARM}sys.stdout.write('hello\\n')\nsys.stderr.write('there\\n')\n")
    ended = jobs.warm(script, nproc=2, options=())
    assert ended.stdout == "hello\nhello\n"
    assert ended.stderr.count("there\n") == 2


def test_a_script_that_is_run_as_a_function_has_its_own_imports(jobs):
    script = jobs.file("script.py", f"{WARM}print(sys.argv[1:], __name__)\n")
    ended = jobs.warm(script, "a", nproc=2, options=("-r", "3", "--run-path"))
    assert ended.code == 0, ended.stderr
    assert [worker.stdout for worker in ended.workers] == ["['a'] __main__\n"] * 2


def test_a_failure_explains_itself(jobs):
    script = jobs.file("script.py", f"{WARM}def f():\n    raise ValueError('the reason')\nf()\n")
    ended = jobs.warm(script)
    assert re.search(r"kind\s+: exception", ended.stderr)
    assert re.search(r"where\s+: .*script\.py:6 in f", ended.stderr)
    assert "ValueError: the reason" in ended.workers[0].error["message"]["message"]
    assert "warm/" not in ended.workers[0].stderr + ended.workers[0].error["message"]["extraInfo"]["py_callstack"]


@pytest.mark.parametrize("library_does", ["", "import faulthandler\nfaulthandler.enable()\n"])
def test_a_native_crash_leaves_its_stacks(jobs, library_does):
    jobs.file("installed/site-packages/library_of_test.py", library_does)
    script = jobs.file("script.py", f"{WARM}import ctypes\ndef crash():\n    ctypes.string_at(0)\ncrash()\n")
    ended = jobs.warm(script)
    assert ended.exit_codes == ["-11"]
    assert re.search(r"kind\s+: crash", ended.stderr)
    if library_does:
        assert "in crash" in ended.workers[0].stderr
    else:
        assert re.search(r"where\s+: .*script\.py:7 in crash", ended.stderr)


def test_stacks_on_request(jobs):
    script = jobs.file(
        "script.py",
        f"{WARM}import os, signal, threading\n"
        "def wait(): threading.Event().wait()\n"
        "threading.Thread(target=wait, daemon=True).start()\n"
        "os.kill(os.getpid(), signal.SIGRTMIN + 12)\n"
        "print(open(os.environ['HOLDFAST_WORKER_PAGE'] + '.stacks').read())\n",
    )
    text = jobs.warm(script).workers[0].stdout
    assert "in wait" in text
    assert 'script.py", line 8 in <module>' in text


@pytest.mark.parametrize(
    "package", ["holdfast.watchdog", pytest.param("torch.distributed.elastic.timer", marks=pytest.mark.torch)]
)
def test_a_timer_that_expires(jobs, package):
    script = jobs.file(
        "script.py",
        f"{WARM}import os, signal\nfrom {package} import FileTimerClient, configure, expires\n"
        "configure(FileTimerClient(os.environ['TORCHELASTIC_TIMER_FILE']))\n"
        "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':\n"
        "    with expires(after=0.2, scope='the slow part'):\n"
        "        while True: signal.pause()\n"
        "print('done')\n",
    )
    options = ("-r", "3", "--max-restarts", "1")
    ended = jobs.warm(script, options=options, env={"TORCHELASTIC_ENABLE_FILE_TIMER": "1"})
    assert ended.code == 0, ended.stderr
    assert ended.workers[0].stdout == "done\n"
    assert len(ended.attempts) == 2


def test_a_worker_that_listens_is_asked_to_stop(jobs, post):
    script = jobs.file(
        "script.py",
        f"{WARM}sys.path.insert(0, {SUPPORT!r})\nfrom signpost import tell\nfrom holdfast import worker\nimport time\n"
        f"worker.heartbeat(1)\nworker.stop_requested()\ntell({post.path!r}, 'ready')\n"
        "while not worker.stop_requested():\n    time.sleep(0.01)\nprint('saved', worker.rank())\n",
    )
    job = jobs.start(script, options=("--warm", "-r", "3"), nproc=2)
    post.lines(2)
    job.send_signal(signal.SIGTERM)
    ended = jobs.wait(job)
    assert [worker.stdout for worker in ended.workers] == ["saved 0\n", "saved 1\n"]


def test_a_hang_is_found(jobs):
    script = jobs.file(
        "script.py",
        f"{WARM}import os, signal\nif os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':\n"
        "    while True: signal.pause()\n",
    )
    ended = jobs.warm(script, options=("-r", "3", "--hang-timeout", "1", "--max-restarts", "1"))
    assert ended.code == 0, ended.stderr
    (stacks,) = ended.logs.rglob("stacks/*.json")
    assert "script.py" in stacks.read_text()


def test_what_the_run_leaves_says_the_same(jobs):
    """The events of the run name processes that there were."""
    script = jobs.file("script.py", f"{WARM}import os\nprint(os.getpid())\n")
    ended = jobs.warm(script, nproc=2)
    (events,) = ended.logs.rglob("events.jsonl")
    started = [json.loads(line) for line in events.read_text().splitlines() if "holdfast.attempt.started" in line]
    details = started[0]["metadata"]["details"]
    assert details["pids"] == [int(worker.stdout) for worker in ended.workers]


MESH = """
import torch, os
import torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(total)
print(int(total), dist.get_world_size())
dist.destroy_process_group()
"""


@pytest.mark.torch
def test_workers_that_meet(jobs):
    ended = jobs.warm(jobs.file("script.py", MESH), nproc=3)
    assert [worker.stdout for worker in ended.workers] == ["6 3\n"] * 3


@pytest.mark.torch
@pytest.mark.parametrize("nproc", [1, 2])
def test_torch_computes_after_a_fork_with_as_many_threads_as_ever(jobs, nproc):
    source = (
        "import torch\nx = torch.rand(500, 500, requires_grad=True)\n(x @ x).sum().backward()\n"
        "print(x.grad.shape, torch.linalg.svd(x[:64, :64].detach()).S.shape, torch.cuda._is_in_bad_fork())\n"
        "print(torch.get_num_threads())\n"
    )
    cold, warm = jobs.both(jobs.file("script.py", source), nproc=nproc)
    assert cold.workers[0].stdout.count("\n") == 2
    assert [worker.stdout for worker in warm.workers] == [worker.stdout for worker in cold.workers]


def test_two_nodes(jobs, post):
    """Each has a template, and the second a warm one before it is needed."""
    port = free_port()
    script = jobs.file(
        "script.py",
        f"{WARM}import os\nsys.path.insert(0, {SUPPORT!r})\nfrom signpost import tell\n"
        f"tell({post.path!r}, os.environ['RANK'] + ' of ' + os.environ['WORLD_SIZE'])\nimport signal\n"
        "while os.environ['WORLD_SIZE'] == '1': signal.pause()\n",
    )
    options = ("--warm", "-r", "3", "--nnodes", "1:2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}")
    options = (*options, "--rdzv-id", "pair", "--rdzv-conf", "last_call_timeout=0.1")
    first = jobs.start(script, options=options)
    assert post.line() == "0 of 1"
    second = jobs.start(script, options=options)
    assert sorted(post.lines(2)) == ["0 of 2", "1 of 2"]
    assert [jobs.wait(job).code for job in (first, second)] == [0, 0]
