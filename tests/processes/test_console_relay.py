"""What workers say on a stderr that is not a file: shown unchanged, and the end of it is in their failure."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
import tty

import pytest
import speakers
from liveness import exists, status, wait_for_end
from signpost import tell
from speakers import Agent

from holdfast.processes import Std
from holdfast.processes.console_relay import END_MAX_BYTES

DEADLINE_S = 60.0


@pytest.fixture
def agent(tmp_path):
    """Starts an agent in a process of its own, with a console of the test's choice: `agent([script, ...])`."""
    agents = []

    def start(scripts, **options):
        one = Agent(tmp_path / f"result-{len(agents)}", scripts, **options)
        agents.append(one)
        return one

    yield start
    for one in agents:
        one.process.kill()
        one.process.wait()
        for stream in (one.process.stdout, one.process.stderr):
            if stream is not None:
                stream.close()


@pytest.fixture
def console():
    """A pipe to be a console: (the end to read, the end to write)."""
    ends = list(os.pipe())
    yield ends
    for fd in ends:
        if fd >= 0:
            os.close(fd)


@pytest.fixture
def gate(tmp_path):
    """A named pipe that a worker waits on until the test writes to it."""
    path = str(tmp_path / "gate")
    os.mkfifo(path)
    return path


def let_go(console):
    """The agent has the writing end now, and nobody else."""
    os.close(console[1])
    console[1] = -1


def read_all(fd):
    data = b""
    while more := os.read(fd, 65536):
        data += more
    return data


def read_until(fd, is_enough):
    """Read until the data is enough, or the other end is closed."""
    data, deadline = b"", time.monotonic() + DEADLINE_S
    while not is_enough(data):
        readable, _, _ = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
        assert readable, data[-1000:]
        try:
            more = os.read(fd, 65536)
        except OSError:  # a terminal that nobody has open any more
            more = b""
        if not more:
            return data
        data += more
    return data


def wait_until_full(fd):
    """Wait until a pipe takes nothing more: `fd` is its writing end, which is left blocking for others."""
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    deadline = time.monotonic() + DEADLINE_S
    while poll.poll(0):
        assert time.monotonic() < deadline
        os.sched_yield()


SUPPORT = os.path.dirname(speakers.__file__)
TELL = f"import os, sys; sys.path.insert(0, {SUPPORT!r}); from signpost import tell\n"

# What is kept


def test_the_end_of_stderr_is_in_the_failure_of_a_command(run_python, image):
    result = run_python(["import sys; sys.exit('the last words')", "import time; time.sleep(1000)"]).wait()
    assert result.failures[0].stderr == "the last words\n"
    assert result.terminated == {1: -signal.SIGTERM}


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_the_end_of_stderr_is_in_the_failure_of_a_function(start, method):
    arguments = [("words of 0\n", 3), ("words of 1\n", 0)]
    result = start(speakers.say_and_leave, arguments, start_method=method).wait()
    assert (result.failures[0].exitcode, result.failures[0].stderr) == (3, "words of 0\n")


def test_a_failure_is_never_known_before_its_last_words(start):
    """Whoever sees the exit has the words: there is nothing to wait for."""
    for _ in range(20):
        context = start("sh", [("-c", "echo words >&2; exit 3"), ("-c", "echo more >&2; exit 4")])
        select.select([context], [], [], DEADLINE_S)
        while (failure := context.first_failure()) is None:
            context.wait(0)
        assert failure.stderr in ("words\n", "more\n")
        context.close()


def test_a_hidden_worker_is_heard_and_not_shown(run_python, logs, capfd):
    script = "import os; os.write(1, b'out\\n'); os.write(2, b'err\\n'); os._exit(3)"
    result = run_python(["pass", script], logs_specs=logs(local_ranks_filter={0})).wait()
    assert result.failures[1].stderr == "err\n"
    assert capfd.readouterr() == ("", "")


def test_only_the_end_is_kept(run_python, capfd):
    result = run_python(["import os; os.write(2, b'x' * 200_000 + 'ö, the end'.encode()); os._exit(3)"]).wait()
    kept = result.failures[0].stderr
    assert len(kept.encode()) == END_MAX_BYTES
    assert kept.endswith("xxxö, the end")
    assert capfd.readouterr().err == "x" * 200_000 + "ö, the end"


def test_the_end_is_that_of_many_small_writes(run_python, capfd):
    result = run_python(["import sys\nfor n in range(10000): print(n, file=sys.stderr)\nsys.exit(3)"]).wait()
    lines = [f"{n}\n" for n in range(10000)]
    assert result.failures[0].stderr == "".join(lines)[-END_MAX_BYTES:]
    assert capfd.readouterr().err == "".join(lines)


def test_a_progress_bar_does_not_push_out_the_lines_before_it(run_python, capfd):
    script = "import os\nos.write(2, b'important\\n')\nfor n in range(5000): os.write(2, b'\\r%60d' % n)\nos._exit(3)"
    result = run_python([script]).wait()
    assert result.failures[0].stderr == f"important\n{4999:>60}"
    assert capfd.readouterr().err.count("\r") == 5000


def test_bytes_that_are_no_text_can_be_shown(run_python):
    result = run_python(["import os; os.write(2, b'\\xff\\x00\\n'); os._exit(3)"]).wait()
    assert result.failures[0].stderr == "\\xff\x00\n"


def test_a_worker_that_a_signal_ended_is_heard(start):
    result = start("sh", [("-c", "echo dying >&2; kill -SEGV $$")]).wait()
    assert (result.failures[0].exitcode, result.failures[0].stderr) == (-signal.SIGSEGV, "dying\n")


def test_with_few_descriptors_workers_run_unheard(agent, console, gate):
    """They have the console itself then."""
    few = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))"
    script = "import os; os.write(2, b'here\\n')"
    fails = f"import os; open({gate!r}).read(); os._exit(3)"
    one = agent([script] * 60 + [fails], stderr=console[1], first=few)
    let_go(console)
    assert read_until(console[0], lambda data: data.count(b"\n") == 60) == b"here\n" * 60
    tell(gate, "")
    assert one.result()["failures"] == {"60": [3, ""]}


# What is counted


def test_what_was_written_is_counted(start, post, logs, gate):
    said = f"echo said > {post.path}"
    script = f"printf 12345 >&2; {said}; read line < {gate}; printf 678 >&2; {said}; exec sleep 1000"
    context = start("sh", [("-c", script), ("-c", "exec sleep 1000")])
    for expected in (5, 8):
        post.line()
        deadline = time.monotonic() + DEADLINE_S
        while context.output_bytes() != {0: expected, 1: 0}:
            assert time.monotonic() < deadline, context.output_bytes()
            os.sched_yield()
        if expected == 5:
            tell(gate, "")
    context.close()
    assert context.output_bytes() == {0: 0, 1: 0}, "there is nobody left to count"


def test_what_was_written_to_files_is_counted(start, post, logs):
    script = f"printf 12345 >&2; printf 123; echo said > {post.path}; exec sleep 1000"
    context = start("sh", [("-c", script)], logs_specs=logs(redirects=Std.ALL))
    post.line()
    assert context.output_bytes() == {0: 8}
    context.close()


# What is shown


def test_every_byte_passes_unchanged_and_stdout_elsewhere_is_untouched(agent, console, tmp_path):
    script = (
        "import os, sys; os.write(2, bytes(range(256)) * 10)\n"
        "stat = os.fstat(1); os.write(1, f'{stat.st_dev} {stat.st_ino}'.encode())"
    )
    with open(tmp_path / "stdout", "wb") as stdout:
        one = agent([script], stdout=stdout, stderr=console[1])
    let_go(console)
    assert read_all(console[0]) == bytes(range(256)) * 10
    one.result()
    stat = os.stat(tmp_path / "stdout")
    assert (tmp_path / "stdout").read_text() == f"{stat.st_dev} {stat.st_ino}"


ALTERNATING = "import os\nfor n in range(2000): os.write(1 + n % 2, b'%d\\n' % n)"


def test_on_a_pipe_for_both_the_order_stays(agent, console):
    agent([ALTERNATING], stdout=console[1], stderr=console[1])
    let_go(console)
    assert read_all(console[0]) == b"".join(b"%d\n" % n for n in range(2000))


def test_in_a_file_for_both_the_order_stays(agent, tmp_path):
    with open(tmp_path / "log", "wb") as log:
        agent([ALTERNATING], stdout=log, stderr=log).result()
    assert (tmp_path / "log").read_bytes() == b"".join(b"%d\n" % n for n in range(2000))


def test_large_bursts_of_several_workers_pass_whole(agent, console):
    """All of it, and that of each worker in its own order. Each writes with an alphabet of its own."""
    digits, alphabets = b"0123456789\n", [b"0123456789\n", b"abcdefghijk", b"ABCDEFGHIJK"]
    scripts = [
        "import sys\n"
        f"alphabet = bytes.maketrans({digits!r}, {alphabet!r})\n"
        "sys.stderr.buffer.write(b''.join(b'%d\\n' % n for n in range(300_000)).translate(alphabet))"
        for alphabet in alphabets
    ]
    agent(scripts, stderr=console[1])
    let_go(console)
    shown = read_all(console[0])
    expected = b"".join(b"%d\n" % n for n in range(300_000))
    for alphabet in alphabets:
        heard = bytes(filter(set(alphabet).__contains__, shown))
        assert heard.translate(bytes.maketrans(alphabet, digits)) == expected


def test_what_grandchildren_say_is_shown_also_when_their_parent_is_gone(agent, console, post, gate):
    script = TELL + (
        f"import subprocess; subprocess.Popen(['sh', '-c', 'read line < {gate}; echo late >&2'])\n"
        f"tell({post.path!r}, os.getpid()); os._exit(0)"
    )
    then = "sys.stdin.readline(); context.close(); finish()"
    one = agent([script, "import time; time.sleep(1000)"], stderr=console[1], then=then, stdin=subprocess.PIPE)
    let_go(console)
    assert wait_for_end(post.pids(1)) == []
    tell(gate, "")
    assert read_until(console[0], lambda data: b"\n" in data) == b"late\n"
    one.process.communicate(b"\n", timeout=60)
    assert one.result()["terminated"]["1"] == -signal.SIGTERM


def test_the_last_words_come_before_what_the_agent_says_next(agent, console):
    script = "import os; os.write(2, b'x' * 300_000 + b'end\\n'); os._exit(3)"
    agent([script], stderr=console[1], then="finish(); os.write(2, b'the agent')")
    let_go(console)
    assert read_all(console[0]) == b"x" * 300_000 + b"end\nthe agent"


def test_on_a_console_that_others_made_non_blocking_nothing_is_lost(agent, console):
    os.set_blocking(console[1], False)
    script = "import os, sys; sys.stderr.buffer.write(b'x' * 1_000_000); sys.stderr.flush()"
    agent([script], stderr=console[1])
    let_go(console)
    assert read_all(console[0]) == b"x" * 1_000_000


# A console that takes nothing, or nothing more

FLOOD = "import os\nwhile True: os.write(2, b'x' * 4096)"


def test_a_console_that_takes_nothing_holds_up_no_exit_and_no_close(agent, console, gate):
    fails = f"import os; open({gate!r}).read(); os.write(2, b'words'); os._exit(3)"
    one = agent([FLOOD, fails], stderr=console[1])
    wait_until_full(console[1])
    tell(gate, "")
    result = one.result()
    assert result["failures"] == {"1": [3, "words"]}
    assert result["terminated"] == {"0": -signal.SIGTERM}


def test_a_console_that_takes_nothing_holds_up_no_fence(agent, console):
    then = "sys.stdin.readline(); context.fence(time.monotonic()); context.wait(); finish(is_fenced=context.is_fenced)"
    one = agent([FLOOD], stderr=console[1], stdin=subprocess.PIPE, then=then)
    wait_until_full(console[1])
    one.process.stdin.write(b"\n")
    one.process.stdin.close()
    result = one.result()
    assert result["is_fenced"]
    assert result["terminated"] == {"0": -signal.SIGKILL}


def test_when_the_agent_dies_a_console_that_takes_nothing_keeps_nobody_alive(agent, console, post):
    one = agent([TELL + f"tell({post.path!r}, os.getpid())\n" + FLOOD], stderr=console[1])
    (worker,) = post.pids(1)
    keeper = int(status(worker, "PPid"))
    wait_until_full(console[1])
    one.process.kill()
    assert wait_for_end([worker, keeper]) == []


# So that a test that waits for the end of the patience fails.
ENDLESS_PATIENCE = "import holdfast.processes.keeper_states as states; states.CONSOLE_PATIENCE_S = 1000.0"


@pytest.fixture
def waiting_for_the_console(agent, console, post):
    """Starts an agent whose workers have ended, and whose keeper waits for a console that takes nothing."""

    def start(then):
        then = "sys.stdin.readline()\n" + then
        script = TELL + f"tell({post.path!r}, f'{{os.getppid()}} {{os.getpid()}}')\nos.write(2, b'x' * 100_000)"
        one = agent([script], stderr=console[1], first=ENDLESS_PATIENCE, then=then, stdin=subprocess.PIPE)
        keeper, worker = map(int, post.line().split())
        wait_until_full(console[1])
        while exists(worker):
            os.sched_yield()
        one.process.stdin.write(b"\n")
        one.process.stdin.close()
        return one, keeper

    return start


def test_a_set_that_ended_well_waits_for_a_person_with_a_pager(agent, console, post, gate):
    first = "import holdfast.processes.keeper_states as states; states.CONSOLE_PATIENCE_S = 0.0"
    script = TELL + f"os.write(2, b'x' * 100_000); tell({post.path!r}, os.getpid())"
    # It looks, which tells the keeper to stop what is left, and looks again much later than its patience allows.
    then = f"context.wait(0.5); tell({post.path!r}, 'waited'); finish()"
    one = agent([script], stderr=console[1], first=TELL + first, then=then)
    assert post.lines(2)[1] == "waited"
    let_go(console)
    assert read_all(console[0]) == b"x" * 100_000
    assert one.result()["failures"] == {}


def test_an_interrupted_close_waits_for_no_console(waiting_for_the_console):
    then = (
        "from holdfast.processes import SignalException\n"
        "import signal, threading; threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()\n"
        "try: context.close()\nexcept SignalException: context.close(timeout=0)"
    )
    one, keeper = waiting_for_the_console(then)
    assert one.process.wait(DEADLINE_S) == 0
    assert not exists(keeper)


def test_a_keeper_without_an_agent_waits_for_no_console(waiting_for_the_console):
    one, keeper = waiting_for_the_console("finish()")
    one.process.kill()
    assert wait_for_end([keeper]) == []


def test_fences_do_not_hurry_a_wait_for_the_console(waiting_for_the_console, console, gate):
    """They are for workers, and there are none."""
    one, _ = waiting_for_the_console(f"context.fence(0.0); open({gate!r}).read(); finish()")
    tell(gate, "")
    let_go(console)
    assert read_all(console[0]) == b"x" * 100_000
    assert one.result()["failures"] == {}


def test_a_worker_waits_for_a_console_that_takes_nothing_and_then_goes_on(agent, console, post):
    script = TELL + f"for n in range(1000): os.write(2, b'%04d' % n * 1024)\ntell({post.path!r}, 'done')"
    one = agent([script], stderr=console[1])
    wait_until_full(console[1])
    let_go(console)
    assert read_all(console[0]) == b"".join(b"%04d" % n * 1024 for n in range(1000))
    assert post.line() == "done"
    assert one.result()["failures"] == {}


def test_a_pipe_that_nobody_reads_any_more_is_broken_for_the_worker_too(agent, console, post):
    script = TELL + (
        "import signal; signal.signal(signal.SIGPIPE, signal.SIG_IGN)\ntry:\n"
        "    while True: os.write(2, b'line\\n')\n"
        f"except BrokenPipeError: tell({post.path!r}, 'broken')"
    )
    one = agent([script], stderr=console[1])
    let_go(console)
    assert os.read(console[0], 5) == b"line\n"
    os.close(console[0])
    console[0] = -1
    assert post.line() == "broken"
    assert one.result()["failures"] == {}


def test_a_full_disk_fails_no_worker_and_its_words_are_kept(agent):
    script = "import os; [os.write(2, b'x' * 1000) for _ in range(1000)]; os.write(2, b'end'); os._exit(3)"
    with open("/dev/full", "wb") as full:
        result = agent([script], stderr=full).result()
    code, kept = result["failures"]["0"]
    assert code == 3
    assert kept == ("x" * END_MAX_BYTES + "end")[-END_MAX_BYTES:]


# Terminals


@pytest.fixture
def terminal():
    """A terminal to be a console: (our end, its users' end). Its window has 33 lines of 77 columns."""
    ours, users = pty.openpty()
    tty.setraw(users)
    set_size(ours, 33, 77)
    ends = [ours, users]
    yield ends
    for fd in ends:
        if fd >= 0:
            os.close(fd)


def set_size(fd, lines, columns):
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


def test_on_a_terminal_workers_have_a_terminal_of_its_size(agent, terminal):
    script = (
        "import json, os, sys\n"
        "def size(fd): size = os.get_terminal_size(fd); return [size.lines, size.columns]\n"
        "controlling = int(open('/proc/self/stat').read().rpartition(')')[2].split()[4])\n"
        "told = [os.isatty(1), os.isatty(2), size(1), size(2), controlling]\n"
        "print('\\033[31m' + json.dumps(told) + '\\033[0m', file=sys.stderr)\n"
        "print('stdout'); print('stderr', file=sys.stderr); print('stdout', flush=True); sys.exit(3)\n"
    )
    one = agent([script], stdout=terminal[1], stderr=terminal[1])
    let_go(terminal)
    shown = read_until(terminal[0], lambda _: False).decode()
    first, rest = shown.split("\n", 1)
    assert first.startswith("\033[31m")
    assert first.endswith("\033[0m")
    assert json.loads(first[len("\033[31m") : -len("\033[0m")]) == [True, True, [33, 77], [33, 77], 0]
    assert rest == "stdout\nstderr\nstdout\n"
    assert one.result()["failures"] == {"0": [3, shown]}


def test_the_size_of_the_window_is_followed(agent, terminal, post, gate):
    script = TELL + (
        f"tell({post.path!r}, os.get_terminal_size(2).columns); open({gate!r}).read()\n"
        "while os.get_terminal_size(2).columns == 77: os.write(2, b'.')\n"
        f"tell({post.path!r}, os.get_terminal_size(2).columns)"
    )
    agent([script], stdout=terminal[1], stderr=terminal[1])
    let_go(terminal)
    assert post.line() == "77"
    set_size(terminal[0], 40, 132)
    tell(gate, "")
    reader = threading.Thread(target=read_until, args=(terminal[0], lambda _: False))
    reader.start()
    assert post.line() == "132"
    reader.join()


def test_on_a_terminal_a_burst_passes_whole(agent, terminal):
    script = "import sys\nfor n in range(20000): print('line', n, file=sys.stderr)"
    agent([script], stdout=terminal[1], stderr=terminal[1])
    let_go(terminal)
    shown = read_until(terminal[0], lambda _: False)
    assert shown == b"".join(b"line %d\n" % n for n in range(20000))


def test_on_a_terminal_only_stderr_is_heard_where_stdout_is_elsewhere(agent, terminal, console):
    script = "import os; os.write(1, b'%d %d\\n' % (os.isatty(1), os.isatty(2))); os.write(2, b'err\\n'); os._exit(3)"
    one = agent([script], stdout=console[1], stderr=terminal[1])
    let_go(console)
    let_go(terminal)
    assert read_all(console[0]) == b"0 1\n"
    assert read_until(terminal[0], lambda _: False) == b"err\n"
    assert one.result()["failures"] == {"0": [3, "err\n"]}


def test_a_terminal_that_takes_nothing_holds_up_no_close(agent, terminal, post):
    one = agent(
        [TELL + f"tell({post.path!r}, os.getpid())\n" + FLOOD],
        stdout=terminal[1],
        stderr=terminal[1],
        then="sys.stdin.readline(); context.close(); finish()",
        stdin=subprocess.PIPE,
    )
    (worker,) = post.pids(1)
    termios.tcflow(terminal[1], termios.TCOOFF)
    one.process.stdin.write(b"\n")
    one.process.stdin.close()
    assert one.result()["terminated"] == {"0": -signal.SIGTERM}
    assert not exists(worker)
    termios.tcflow(terminal[1], termios.TCOON)


# What it costs


def test_no_worker_has_a_descriptor_of_it(start, tmp_path):
    before = set(speakers.descriptors().values())
    for method in ("spawn", "forkserver", "fork"):
        result = start(speakers.descriptors, [()] * 3, start_method=method).wait()
        for links in result.return_values.values():
            others = {link for fd, link in links.items() if fd > 2 and link not in before}
            assert not [link for link in others if "holdfast" in link]
            # The one by which it would learn that its parent has died, which is the same for all.
            assert len([link for link in others if link.startswith("pipe:")]) == 1, (method, others)
            assert not [link for link in others if "pts" in link or "ptmx" in link]


def test_a_set_that_is_silent_wakes_nobody_up(start, post):
    """Also when there was something to show before, and a thread that shows it."""
    context = start("sh", [("-c", f"echo words >&2; echo $$ > {post.path}; exec sleep 1000")])
    (pid,) = post.pids(1)
    keeper = int(status(pid, "PPid"))
    context.wait(0)

    def tasks():
        return sorted(map(int, os.listdir(f"/proc/{keeper}/task")))

    def of_task(task, field):
        with open(f"/proc/{keeper}/task/{task}/status") as file:
            return next(line.split()[1] for line in file if line.startswith(field + ":"))

    deadline = time.monotonic() + DEADLINE_S
    while context.output_bytes() != {0: 6} or len(tasks()) != 2 or {of_task(t, "State") for t in tasks()} != {"S"}:
        assert time.monotonic() < deadline
        os.sched_yield()
    before = [of_task(task, "voluntary_ctxt_switches") for task in tasks()]
    assert context.wait(timeout=2) is None
    assert [of_task(task, "voluntary_ctxt_switches") for task in tasks()] == before


def test_a_worker_that_says_nothing_costs_no_thread(start, post):
    start("sh", [("-c", f"echo $$ > {post.path}; exec sleep 1000")])
    (pid,) = post.pids(1)
    assert status(int(status(pid, "PPid")), "Threads") == "1"


def test_nothing_is_left_in_the_agent(run_python, nothing_left):
    context = run_python(["import os; os.write(2, b'words'); os._exit(3)"])
    assert context.wait().failures[0].stderr == "words"
    with pytest.raises(ValueError, match="not running"):
        context.fileno()
    assert sys.stderr is not None
