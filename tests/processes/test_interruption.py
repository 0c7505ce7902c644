"""Signals as exceptions in the main thread."""

from __future__ import annotations

import os
import pickle
import select
import signal
import subprocess
import sys
import threading

import pytest
from liveness import exists

from holdfast.errors import InputError
from holdfast.processes import SignalException, interruption
from holdfast.processes.interruption import (
    SIGNALS_VARIABLE,
    Deferred,
    Held,
    Uninterrupted,
    handlers,
    signals_to_handle,
)
from holdfast.processes.keeper_client import KeeperClient

pytestmark = pytest.mark.usefixtures("nothing_left")

HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def send_once_waiting(signum):
    """A thread that sends `signum` to this one as soon as it waits for its set, and not before."""
    main_thread = threading.get_ident()

    def is_waiting():
        frame = sys._current_frames()[main_thread]
        while frame is not None and frame.f_code.co_name != "wait_until":
            frame = frame.f_back
        return frame is not None

    def send():
        while not is_waiting():
            os.sched_yield()
        signal.pthread_kill(main_thread, signum)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


@pytest.mark.parametrize("signum", HANDLED)
def test_a_signal_interrupts_a_wait(start, signum):
    context = start("sleep", [("1000",)])
    sender = send_once_waiting(signum)
    with pytest.raises(SignalException, match=signum.name) as raised:
        context.wait()
    sender.join()
    assert raised.value.sigval is signum


@pytest.mark.parametrize("signum", HANDLED)
def test_only_an_interruption_from_the_keyboard_is_a_keyboard_interrupt(start, signum):
    start("sleep", [("1000",)])
    with pytest.raises(SignalException) as raised:
        os.kill(os.getpid(), signum)
    assert isinstance(raised.value, KeyboardInterrupt) is (signum == signal.SIGINT)
    assert pickle.loads(pickle.dumps(raised.value)).sigval is signum


def test_a_signal_interrupts_the_program_between_waits(start):
    start("sleep", [("1000",)])
    with pytest.raises(SignalException):
        os.kill(os.getpid(), signal.SIGTERM)


def test_a_set_can_be_closed_after_an_interruption(start):
    context = start("sleep", [("1000",)])
    with pytest.raises(SignalException) as raised:
        os.kill(os.getpid(), signal.SIGHUP)
    context.close(raised.value.sigval)
    assert context.wait().terminated == {0: -signal.SIGHUP}


def test_a_close_that_was_interrupted_can_be_repeated(start, post):
    context = start("sh", [("-c", f"trap '' TERM; echo $$ > {post.path}; while :; do sleep 1000; done")])
    (pid,) = post.pids(1)
    sender = send_once_waiting(signal.SIGINT)
    with pytest.raises(SignalException):
        context.close(timeout=1000)
    sender.join()
    assert exists(pid)
    context.close(timeout=0)
    assert not exists(pid)


def test_handlers_are_put_back(start):
    before = [signal.getsignal(s) for s in HANDLED]
    context = start("sleep", [("1000",)])
    during = [signal.getsignal(s) for s in HANDLED]
    assert during != before
    context.close()
    assert [signal.getsignal(s) for s in HANDLED] == before


@pytest.mark.parametrize("signum", HANDLED[1:])
def test_a_signal_of_the_terminal_that_is_ignored_stays_ignored(start, signum):
    before = signal.signal(signum, signal.SIG_IGN)
    try:
        context = start("sleep", [("1000",)])
        assert signal.getsignal(signum) is signal.SIG_IGN
        os.kill(os.getpid(), signum)
        assert context.wait(0) is None
        with pytest.raises(SignalException):
            os.kill(os.getpid(), signal.SIGTERM)
        context.close()
        assert signal.getsignal(signum) is signal.SIG_IGN
    finally:
        signal.signal(signum, before)


def test_a_request_to_end_is_handled_even_where_it_was_ignored(start):
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        context = start("sleep", [("1000",)])
        with pytest.raises(SignalException):
            os.kill(os.getpid(), signal.SIGTERM)
        context.close()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("first_closed", [0, 1])
def test_handlers_stay_until_the_last_set_closes(start, first_closed):
    before = signal.getsignal(signal.SIGTERM)
    contexts = [start("sleep", [("1000",)]), start("sleep", [("1000",)])]
    contexts[first_closed].close()
    assert signal.getsignal(signal.SIGTERM) != before
    contexts[1 - first_closed].close()
    assert signal.getsignal(signal.SIGTERM) == before


def test_handlers_are_put_back_when_nothing_could_start(start):
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(FileNotFoundError):
        start("no-such-command", [()])
    assert signal.getsignal(signal.SIGTERM) == before


def test_the_signals_are_named_in_the_environment(start, monkeypatch):
    monkeypatch.setenv(SIGNALS_VARIABLE, "SIGUSR1, SIGUSR2")
    before = signal.getsignal(signal.SIGTERM)
    start("sleep", [("1000",)])
    assert signal.getsignal(signal.SIGTERM) == before
    for signum in (signal.SIGUSR1, signal.SIGUSR2):
        with pytest.raises(SignalException) as raised:
            os.kill(os.getpid(), signum)
        assert raised.value.sigval is signum


@pytest.mark.parametrize("text", ["SIGNONE", "SIGTERM,9", "SIGKILL", "SIGTERM;SIGINT"])
def test_an_unknown_signal_is_shown(start, monkeypatch, text):
    monkeypatch.setenv(SIGNALS_VARIABLE, text)
    before = handlers.users
    with pytest.raises(InputError, match=f"{SIGNALS_VARIABLE}='{text}'"):
        start("true", [()])
    assert handlers.users == before


@pytest.mark.parametrize("text", ["TERM", "term", "sigterm"])
def test_a_signal_that_is_nearly_right_is_suggested(text):
    with pytest.raises(InputError, match=rf"unknown signal '{text}'; did you mean SIGTERM\?"):
        signals_to_handle(f"SIGINT,{text}")


def test_who_comes_second_changes_no_handlers(monkeypatch):
    """A launcher, its agent and its set of workers are one launch: the launcher has said which signals."""
    monkeypatch.setenv(SIGNALS_VARIABLE, "SIGUSR2")
    handlers.install([signal.SIGUSR1])
    try:
        handlers.install()
        assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL
        handlers.uninstall()
        assert signal.getsignal(signal.SIGUSR1) == handlers._handle
    finally:
        handlers.uninstall()
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL


def test_no_signals_at_all(monkeypatch):
    monkeypatch.setenv(SIGNALS_VARIABLE, "")
    assert signals_to_handle() == []


def test_off_the_main_thread_there_are_no_handlers(start):
    before = signal.getsignal(signal.SIGTERM)
    seen = []

    def work():
        context = start("sleep", [("1000",)])
        seen.append(signal.getsignal(signal.SIGTERM))
        context.close()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]


def test_a_set_of_the_main_thread_closed_by_another_leaves_the_old_behaviour(start):
    """The handlers cannot be put back there; a signal that comes later is passed on to what stood before."""
    got = []
    before = signal.signal(signal.SIGTERM, lambda signum, _frame: got.append(signum))
    try:
        context = start("sleep", [("1000",)])
        closer = threading.Thread(target=context.close)
        closer.start()
        closer.join()
        os.kill(os.getpid(), signal.SIGTERM)
        assert got == [signal.SIGTERM]
        assert handlers.previous == {}
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_section_that_must_not_be_left_half_done(start):
    start("sleep", [("1000",)])
    done = []

    def section():
        with Uninterrupted():
            os.kill(os.getpid(), signal.SIGTERM)
            done.append("all of it")

    with pytest.raises(SignalException):
        section()
    assert done == ["all of it"]


@pytest.mark.parametrize("how_many", [1, 2, 3])
def test_signals_while_a_set_starts_end_what_has_started(how_many):
    """The program ends with the exception, and no process stays behind; a second signal cuts the grace short."""
    script = f"""
import os, signal
from holdfast.processes import DefaultLogsSpecs, SignalException, start_processes
from holdfast.processes.keeper_client import KeeperClient
original, sent = KeeperClient.wait_until, []
def interrupted(self, *args):
    if len(sent) < {how_many}:
        sent.append(os.kill(os.getpid(), signal.SIGTERM))
    return original(self, *args)
KeeperClient.wait_until = interrupted
try:
    start_processes("set", "sh", {{0: ("-c", "trap '' TERM; sleep 1000; sleep 1000")}}, {{0: {{}}}},
        DefaultLogsSpecs(log_dir="/dev/null"), shutdown_timeout={1000 if how_many > 1 else 0.1})
except SignalException as error:
    children = open("/proc/self/task/%d/children" % os.getpid()).read().split()
    print(error.sigval.name, children, signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert ran.stdout == "SIGTERM [] True\n", ran.stderr


def test_a_signal_between_two_sections_that_are_held_is_raised_at_the_next_wait(start):
    start("sleep", [("1000",)])
    done = []

    def go_on():
        with Held():
            os.kill(os.getpid(), signal.SIGTERM)
            done.append("held")
        done.append("not raised at its end")
        with Uninterrupted():
            pass

    with pytest.raises(SignalException):
        go_on()
    assert done == ["held", "not raised at its end"]


def test_two_signals_in_one_section_are_two(start):
    start("sleep", [("1000",)])

    def section(*signals):
        with Uninterrupted():
            for signum in signals:
                os.kill(os.getpid(), signum)

    with pytest.raises(SignalException) as first:
        section(signal.SIGTERM, signal.SIGINT)
    with pytest.raises(SignalException) as second:
        section()
    assert (first.value.sigval, second.value.sigval) == (signal.SIGTERM, signal.SIGINT)


# Sections that defer a signal


def test_a_deferred_signal_is_raised_at_the_end_of_the_section(start):
    done = []

    def section():
        with Deferred():
            os.kill(os.getpid(), signal.SIGTERM)
            start("sleep", [("1000",)])
            with Uninterrupted():
                done.append("all of it")

    handlers.install()
    try:
        with pytest.raises(SignalException):
            section()
    finally:
        handlers.uninstall()
    assert done == ["all of it"]


def test_a_second_signal_is_not_deferred(start):
    done = []

    def section():
        with Deferred():
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGINT)
            done.append("more")

    start("sleep", [("1000",)])
    with pytest.raises(SignalException) as raised:
        section()
    assert (done, raised.value.sigval) == ([], signal.SIGINT)
    with Uninterrupted():
        pass  # nothing is left


@pytest.mark.parametrize("is_held", [False, True], ids=["in a wait", "in a held section"])
def test_a_signal_is_deferred_for_a_limited_time(start, monkeypatch, is_held):
    """A set may never start, or somebody else's code may run in the section."""
    monkeypatch.setattr(interruption, "DEFERRED_MAX_S", 0.01)
    monkeypatch.setattr(KeeperClient, "is_started", property(lambda _: False, lambda *_: None), raising=False)

    def section():
        with Deferred():
            if is_held:
                with Uninterrupted():
                    os.kill(os.getpid(), signal.SIGTERM)
            else:
                os.kill(os.getpid(), signal.SIGTERM)
            start("sleep", [("1000",)])

    handlers.install()
    try:
        with pytest.raises(SignalException):
            section()
    finally:
        handlers.uninstall()


def test_a_start_that_fails_does_not_swallow_the_signal():
    def section():
        with Deferred():
            os.kill(os.getpid(), signal.SIGTERM)
            raise OSError("no such program")

    handlers.install()
    try:
        with pytest.raises(SignalException) as raised:
            section()
    finally:
        handlers.uninstall()
    assert str(raised.value.__cause__) == "no such program"


@pytest.mark.parametrize("way", ["in a section that fails", "during an import"])
def test_a_signal_that_nobody_has_raised_is_the_programs_when_the_last_set_closes(tmp_path, way):
    """Its own handler gets it, and the next job does not."""
    (tmp_path / "interrupted.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n")
    script = f"""
import os, select, signal, sys
from holdfast.processes.interruption import Uninterrupted, handlers
sys.path.insert(0, {str(tmp_path)!r})
got = []
read_end, write_end = os.pipe2(os.O_NONBLOCK)
signal.signal(signal.SIGTERM, lambda *_: got.append("the program's"))
signal.set_wakeup_fd(write_end)
handlers.install()
try:
    if {way!r} == "during an import":
        ours = {{"__name__": "holdfast.loading"}}
        exec("def load():\\n    import interrupted", ours)
        ours["load"]()
    else:
        with Uninterrupted():
            os.kill(os.getpid(), signal.SIGTERM)
            raise OSError
except OSError:
    pass
finally:
    handlers.uninstall()
while not got and select.select([read_end], [], [], 60)[0]:
    pass
print(got, handlers.pending)
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=90, check=False)
    assert ran.stdout == '["the program\'s"] []\n', ran.stderr


def test_a_forked_child_writes_its_signals_into_no_file_of_its_own(tmp_path):
    """Another thread may fork while the main thread waits, and descriptors that were closed are used again."""
    script = f"""
import os, signal, threading
from holdfast.agent.wait import Wait
from holdfast.processes.interruption import handlers
handlers.install()
def fork():
    pid = os.fork()
    if pid == 0:
        files = [os.open({str(tmp_path)!r} + f"/{{number}}", os.O_RDWR | os.O_CREAT) for number in range(8)]
        signal.signal(signal.SIGUSR1, lambda *_: None)
        os.kill(os.getpid(), signal.SIGUSR1)
        os._exit(any(os.pread(file, 1, 0) for file in files))
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    os.write(wakes, b"x")
read_end, wakes = os.pipe()
wait = Wait()
wait.add(read_end)
threading.Thread(target=fork).start()
wait.run()
handlers.uninstall()
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert ran.stdout == "0\n", ran.stderr


def test_another_listener_for_signals_is_told_as_well(start):
    """An event loop in the same thread has a wake-up descriptor of its own."""
    read_end, write_end = os.pipe2(os.O_NONBLOCK)
    before = signal.set_wakeup_fd(write_end)
    try:
        context = start("sleep", [("1000",)])
        sender = send_once_waiting(signal.SIGTERM)
        with pytest.raises(SignalException):
            context.wait()
        sender.join()
        assert os.read(read_end, 100) == bytes([signal.SIGTERM])
        assert signal.set_wakeup_fd(write_end) == write_end
    finally:
        signal.set_wakeup_fd(before)
        os.close(read_end)
        os.close(write_end)


def test_the_exception_survives_pickling():
    import pickle

    copy = pickle.loads(pickle.dumps(SignalException("text", signal.SIGTERM)))
    assert (str(copy), copy.sigval) == ("text", signal.SIGTERM)


IMPORTED_SLOWLY = """
import os, signal
os.kill(os.getpid(), signal.SIGTERM)
for _ in range(1000):
    pass
IS_WHOLE = True
"""


def test_a_signal_during_an_import_waits_for_its_end(tmp_path, monkeypatch):
    """Half an extension module crashes the interpreter when it is used."""
    (tmp_path / "imported_slowly.py").write_text(IMPORTED_SLOWLY)
    monkeypatch.syspath_prepend(tmp_path)
    ours = {"__name__": "holdfast.loading"}
    exec("def load():\n    import imported_slowly", ours)
    handlers.install()
    try:
        with pytest.raises(SignalException):  # noqa: PT012 - it is raised wherever this is by then
            ours["load"]()
            select.select([], [], [], 60)
        assert sys.modules["imported_slowly"].IS_WHOLE
    finally:
        handlers.uninstall()
        sys.modules.pop("imported_slowly", None)


def test_a_program_that_launches_a_job_while_it_is_imported_can_be_interrupted(tmp_path):
    (tmp_path / "program.py").write_text("""
import os, signal, threading
from holdfast.processes import start_processes, DefaultLogsSpecs, SignalException
context = start_processes("set", "sleep", {0: ("1000",)}, {0: {}}, DefaultLogsSpecs())
timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM))
try:
    timer.start()
    context.wait()
except SignalException:
    print("interrupted")
    context.close(timeout=0)
""")
    ran = subprocess.run(
        [sys.executable, "-c", "import program"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.stdout == "interrupted\n", ran.stderr
