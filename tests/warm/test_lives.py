"""The template's own life: it is made anew when it must be, costs no attempt when it dies, and leaves nothing."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys

import pytest
from liveness import exists, wait_for_end
from warm_jobs import SUPPORT, environment

BEGIN = f"""
import sys
IS_WARM = "library_of_test" in sys.modules
import library_of_test, os
sys.path.insert(0, {SUPPORT!r})
from signpost import tell
ATTEMPT = int(os.environ["TORCHELASTIC_RESTART_COUNT"])

def parent_of(pid):
    with open(f"/proc/{{pid}}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])

KEEPER = os.getppid()
TEMPLATE = parent_of(KEEPER) if IS_WARM else 0
AGENT = parent_of(TEMPLATE) if IS_WARM else parent_of(KEEPER)
print("warm" if IS_WARM else "cold", getattr(library_of_test, "VALUE", None))
"""

AGAIN = ("--warm", "-r", "3", "--restart-policy", "always", "--max-restarts")


@pytest.fixture
def library(jobs):
    """Makes an installed module."""
    jobs.env["PYTHONPATH"] = jobs.directory / "installed" / "site-packages"

    def make(source, name="library_of_test.py"):
        return jobs.file(f"installed/site-packages/{name}", source)

    make("VALUE = 0\n")
    return make


def attempts(ended):
    return [worker.stdout.splitlines()[0] for attempt in ended.attempts for worker in attempt]


def test_a_template_that_is_killed_costs_one_cold_start(jobs, library):
    script = jobs.file(
        "script.py",
        f"{BEGIN}\nif ATTEMPT == 0: os.kill(TEMPLATE, 9)\nsys.exit(ATTEMPT < 3)\n",
    )
    ended = jobs.run(script, options=(*AGAIN, "3"))
    assert ended.code == 0, ended.stderr
    assert attempts(ended) == ["warm 0", "cold 0", "warm 0", "warm 0"]
    assert [remark for remark in ended.remarks if "imported" not in remark] == [
        "the template has died (SIGKILL): workers start cold this time"
    ]


def test_a_template_that_is_killed_has_no_effect_on_workers(jobs, library, post):
    script = jobs.file("script.py", f"{BEGIN}\nos.kill(TEMPLATE, 9)\ntell({post.path!r}, os.getpid())\nsys.exit(0)\n")
    job = jobs.start(script, options=("--warm", "-r", "3"), nproc=1)
    pid = post.pids(1)[0]
    assert jobs.wait(job).code == 0
    assert not exists(pid)


def test_a_template_that_is_stopped_goes_on_when_it_is_needed(jobs, library):
    script = jobs.file(
        "script.py",
        f"import signal\n{BEGIN}\nif ATTEMPT == 0: os.kill(TEMPLATE, signal.SIGSTOP)\nsys.exit(ATTEMPT < 1)\n",
    )
    ended = jobs.run(script, options=(*AGAIN, "1"))
    assert attempts(ended) == ["warm 0", "warm 0"]


def test_a_module_that_has_changed_is_imported_anew(jobs, library):
    path = library("VALUE = 0\n")
    script = jobs.file(
        "script.py",
        f"{BEGIN}\nvalue = 'new' + ATTEMPT * 'er'\n"
        f"if ATTEMPT < 2:\n    with open({path!r}, 'w') as file: file.write(f'VALUE = {{value!r}}')\n"
        "sys.exit(ATTEMPT < 3)\n",
    )
    ended = jobs.run(script, options=(*AGAIN, "3"))
    assert attempts(ended) == ["warm 0", "warm new", "warm newer", "warm newer"]
    assert ended.remarks.count(f"{path} has changed: a new template is made") == 2


def test_a_module_of_the_project_that_was_named_and_has_changed(jobs, library):
    path = jobs.file("own/own_of_test.py", "VALUE = 0\n")
    script = jobs.file(
        "script.py",
        f"{BEGIN}\nimport own_of_test\nprint(own_of_test.VALUE)\n"
        f"if ATTEMPT == 0:\n    with open({path!r}, 'w') as file: file.write('VALUE = 1111')\nsys.exit(ATTEMPT < 1)\n",
    )
    env = {"PYTHONPATH": f"own:{jobs.env['PYTHONPATH']}"}
    ended = jobs.run(script, options=(*AGAIN, "1", "--warm-imports", "own_of_test,library_of_test"), env=env)
    assert [attempt[0].stdout.splitlines() for attempt in ended.attempts] == [["warm 0", "0"], ["warm 0", "1111"]]


def test_a_module_that_was_named_and_cannot_be_imported_is_left_to_the_workers(jobs, library):
    jobs.file("own/broken_of_test.py", "import misspelt_of_test\n")
    script = jobs.file("script.py", f"{BEGIN}\nprint('it ran')\n")
    env = {"PYTHONPATH": f"own:{jobs.env['PYTHONPATH']}"}
    options = ("--warm-imports", "library_of_tset,library_of_test,broken_of_test", "-r", "3")
    ended = jobs.run(script, options=options, env=env)
    assert ended.workers[0].stdout == "warm 0\nit ran\n"
    assert (
        "--warm-imports: no module named 'library_of_tset'; 'broken_of_test' cannot be imported (ModuleNotFoundError); "
        "workers will import it themselves"
    ) in ended.remarks


def test_modules_of_the_project_are_always_those_on_disk(jobs, library):
    path = jobs.file("own_of_test.py", "VALUE = 0\n")
    script = jobs.file(
        "script.py",
        f"{BEGIN}\nimport own_of_test\nprint(own_of_test.VALUE)\n"
        f"if ATTEMPT == 0:\n    with open({path!r}, 'w') as file: file.write('VALUE = 1111')\nsys.exit(ATTEMPT < 1)\n",
    )
    ended = jobs.run(script, options=(*AGAIN, "1"))
    assert [attempt[0].stdout.splitlines() for attempt in ended.attempts] == [["warm 0", "0"], ["warm 0", "1111"]]
    assert len(ended.remarks) == 1


def test_the_script_itself_may_change(jobs, library):
    path = jobs.directory / "script.py"
    jobs.file("script.py", f"{BEGIN}\nos.rename('next.py', {str(path)!r})\nsys.exit(1)\n")
    jobs.file("next.py", f"{BEGIN}\nprint('next')\n")
    ended = jobs.run("script.py", options=(*AGAIN, "1"))
    assert ended.workers[0].stdout == "warm 0\nnext\n"


def test_a_script_that_comes_to_set_variables_before_its_imports(jobs, library):
    library("import os\nVALUE = os.environ.get('NEW_OF_TEST')\n")
    path = jobs.file("script.py", f"{BEGIN}\nos.rename('next.py', 'script.py')\nsys.exit(1)\n")
    jobs.file("next.py", f"import os\nos.environ['NEW_OF_TEST'] = 'set'\n{BEGIN}")
    ended = jobs.run("script.py", options=(*AGAIN, "1"))
    assert attempts(ended) == ["warm None", "warm set"]
    assert f"{path} has changed: a new template is made" in ended.remarks


def test_a_module_that_changes_while_it_is_imported(jobs, library):
    """Nobody can tell which of the two was imported."""
    library("VALUE = 0\nwith open(__file__, 'w') as file: file.write('VALUE = 1')\n")
    ended = jobs.run(jobs.file("script.py", f"{BEGIN}\nsys.exit(ATTEMPT < 1)\n"), options=(*AGAIN, "1"))
    assert attempts(ended) == ["warm 0", "warm 1"]


def test_a_file_that_comes_to_hide_a_module(jobs, library):
    library("import queue\nVALUE = queue.__file__.rpartition('/')[2] if hasattr(queue, 'OWN') else 0\n")
    script = jobs.file(
        "script.py",
        f"{BEGIN}\nif ATTEMPT == 0:\n    with open('queue.py', 'w') as file: file.write('OWN = 1')\n"
        "sys.exit(ATTEMPT < 1)\n",
    )
    ended = jobs.run(script, options=(*AGAIN, "1"))
    assert attempts(ended) == ["warm 0", "cold queue.py"]


def test_twenty_restarts_leave_nothing_behind(jobs, library):
    """Neither the agent nor the template holds more after each, and nobody is a zombie."""
    script = jobs.file(
        "script.py",
        f"{BEGIN}\n"
        "def held(pid): return len(os.listdir(f'/proc/{pid}/fd'))\n"
        "with open(f'/proc/{TEMPLATE}/task/{TEMPLATE}/children') as file: children = file.read().split()\n"
        "print(held(AGENT), held(TEMPLATE), held(KEEPER), held('self'), children == [str(KEEPER)])\n"
        "sys.exit(ATTEMPT < 20)\n",
    )
    ended = jobs.run(script, options=(*AGAIN, "20"))
    assert ended.code == 0, ended.stderr
    seen = [attempt[0].stdout.splitlines() for attempt in ended.attempts]
    assert len(seen) == 21
    assert {first for first, _ in seen} == {"warm 0"}
    assert {second.split()[-1] for _, second in seen} == {"True"}
    # The first workers run before the agent writes its events, and later ones while it closes what it had for the last.
    for counts in zip(*(second.split()[:-1] for _, second in seen[1:]), strict=True):
        assert max(map(int, counts)) - min(map(int, counts)) <= 3, seen


def test_workers_that_differ_from_attempt_to_attempt(jobs, library):
    """Arguments, environment and output are those of the attempt, not those of the template."""
    script = jobs.file(
        "script.py",
        f"{BEGIN}\nprint(sys.argv[1:], *map(os.environ.get, ['RANK', 'MASTER_PORT', 'HOLDFAST_WORKER_PAGE']))\n"
        "sys.exit(ATTEMPT < 2)\n",
    )
    ended = jobs.run(script, "--at", "${local_rank}", options=(*AGAIN, "2"), nproc=2)
    lines = [worker.stdout.splitlines()[1] for attempt in ended.attempts for worker in attempt if worker.stdout]
    assert lines[0].startswith("['--at', '0'] 0 ") or lines[0].startswith("['--at', '1'] 1 ")
    assert len(set(lines)) == len(lines)


# Ends

GRANDCHILD = """
import os, sys, time
sys.path.insert(0, {support!r})
from signpost import tell
if os.fork():
    os._exit(0)
os.setsid()
tell({post!r}, f"grandchild {{os.getpid()}}")
while True:
    time.sleep(1000)
"""

FAMILY = """
import signal, subprocess
subprocess.Popen([sys.executable, {grandchild!r}], start_new_session=True).wait()
tell({post!r}, f"worker {{os.getpid()}}")
tell({post!r}, f"keeper {{KEEPER}}")
tell({post!r}, f"template {{TEMPLATE}}")
while True:
    signal.pause()
"""


@pytest.fixture
def gone():
    """What is given to it must be gone; and is, after a test that failed."""
    pids = []

    def check(found):
        pids.extend(found)
        assert wait_for_end(found) == []

    check.in_the_end = pids.append
    yield check
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def family(jobs, post, gone, nproc=2):
    """A job whose workers have grandchildren, and the processes of it by what they are."""
    grandchild = jobs.file("grandchild.py", GRANDCHILD.format(support=SUPPORT, post=post.path))
    script = jobs.file("script.py", BEGIN + FAMILY.format(post=post.path, grandchild=grandchild))
    job = jobs.start(script, options=("--warm", "-r", "3"), nproc=nproc)
    found = {}
    for line in post.lines(4 * nproc):
        what, pid = line.split()
        found.setdefault(what, set()).add(int(pid))
        gone.in_the_end(int(pid))
    return job, found


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL], ids=lambda signum: signum.name)
def test_when_the_agent_is_ended_all_processes_are(jobs, library, post, gone, signum):
    job, found = family(jobs, post, gone)
    pids = sorted(set.union(*found.values()))
    assert len(pids) == 6
    job.send_signal(signum)
    ended = jobs.wait(job)
    assert ended.code == (-9 if signum == signal.SIGKILL else 128 + signum)
    gone(pids)


def test_when_the_keeper_is_killed_the_attempt_fails_and_nothing_is_left(jobs, library, post, gone):
    job, found = family(jobs, post, gone, nproc=1)
    os.kill(min(found["keeper"]), signal.SIGKILL)
    ended = jobs.wait(job)
    assert "was killed from outside" in ended.stderr
    # The template is there to end what is in a session of its own.
    gone(sorted(set.union(*found.values())))


IMPORTING = """
import os, sys, time
sys.path.insert(0, {support!r})
from signpost import tell
sys.path.pop(0)
tell({post!r}, os.getpid())
while True:
    time.sleep(1000)
"""


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL], ids=lambda signum: signum.name)
def test_when_the_agent_is_ended_during_the_imports_the_template_is(jobs, library, post, gone, signum):
    library(IMPORTING.format(support=SUPPORT, post=post.path))
    job = jobs.start(jobs.file("script.py", BEGIN), options=("--warm", "-r", "3"))
    template = post.pids(1)
    job.send_signal(signum)
    ended = jobs.wait(job)
    assert ended.code == (-9 if signum == signal.SIGKILL else 128 + signum)
    assert "Traceback" not in ended.stderr
    gone(template)


DAEMON = """
import os, sys, time
sys.path.insert(0, {support!r})
from signpost import tell
sys.path.pop(0)
if "-c" in sys.orig_argv:
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(writer, str(os.getpid()).encode())
            time.sleep(1000)
        os._exit(0)
    tell({post!r}, os.read(reader, 100).decode())
    os.wait()
    os.close(reader)
    os.close(writer)
"""


def test_a_daemon_that_an_import_has_started_is_ended_with_the_template(jobs, library, post, gone):
    library(DAEMON.format(support=SUPPORT, post=post.path))
    job = jobs.start(jobs.file("script.py", BEGIN), options=("--warm", "-r", "3"))
    daemon = post.pids(1)
    ended = jobs.wait(job)
    assert ended.code == 0, ended.stderr
    assert ended.remarks == ["no warm start: import library_of_test started a process"]
    gone(daemon)


def test_a_key_on_the_terminal_reaches_only_the_agent(jobs, library, post, gone):
    library(IMPORTING.format(support=SUPPORT, post=post.path))
    job = jobs.start(jobs.file("script.py", BEGIN), options=("--warm", "-r", "3"))
    template = post.pids(1)
    os.killpg(job.pid, signal.SIGINT)
    ended = jobs.wait(job)
    assert ended.code == 128 + signal.SIGINT
    assert "KeyboardInterrupt" not in ended.stderr
    gone(template)


AGENT_IN_A_THREAD = """
import sys, threading
from holdfast.launcher import LaunchConfig, elastic_launch
from holdfast.processes import DefaultLogsSpecs
config = LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node=1, max_restarts=0, warm=True,
                      logs_specs=DefaultLogsSpecs(log_dir=sys.argv[1]))
def run():
    elastic_launch(config, sys.executable)("-u", sys.argv[2])
    print("done", flush=True)
thread = threading.Thread(target=run)
thread.start()
thread.join()
"""


def test_an_agent_in_a_thread_that_is_killed_during_the_imports(jobs, library, post, gone):
    library(IMPORTING.format(support=SUPPORT, post=post.path))
    words = [sys.executable, jobs.file("agent.py", AGENT_IN_A_THREAD), jobs.directory / "logs"]
    with subprocess.Popen(
        [*words, jobs.file("script.py", BEGIN)], env=environment(TMPDIR=jobs.directory, **jobs.env)
    ) as agent:
        template = post.pids(1)
        agent.kill()
    gone(template)


def test_an_agent_that_is_not_in_the_main_thread(jobs, library, post, gone):
    script = jobs.file("script.py", f"{BEGIN}\ntell({post.path!r}, TEMPLATE)\n")
    agent = jobs.file("agent.py", AGENT_IN_A_THREAD)
    ended = subprocess.run(
        [sys.executable, agent, jobs.directory / "logs", script],
        env=environment(TMPDIR=jobs.directory, **jobs.env),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.stdout == "warm 0\ndone\n", ended.stderr
    gone(post.pids(1))
