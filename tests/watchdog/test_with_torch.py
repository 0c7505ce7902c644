"""torch on one side, holdfast on the other, each in its own process."""

from __future__ import annotations

import json
import signal
import time

import pytest

from holdfast.watchdog import FileTimerClient, FileTimerRequest

pytestmark = pytest.mark.torch

DEADLINE_S = 120

TORCH_CLIENT = """
    import signal, sys, time
    from signpost import tell
    from torch.distributed.elastic.timer import FileTimerClient, configure, expires
    path, post = sys.argv[1:]
    configure(FileTimerClient(path, signal=signal.SIGTERM))
    with expires(after=600, scope="released"):
        pass
    with expires(after=600, scope="in time"):
        tell(post, "in")
        with expires(after=0.1, scope="missed"):
            while True:
                signal.pause()
"""

TORCH_SERVER = """
    import signal, sys
    from signpost import tell
    from torch.distributed.elastic.timer import FileTimerServer
    path, post = sys.argv[1:]
    signal.signal(signal.SIGTERM, lambda *_: None)  # torch's server sends it to itself, too
    server = FileTimerServer(
        path, "job", max_interval=0.05, log_event=lambda name, timer: tell(post, f"{name}: {timer and timer.scope_id}")
    )
    server.start()
    while True:
        signal.pause()
"""


def test_torchs_client_works_with_our_server(make_server, start_python, path, post, log):
    server = make_server()
    server.start()
    worker = start_python(TORCH_CLIENT, path, post.path)
    assert post.line() == "in"
    assert worker.wait(DEADLINE_S) == -signal.SIGTERM
    log.wait_for("kill worker process", "missed")
    assert [event for event in log.events if event[0] == "timer expired"] == [("timer expired", "missed")]


def test_our_client_works_with_torchs_server(start_python, sleeper, path, post):
    start_python(TORCH_SERVER, path, post.path)
    assert post.line() == "watchdog started: None"
    process = sleeper()
    client = FileTimerClient(path)
    now = time.time()
    for request in [
        FileTimerRequest(process.pid, "released", now + 0.5, signal.SIGKILL),
        FileTimerRequest(process.pid, "far away", now + 600, signal.SIGKILL),
        FileTimerRequest(process.pid, "released", -1, 0),
        FileTimerRequest(process.pid, "missed", now + 1, signal.SIGTERM),
    ]:
        client._send_request(request)
    assert process.wait(DEADLINE_S) == -signal.SIGTERM
    assert post.lines(2) == ["timer expired: missed", "kill worker process: missed"]


def test_our_expires_sets_timers_with_torchs_server(start_python, path, post):
    start_python(TORCH_SERVER, path, post.path)
    assert post.line() == "watchdog started: None"
    code = """
        import signal
        from holdfast.watchdog import expires
        with expires(after=600, scope="in time"):
            with expires(after=0.1, scope="missed"):
                while True:
                    signal.pause()
    """
    worker = start_python(code, TORCHELASTIC_TIMER_FILE=path)
    assert worker.wait(DEADLINE_S) == -signal.SIGKILL
    assert post.line() == "timer expired: missed"


def test_the_bytes_are_the_same(start_python):
    fields = [
        [12, "train.py#3", 1700000000.25, 9],
        [4194304, 'quote " and \\ and käse \U0001f600', 1.0, 15],
        [12, "released", -1, 0],
        [12, "line\nfeed", 1e30, -1],
    ]
    code = """
        import json, sys
        from torch.distributed.elastic.timer import FileTimerRequest
        print(json.dumps([FileTimerRequest(*fields).to_json() for fields in json.loads(sys.argv[1])]))
    """
    torch = start_python(code, json.dumps(fields))
    written, errors = torch.communicate(timeout=DEADLINE_S)
    assert json.loads(written) == [FileTimerRequest(*each).to_json() for each in fields], errors


def test_torchs_local_client_works_with_our_server(start_python):
    code = """
        import multiprocessing, signal, sys
        from holdfast.watchdog import LocalTimerServer

        def work(mp_queue):
            from torch.distributed.elastic.timer import LocalTimerClient, expires
            client = LocalTimerClient(mp_queue)
            with expires(after=0.1, scope="missed", client=client):
                while True:
                    signal.pause()

        context = multiprocessing.get_context("fork")
        mp_queue = context.Queue()
        worker = context.Process(target=work, args=(mp_queue,))
        worker.start()
        server = LocalTimerServer(mp_queue)
        server.start()
        worker.join(100)
        print(worker.exitcode)
        worker.kill()
        server.stop()
    """
    told, errors = start_python(code).communicate(timeout=DEADLINE_S)
    assert told == f"{-signal.SIGKILL}\n", errors


def test_the_parameters_are_torchs(start_python):
    """A call that torch accepts means the same here: parameters by name, order and default."""
    code = """
        import inspect, json, sys
        module = __import__(sys.argv[1], fromlist=["_"])
        names = ["configure", "expires", "TimerRequest", "FileTimerRequest", "LocalTimerClient", "LocalTimerServer",
                 "FileTimerClient", "FileTimerServer", "TimerServer", "TimerClient.acquire", "TimerClient.release",
                 "TimerServer.register_timers", "TimerServer.clear_timers", "TimerServer.get_expired_timers",
                 "FileTimerServer.register_timers", "FileTimerServer.clear_timers",
                 "FileTimerServer.get_expired_timers", "FileTimerServer.run_once", "FileTimerServer.stop",
                 "FileTimerServer.get_last_progress_time", "FileTimerServer.is_process_running"]
        found = {}
        for name in names:
            thing = module
            for part in name.split("."):
                thing = getattr(thing, part)
            found[name] = [
                [each.name, None if each.default is each.empty else str(each.default)]
                for each in inspect.signature(thing).parameters.values() if each.kind is not each.KEYWORD_ONLY
            ]
        print(json.dumps(found))
    """
    processes = [start_python(code, name) for name in ("holdfast.watchdog", "torch.distributed.elastic.timer")]
    ours, theirs = (json.loads(process.communicate(timeout=DEADLINE_S)[0]) for process in processes)
    assert ours == theirs
