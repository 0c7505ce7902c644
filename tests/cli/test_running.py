"""Jobs from the command line to their end, in real processes."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys

import pytest
from liveness import wait_for_end
from signpost import Signpost

from holdfast.cli import main, parse_args, run
from holdfast.cli.running import ERROR_VARIABLES
from holdfast.errors import ChildFailedError, InputError
from holdfast.errors.error_file import PATH_VARIABLE
from holdfast.errors.handler import HANDLER_VARIABLE

DEADLINE_S = 120

# In one piece, since the lines of workers would otherwise come in pieces that are mixed.
SHOW = """
import os, sys
sys.stdout.write(f"{os.environ['RANK']} {os.environ['WORLD_SIZE']} {__name__} {sys.argv[1:]}\\n")
sys.stdout.flush()
"""

WAIT = """
import os, signal
with open(os.environ["POST"], "w") as post:
    post.write(f"{os.getpid()}\\n")
while True:
    signal.pause()
"""

PIPES = """
import os
page = os.environ["HOLDFAST_WORKER_PAGE"]
for suffix in (".stacks", ".ended"):
    if os.path.exists(page + suffix):
        os.unlink(page + suffix)
    os.mkfifo(page + suffix)
os.abort()
"""

PRINTED_LINES = 5000

PRINT = """
import os, signal, sys
attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
for number in range(5000):
    sys.stdout.write(f"attempt {attempt} line {number} {'x' * 60}\\n")
sys.stdout.flush()
if "CODE" in os.environ:
    sys.exit(int(os.environ["CODE"]))
with open(os.environ["POST"], "w") as post:
    post.write(f"{attempt} {os.getpid()}\\n")
while True:
    signal.pause()
"""


def printed(attempt):
    return [f"[default0]:attempt {attempt} line {number} {'x' * 60}" for number in range(PRINTED_LINES)]


class StuckConsole:
    """A pipe that takes nothing until `lines` reads it."""

    def __init__(self):
        self.unread, self.end = os.pipe()
        os.set_blocking(self.end, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(self.end, b"." * select.PIPE_BUF)
        os.set_blocking(self.end, True)

    def close_end(self):
        os.close(self.end)
        self.end = -1

    def lines(self):
        """What was written to it since it was full, as it comes, to its end."""
        self.close_end()
        with open(self.unread, encoding="utf-8") as reader:
            for line in reader:
                yield line.removesuffix("\n").lstrip(".")
        self.unread = -1

    def close(self):
        for fd in (self.unread, self.end):
            if fd >= 0:
                os.close(fd)


@pytest.fixture
def stuck():
    console = StuckConsole()
    yield console
    console.close()


HANDLED = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT}


def ignored_by(pid):
    with open(f"/proc/{pid}/status") as file:
        (mask,) = (int(line.split()[1], 16) for line in file if line.startswith("SigIgn:"))
    return {signum for signum in signal.valid_signals() if mask & (1 << (signum - 1))}


@pytest.fixture
def post(tmp_path):
    signpost = Signpost(tmp_path / "signpost")
    yield signpost
    signpost.close()


@pytest.fixture
def background(tmp_path):
    """Starts ``python -m holdfast run``; what still runs is killed when the test ends."""
    started = []

    def start(*words, through=(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, **environment):
        process = subprocess.Popen(
            [*through, sys.executable, "-m", "holdfast", "run", *map(str, words)],
            env={**os.environ, "TMPDIR": str(tmp_path), **environment},
            stdout=stdout,
            stderr=stderr,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


class TestAJobThatGoesWell:
    def test_it_prints_what_the_program_prints_and_nothing_else(self, holdfast, script):
        ended = holdfast("run", "--nproc-per-node", 2, script(SHOW), "--lr", "0.1", "-m")
        assert (ended.returncode, ended.stderr) == (0, "")
        assert sorted(ended.stdout.splitlines()) == [f"{rank} 2 __main__ ['--lr', '0.1', '-m']" for rank in range(2)]

    def test_a_module(self, holdfast, script, tmp_path):
        script(SHOW, "package_of_test.py")
        ended = holdfast("run", "-m", "package_of_test", "x", cwd=tmp_path)
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "0 1 __main__ ['x']\n", "")

    def test_a_program(self, holdfast):
        ended = holdfast("run", "--no-python", "sh", "-c", "echo $RANK $0 ${local_rank}", "zero")
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "0 zero 0\n", "")

    @pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
    def test_a_script_as_a_function(self, holdfast, script, method):
        ended = holdfast("run", "--run-path", "--start-method", method, "--nproc-per-node", 2, script(SHOW), "x")
        assert (ended.returncode, ended.stderr) == (0, "")
        assert sorted(ended.stdout.splitlines()) == [f"{rank} 2 __main__ ['x']" for rank in range(2)]

    def test_another_interpreter(self, holdfast, script):
        interpreter = script("#!/bin/sh\necho interpreter $RANK $*\n", "interpreter")
        os.chmod(interpreter, 0o755)
        ended = holdfast("run", "train.py", "x", PYTHON_EXEC=interpreter)
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "interpreter 0 -u train.py x\n", "")

    def test_variables_are_options(self, holdfast, script, tmp_path):
        ended = holdfast("run", script(SHOW), PET_NPROC_PER_NODE=2, PET_REDIRECTS="3", PET_LOG_DIR="logs", PET_MODULE=0)
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
        assert len(list((tmp_path / "logs").glob("*/attempt_0/[01]/stdout.log"))) == 2

    def test_several_workers_have_one_thread_each(self, holdfast, script):
        code = "import os; os.write(1, f'{os.environ.get(\"OMP_NUM_THREADS\")}\\n'.encode())"
        assert holdfast("run", script(code)).stdout == "None\n"
        assert holdfast("run", "--nproc-per-node", 2, script(code)).stdout == "1\n1\n"
        assert holdfast("run", "--nproc-per-node", 2, script(code), OMP_NUM_THREADS=3).stdout == "3\n3\n"

    def test_a_flag_for_gpus_says_that_it_cannot_act(self, holdfast, script):
        ended = holdfast("run", "--numa-binding", "node", script(SHOW), CUDA_VISIBLE_DEVICES="")
        assert (ended.returncode, ended.stdout) == (0, "0 1 __main__ []\n")
        assert ended.stderr.startswith("holdfast: --numa-binding 'node': ")
        assert ended.stderr.count("\n") == 1

    def test_on_a_terminal_it_is_helpful(self, script, tmp_path):
        ours, theirs = pty.openpty()
        try:
            command = [sys.executable, "-m", "holdfast", "run", "--nproc-per-node", "2", script(SHOW)]
            subprocess.run(
                command, env={**os.environ, "TMPDIR": str(tmp_path)}, stderr=theirs, check=True, timeout=DEADLINE_S
            )
            os.set_blocking(ours, False)
            said = os.read(ours, 4096).decode()
        finally:
            os.close(theirs)
            os.close(ours)
        assert said.startswith("holdfast: OMP_NUM_THREADS is set to 1 for each worker")
        assert said.count("\n") == 1


class TestAJobThatFails:
    def test_the_exit_code_is_1_whatever_the_workers_was(self, holdfast, script):
        ended = holdfast("run", "--nproc-per-node", 2, script("import os, sys; sys.exit(17 * int(os.environ['RANK']))"))
        assert ended.returncode == 1
        assert "script.py FAILED" in ended.stderr
        assert "exitcode  : 17" in ended.stderr
        assert "Traceback" not in ended.stderr

    def test_a_module_that_its_package_does_not_hold_fails_in_the_worker(self, holdfast):
        ended = holdfast("run", "-m", "json.no_such_module_at_all")
        assert ended.returncode == 1
        assert "No module named json.no_such_module_at_all" in ended.stderr

    def test_it_is_started_again_as_often_as_asked(self, holdfast, script):
        code = "import os, sys; n = os.environ['TORCHELASTIC_RESTART_COUNT']; print(n, flush=True); sys.exit(n != '2')"
        assert holdfast("run", "--max-restarts", 1, script(code)).returncode == 1
        ended = holdfast("run", "--max-restarts", 2, script(code))
        assert (ended.returncode, ended.stdout) == (0, "0\n1\n2\n")

    def test_the_workers_error_file_becomes_ours(self, holdfast, script, tmp_path):
        code = "from holdfast.errors import record\n@record\ndef main():\n    raise ValueError('boom')\nmain()"
        ended = holdfast("run", script(code), TORCHELASTIC_ERROR_FILE=tmp_path / "error.json")
        assert ended.returncode == 1
        message = json.loads((tmp_path / "error.json").read_text())["message"]
        assert (message["message"], message["errorCode"]) == ("ValueError: boom", 1)

    def test_the_variables_that_ask_for_it_are_those_of_the_errors_package(self):
        assert ERROR_VARIABLES == (PATH_VARIABLE, HANDLER_VARIABLE)

    def test_bad_input_is_recorded_too(self, holdfast, script, tmp_path):
        ended = holdfast("run", "--nnodes", "x", script(), TORCHELASTIC_ERROR_FILE=tmp_path / "error.json")
        assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
        assert "--nnodes 'x'" in json.loads((tmp_path / "error.json").read_text())["message"]["message"]


class TestSignals:
    @pytest.mark.parametrize("received", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
    def test_the_exit_code_is_128_and_the_number(self, background, script, post, received):
        agent = background("--nproc-per-node", 2, script(WAIT), POST=post.path)
        workers = post.pids(2)
        agent.send_signal(received)
        _, err = agent.communicate(timeout=DEADLINE_S)
        assert agent.returncode == 128 + received
        assert err.splitlines()[-1] == f"holdfast run: ended by {received.name}"
        if received != signal.SIGINT:  # of which the workers, being Python, tell themselves
            assert "Traceback" not in err
        assert wait_for_end(workers) == []

    def test_one_that_was_asked_for(self, background, script, post):
        agent = background("--signals-to-handle", "SIGUSR2", script(WAIT), POST=post.path)
        workers = post.pids(1)
        agent.send_signal(signal.SIGUSR2)
        _, err = agent.communicate(timeout=DEADLINE_S)
        assert (agent.returncode, err.splitlines()[-1]) == (140, "holdfast run: ended by SIGUSR2")
        assert wait_for_end(workers) == []

    @pytest.mark.parametrize(
        ("through", "ignored"),
        [
            (["nohup"], {signal.SIGHUP}),
            (["sh", "-c", "trap '' INT QUIT; exec \"$@\"", "sh"], {signal.SIGINT, signal.SIGQUIT}),
            (["sh", "-c", "trap '' HUP INT QUIT; exec \"$@\"", "sh"], {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT}),
        ],
        ids=["nohup", "a background job of a script", "both"],
    )
    @pytest.mark.parametrize("options", [(), ("--warm",)], ids=["cold", "warm"])
    def test_the_terminal_does_not_end_a_job_that_ignores_it(self, background, script, post, through, ignored, options):
        agent = background(*options, script(WAIT), through=through, POST=post.path)
        (worker,) = post.pids(1)
        for signum in ignored:
            agent.send_signal(signum)
            os.kill(worker, signum)
        assert ignored_by(worker) & HANDLED == ignored
        agent.send_signal(signal.SIGTERM)
        _, err = agent.communicate(timeout=DEADLINE_S)
        assert (agent.returncode, err.splitlines()[-1]) == (143, "holdfast run: ended by SIGTERM")
        assert wait_for_end([worker]) == []

    def test_a_request_to_end_is_never_ignored(self, background, script, post):
        """A scheduler sends it, and a wrapper that ignores it for itself has ignored it for all it starts."""
        agent = background(script(WAIT), through=["sh", "-c", "trap '' TERM; exec \"$@\"", "sh"], POST=post.path)
        (worker,) = post.pids(1)
        assert ignored_by(worker) & HANDLED == set()
        agent.send_signal(signal.SIGTERM)
        agent.communicate(timeout=DEADLINE_S)
        assert agent.returncode == 143
        assert wait_for_end([worker]) == []


USE_STORE = f"""
import os, resource, sys
sys.path.insert(0, {os.path.join(os.path.dirname(__file__), "../support")!r})
from store_peer import StorePeer
with StorePeer(int(os.environ["MASTER_PORT"])) as peer:
    peer.ask()
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], flush=True)
sys.exit(os.environ["TORCHELASTIC_RESTART_COUNT"] == "0")
"""

FILES_MAX = 128
CROWD = f"""
import contextlib, os, resource, sys
sys.path.insert(0, {os.path.join(os.path.dirname(__file__), "../support")!r})
from store_peer import StorePeer
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, ({4 * FILES_MAX}, hard))
with contextlib.ExitStack() as stack:
    for _ in range({2 * FILES_MAX}):
        stack.enter_context(StorePeer(int(os.environ["MASTER_PORT"]))).ask()
"""


class TestTheLimitOfOpenFiles:
    def test_an_agent_serves_more_clients_than_its_soft_limit_has_room_for(self, background, script):
        agent = background(script(CROWD), through=["sh", "-c", f'ulimit -Sn {FILES_MAX}; exec "$@"', "sh"])
        _, err = agent.communicate(timeout=DEADLINE_S)
        assert agent.returncode == 0, err

    @pytest.mark.parametrize("options", [(), ("--warm",)], ids=["cold", "warm"])
    def test_an_agent_that_serves_the_store_raises_its_own_and_not_the_workers(self, background, script, options):
        agent = background(
            *("--max-restarts", 1, *options, script(USE_STORE)),
            through=["sh", "-c", 'ulimit -Sn 300; exec "$@"', "sh"],
        )
        out, err = agent.communicate(timeout=DEADLINE_S)
        assert (agent.returncode, out) == (0, "300\n300\n"), err


class TestFromAProgram:
    def test_it_returns_when_all_went_well(self, script, tmp_path):
        code = f"open({str(tmp_path / 'ran')!r}, 'w').write('yes')"
        assert main([script(code)]) is None
        assert (tmp_path / "ran").read_text() == "yes"

    def test_bad_values_are_raised(self, script):
        with pytest.raises(InputError, match=r"^--nnodes 'x': "):
            main(["--nnodes", "x", script()])
        with pytest.raises(ValueError, match=r"^--rdzv-conf 'a': "):
            run(parse_args(["--rdzv-conf", "a", script()]))

    def test_a_variable_is_named(self, script, monkeypatch):
        monkeypatch.setenv("PET_NNODES", "x")
        with pytest.raises(InputError, match=r"^PET_NNODES='x': "):
            main([script()])

    def test_a_flags_variable_that_is_no_number_is_raised(self, script, monkeypatch):
        monkeypatch.setenv("PET_STANDALONE", "true")
        with pytest.raises(InputError, match=r"^PET_STANDALONE='true': "):
            main([script()])

    def test_what_cannot_be_read_leaves_as_argparse_does(self, capsys):
        with pytest.raises(SystemExit) as left:
            main(["--max-restarts", "x", "y"])
        assert left.value.code == 2
        assert capsys.readouterr().err.startswith("holdfast run: error: --max-restarts 'x': ")

    def test_failed_workers_are_raised(self, script):
        with pytest.raises(ChildFailedError) as raised:
            main([script("import sys; sys.exit(3)")])
        assert raised.value.get_first_failure()[1].exitcode == 3

    def test_without_arguments_it_is_a_command(self, script, monkeypatch, capfd):
        monkeypatch.setattr(sys, "argv", ["holdfast run", script("import sys; sys.exit(3)")])
        with pytest.raises(SystemExit) as left:
            main()
        assert left.value.code == 1
        monkeypatch.setattr(sys, "argv", ["holdfast run", "--nnodes", "x", "y"])
        with pytest.raises(SystemExit) as left:
            main()
        assert left.value.code == 2
        assert capfd.readouterr().err.splitlines()[-1].startswith("holdfast run: error: --nnodes 'x': ")
        monkeypatch.setattr(sys, "argv", ["holdfast run", script("")])
        assert main() is None


def test_a_worker_that_puts_pipes_where_its_files_are_holds_nobody_up(tmp_path):
    script = tmp_path / "pipes.py"
    script.write_text(PIPES)
    command = [sys.executable, "-m", "holdfast", "run", "--nproc-per-node", "2", str(script)]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert ended.returncode == 1
    assert "SIGABRT" in ended.stderr


@pytest.mark.parametrize("streams", ["stdout", "both"])
class TestAConsoleThatNobodyReads:
    """Lines of workers wait for it. Nothing that the agent decides does."""

    @pytest.fixture
    def job(self, background, script, stuck, post, tmp_path, streams):
        def start(*words, **environment):
            stderr = stuck.end if streams == "both" else subprocess.PIPE
            words = ("--tee", 3, "--log-dir", tmp_path / "logs", *words, script(PRINT))
            return background(*words, stdout=stuck.end, stderr=stderr, POST=post.path, **environment)

        return start

    def test_workers_are_restarted_and_all_lines_are_shown_when_somebody_reads_again(self, job, stuck, post):
        agent = job("--max-restarts", 3)
        for attempt in range(3):
            number, pid = post.line().split()
            assert number == str(attempt)
            if attempt < 2:
                os.kill(int(pid), signal.SIGKILL)
        missing = {line for attempt in range(3) for line in printed(attempt)}
        extra = []
        for line in stuck.lines():
            if line not in missing:
                extra.append(line)
                continue
            missing.remove(line)
            if not missing:
                agent.terminate()
        assert missing == set()
        assert not any("xxx" in line for line in extra)  # none is torn or comes twice
        assert agent.wait(DEADLINE_S) == 128 + signal.SIGTERM

    def test_one_signal_ends_the_agent(self, job, stuck, post):
        agent = job()
        post.line()
        agent.terminate()
        assert agent.wait(DEADLINE_S) == 128 + signal.SIGTERM
        assert set(printed(0)) - set(stuck.lines()) != set()

    @pytest.mark.parametrize(("code", "expected"), [(0, 0), (7, 1)])
    def test_a_job_that_ends_by_itself_shows_all_to_a_person_who_reads_on_later(
        self, job, stuck, streams, code, expected
    ):
        agent = job(CODE=str(code))
        if streams == "stdout":
            assert "the console is too slow" in agent.stderr.readline()
        shown = list(stuck.lines())
        assert [line for line in shown if "xxx" in line] == printed(0)
        assert agent.wait(DEADLINE_S) == expected
        if code:
            last_words = shown if streams == "both" else agent.stderr.read().splitlines()
            assert any(line.split()[:3] == ["exitcode", ":", "7"] for line in last_words)
