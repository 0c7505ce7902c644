from __future__ import annotations

import os
import select
import signal
import threading
import time

import pytest
from liveness import status

from holdfast.errors import InputError
from holdfast.watchdog import FileTimerClient, FileTimerRequest, FileTimerServer
from holdfast.watchdog.fifo_server import COMPLAINTS_MAX

DEADLINE_S = 60

WORKER = """
    import signal, sys, time
    from holdfast.watchdog import FileTimerClient
    from signpost import tell
    client = FileTimerClient(sys.argv[1], signal=int(sys.argv[3]))
    client.acquire("slow", time.time() + float(sys.argv[4]))
    tell(sys.argv[2], "set")
    while True:
        signal.pause()
"""


def send(path, *requests):
    client = FileTimerClient(path)
    for request in requests:
        client._send_request(request)


def write(path, data):
    fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


def wait_until_readable(server):
    readable, _, _ = select.select([server], [], [], DEADLINE_S)
    assert readable


def test_a_worker_that_is_late_is_ended_and_nobody_else(make_server, start_python, path, post, log, capfd):
    make_server().start()
    worker = start_python(WORKER, path, post.path, int(signal.SIGTERM), 0.1)
    assert worker.wait(DEADLINE_S) == -signal.SIGTERM
    log.wait_for("kill worker process", "slow")
    assert log.events == [("watchdog started", None), ("timer expired", "slow"), ("kill worker process", "slow")]
    shown = capfd.readouterr().err
    assert (
        f"holdfast: watchdog of job: the time of process {worker.pid} for slow has run out; SIGTERM was sent" in shown
    )


def test_an_event_loop_needs_no_thread(make_server, start_python, path, post, log):
    threads = threading.active_count()
    server = make_server()
    server.start(in_thread=False)
    assert server.next_deadline() is None
    worker = start_python(WORKER, path, post.path, int(signal.SIGTERM), 3600)
    wait_until_readable(server)
    server.read()
    deadline = server.next_deadline()
    assert 3000 < deadline - time.time() <= 3600

    assert server.expire() == []
    assert worker.poll() is None
    (expiry,) = server.expire(deadline)
    assert (expiry.pid, expiry.signal) == (worker.pid, signal.SIGTERM)
    assert [timer.scope_id for timer in expiry.timers] == ["slow"]
    assert worker.wait(DEADLINE_S) == -signal.SIGTERM
    assert server.next_deadline() is None
    assert threading.active_count() == threads
    server.stop()
    assert [name for name, _ in log.events] == [
        "watchdog started",
        "timer expired",
        "kill worker process",
        "watchdog stopped",
    ]


def test_a_release_in_the_pipe_counts_before_anybody_is_ended(make_server, sleeper, path):
    server = make_server()
    process = sleeper()
    send(path, FileTimerRequest(process.pid, "a", time.time() - 60, signal.SIGKILL))
    server.read()
    send(path, FileTimerRequest(process.pid, "a", -1))
    assert server.expire() == []
    assert process.poll() is None


def test_what_was_set_before_is_forgotten_read_or_not(make_server, sleeper, path):
    server = make_server()
    process = sleeper()
    send(path, FileTimerRequest(process.pid, "read", time.time() - 60, signal.SIGKILL))
    server.read()
    send(path, FileTimerRequest(process.pid, "unread", time.time() - 60, signal.SIGKILL))
    server.forget()
    server.read()
    assert (server.next_deadline(), server.expire()) == (None, [])
    assert process.poll() is None
    send(path, FileTimerRequest(process.pid, "new", time.time() - 60, signal.SIGTERM))
    server.run_once()
    assert process.wait(DEADLINE_S) == -signal.SIGTERM


def test_set_again_it_has_the_new_time(make_server, sleeper, path):
    server = make_server()
    process = sleeper()
    send(path, FileTimerRequest(process.pid, "a", time.time() - 60, 9))
    send(path, FileTimerRequest(process.pid, "a", time.time() + 60, 9))
    server.run_once()
    assert process.poll() is None
    assert server.next_deadline() > time.time()


def test_run_once_takes_in_and_ends(make_server, sleeper, path):
    server = make_server()
    process = sleeper()
    send(path, FileTimerRequest(process.pid, "a", time.time() - 60, signal.SIGTERM))
    server.run_once()
    assert process.wait(DEADLINE_S) == -signal.SIGTERM


@pytest.mark.parametrize("expiry", [float("inf"), 1e30])
def test_any_deadline_can_be_waited_for(make_server, sleeper, path, expiry):
    server = make_server()
    send(path, FileTimerRequest(sleeper().pid, "a", expiry, 9))
    server.run_once()
    assert time.time() + 80_000 < server.next_deadline() <= time.time() + 86_400
    assert server.get_expired_timers(1e20) == {}


def test_timers_can_be_set_cleared_and_looked_at_directly(make_server, sleeper):
    server = make_server()
    first, second = sleeper(), sleeper()
    timers = [
        FileTimerRequest(first.pid, "late", 20.0),
        FileTimerRequest(first.pid, "early", 10.0),
        FileTimerRequest(second.pid, "other", 15.0),
    ]
    server.register_timers(timers)
    assert server.get_expired_timers(15.0) == {first.pid: [timers[1]], second.pid: [timers[2]]}
    assert server.get_expired_timers(20.0)[first.pid] == [timers[1], timers[0]]
    server.clear_timers({first.pid})
    assert server.get_expired_timers(100.0) == {second.pid: [timers[2]]}


def test_a_timer_that_is_set_directly_wakes_the_thread(make_server, sleeper, log):
    server = make_server()
    process = sleeper()
    server.start()
    server.register_timers([FileTimerRequest(process.pid, "a", time.time() + 0.1, signal.SIGTERM)])
    assert process.wait(DEADLINE_S) == -signal.SIGTERM


def test_the_thread_sleeps_until_something_happens(make_server, sleeper):
    """As the kernel counts: the thread gave up the processor once, to wait, and not again."""
    server = make_server(max_interval=0.001)
    server.start()
    server.register_timers([FileTimerRequest(sleeper().pid, "a", time.time() + 3600, 9)])
    thread = next(thread for thread in threading.enumerate() if thread.name == "watchdog")
    task = f"{os.getpid()}/task/{thread.native_id}"
    while status(task, "State")[0] != "S" or server.next_deadline() is None:
        time.sleep(0.01)
    time.sleep(0.1)
    before = int(status(task, "voluntary_ctxt_switches"))
    time.sleep(1)
    assert int(status(task, "voluntary_ctxt_switches")) - before <= 1


GARBAGE = [
    b"\n",
    b"nonsense\n",
    b"\x00\xff\xfe\n",
    b'{"version": 1}\n',
    b'{"version": 1, "pid": "1", "scope_id": "s", "expiration_time": 1, "signal": 0}\n',
    b'{"version": 1, "pid": 1, "scope_id": "init", "expiration_time": 1, "signal": 0}\n',
    b'{"version": 1, "pid": %d, "scope_id": "own", "expiration_time": 1, "signal": 0}\n' % os.getpid(),
    b'{"version": 1, "pid": 0, "scope_id": "group", "expiration_time": 1, "signal": 0}\n',
    b"[" * 4000 + b"\n",
    b"x" * 10_000 + b"\n",
]


@pytest.mark.parametrize("data", GARBAGE, ids=range(len(GARBAGE)))
def test_garbage_is_ignored_and_what_follows_counts(make_server, sleeper, path, data, capfd):
    server = make_server()
    process = sleeper()
    write(path, data)
    send(path, FileTimerRequest(process.pid, "a", time.time() - 60, signal.SIGTERM))
    server.run_once()
    assert process.wait(DEADLINE_S) == -signal.SIGTERM
    shown = capfd.readouterr().err
    assert shown.startswith(f"holdfast: watchdog of job: a request in {path} is ignored: ")
    assert shown.count("\n") == 2
    assert len(shown) < 1000


def test_a_line_longer_than_a_pipe_is_ignored_whole(make_server, sleeper, path):
    server = make_server()
    process = sleeper()
    request = FileTimerRequest(process.pid, "a", time.time() - 60, 9).to_json().encode()
    write(path, b"x" * 65536)
    server.read()
    write(path, b"x" + request + b"\n")
    server.run_once()
    assert process.poll() is None


def test_the_halves_of_a_line_make_one(make_server, sleeper, path):
    server = make_server()
    process = sleeper()
    line = FileTimerRequest(process.pid, "a", time.time() - 60, signal.SIGTERM).to_json().encode() + b"\n"
    write(path, line[:30])
    server.run_once()
    write(path, line[30:])
    server.run_once()
    assert process.wait(DEADLINE_S) == -signal.SIGTERM


def test_complaints_end(make_server, path, capfd):
    server = make_server()
    write(path, b"nonsense\n" * 100)
    server.read()
    shown = capfd.readouterr().err.splitlines()
    assert len(shown) == COMPLAINTS_MAX
    assert shown[-1].endswith("nonsense (no more of these are shown)")


def test_a_request_shows_no_control_characters(make_server, path, capfd):
    server = make_server()
    write(path, b"\x1b]0;title\x07\n")
    server.read()
    assert "\\x1b]0;title\\x07" in capfd.readouterr().err


def test_strangers_are_not_signalled(make_server, sleeper, path):
    worker, stranger = sleeper(), sleeper()
    server = make_server(is_worker=lambda pid: pid == worker.pid)
    for process in (stranger, worker):
        send(path, FileTimerRequest(process.pid, "a", time.time() - 60, signal.SIGTERM))
    server.run_once()
    assert worker.wait(DEADLINE_S) == -signal.SIGTERM
    assert stranger.poll() is None


def test_a_listener_that_fails_keeps_nobody_from_being_watched(make_server, sleeper, path, capfd):
    def fail(name, timer):
        raise ValueError("no disk")

    server = make_server(log_event=fail)
    process = sleeper()
    server.start()
    send(path, FileTimerRequest(process.pid, "a", time.time(), signal.SIGTERM))
    assert process.wait(DEADLINE_S) == -signal.SIGTERM
    second = sleeper()
    send(path, FileTimerRequest(second.pid, "a", time.time(), signal.SIGTERM))
    assert second.wait(DEADLINE_S) == -signal.SIGTERM
    assert "'watchdog started' could not be logged: ValueError('no disk')" in capfd.readouterr().err


def test_a_listener_may_ask_the_server(make_server, sleeper):
    asked = []

    def ask(name, timer):
        asked.append(server.get_last_progress_time())

    server = make_server(log_event=ask)
    server.register_timers([FileTimerRequest(sleeper().pid, "a", 1.0, 0)])
    server.run_once()
    assert len(asked) == 1


def test_progress_is_now_unless_a_timer_is_overdue(make_server, sleeper):
    server = make_server()
    process = sleeper()
    for _ in range(2):
        before = int(time.time())
        assert before <= server.get_last_progress_time() <= time.time()
        server.register_timers([FileTimerRequest(process.pid, "a", time.time() + 3600, 0)])
    server.register_timers([FileTimerRequest(process.pid, "b", 1000.5, 0)])
    assert server.get_last_progress_time() == 1000
    server.expire()
    assert server.get_last_progress_time() >= before
    assert type(server.get_last_progress_time()) is int


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("in_thread", [True, False])
def test_stopped_it_leaves_nothing(path, log, sleeper, in_thread):
    process = sleeper()
    server = FileTimerServer(path, "job", log_event=log)
    server.start(in_thread=in_thread)
    server.register_timers([FileTimerRequest(process.pid, "a", time.time() + 3600, 9)])
    server.stop()
    server.stop()
    assert not os.path.lexists(path)
    assert [name for name, _ in log.events] == ["watchdog started", "watchdog stopped"]
    assert server.next_deadline() is None
    server.run_once()
    with pytest.raises(RuntimeError, match="was stopped"):
        server.fileno()
    with pytest.raises(RuntimeError, match="make a new FileTimerServer"):
        server.start()
    process.kill()
    process.wait()


def test_started_twice_it_runs_once(make_server, log):
    server = make_server()
    server.start()
    thread = server._thread
    server.start()
    assert server._thread is thread
    assert [name for name, _ in log.events] == ["watchdog started"]


def test_the_parameters_are_torchs(path):
    server = FileTimerServer(path, "job", 0.01, True, None)  # by position, as torch's agent does
    server.stop()


def test_a_path_that_is_taken_is_an_error_that_says_so(path):
    with open(path, "w"), pytest.raises(InputError, match="something else has this name"):
        FileTimerServer(path, "job")


def test_who_runs(sleeper):
    process = sleeper()
    assert FileTimerServer.is_process_running(process.pid)
    process.kill()
    process.wait()
    assert not FileTimerServer.is_process_running(process.pid)
