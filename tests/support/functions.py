"""Functions that run in the processes of a set; a spawned process imports them from here."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

from signpost import tell


def nothing(*_):
    pass


def double(value):
    return 2 * value


def scaled(value, *, factor):
    return factor * value


def environment(*names):
    return [os.environ.get(name) for name in names]


def c_environment(name):
    """As C code sees it, which os.environ does not show."""
    import ctypes

    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    return getenv(name.encode())


def many_bytes(count):
    return b"x" * count


def fail(text):
    raise ValueError(text)


def leave(code):
    sys.exit(code)


def leave_at_once(code):
    os._exit(code)


def crash():
    import ctypes

    ctypes.string_at(0)


def crash_afterwards(value):
    """Abort when the interpreter has ended."""
    import ctypes

    libc = ctypes.CDLL(None)
    libc.on_exit(libc.abort, None)
    return value


def return_unpicklable():
    return lambda: None


class Unreadable:
    """Can be pickled, cannot be unpickled."""

    def __reduce__(self):
        return (fail, ("cannot be rebuilt",))


def return_unreadable():
    return Unreadable()


def wait_for_signal(post, *, ignore=()):
    """Say who we are, and stay until a signal ends us."""
    for signum in ignore:
        signal.signal(signum, signal.SIG_IGN)
    tell(post, os.getpid())
    while True:
        signal.pause()


def wait_and_ignore_sigterm(post):
    wait_for_signal(post, ignore=[signal.SIGTERM])


def report_signal(post):
    """Say when we are ready, then which signal came, then leave with 0."""

    def handle(signum, _frame):
        tell(post, f"{signal.Signals(signum).name} {time.monotonic_ns()}")
        sys.exit(0)

    signal.signal(signal.SIGTERM, handle)
    signal.signal(signal.SIGINT, handle)
    tell(post, f"ready {os.getpid()}")
    while True:
        time.sleep(0.1)  # a signal that comes just before signal.pause() would be slept through


def outlive_signals(post):
    """Say when we are ready, then which signals come. None of them ends us."""

    def handle(signum, _frame):
        tell(post, f"{signal.Signals(signum).name} {os.getpid()}")

    signal.signal(signal.SIGTERM, handle)
    signal.signal(signal.SIGINT, handle)
    tell(post, f"ready {os.getpid()}")
    while True:
        time.sleep(0.1)  # a signal that comes just before signal.pause() would be slept through


def stop_self(post):
    tell(post, os.getpid())
    os.kill(os.getpid(), signal.SIGSTOP)
    while True:
        signal.pause()


def fail_when_told(post, fifo):
    tell(post, f"ready {os.getpid()}")
    with open(fifo) as file:
        file.read()
    raise ValueError("told to")


def record_then_linger(post, message):
    """Write the error file, then stay: as a process does whose interpreter takes long to end."""
    from holdfast.errors import get_error_handler

    get_error_handler().record_exception(ValueError(message))
    wait_for_signal(post)


def print_lines(count, text="line"):
    for number in range(count):
        print(text, number)
        print(text, number, file=sys.stderr)


def talk_in_c(text):
    import ctypes

    libc = ctypes.CDLL(None)
    libc.puts(text.encode())
    libc.fflush(None)


def put(queue, value):
    queue.put(value)


def add_under_lock(value, lock, times):
    for _ in range(times):
        with lock:
            value.value += 1


def parent_is_alive():
    import multiprocessing

    parent = multiprocessing.parent_process()
    return parent is not None and parent.is_alive(), parent.pid


def write_shared(name):
    from multiprocessing import shared_memory

    memory = shared_memory.SharedMemory(name)
    memory.buf[:5] = b"hello"
    memory.close()


def tell_interrupt(post):
    try:
        wait_for_signal(post)
    except KeyboardInterrupt:
        tell(post, "KeyboardInterrupt")


def nested(value):
    from holdfast.processes import DefaultLogsSpecs, SignalException, start_processes

    specs = DefaultLogsSpecs(log_dir="/dev/null")
    with start_processes("inner", "sleep", {0: ("1000",)}, {0: {}}, specs):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except SignalException:
            return value, True
    return value, False


def tell_files(post, word):
    """Say how many files this process has open whose name has that word."""
    links = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the one that listed them
            links.append(os.readlink(f"/proc/self/fd/{fd}"))
    tell(post, f"{sum(word in link for link in links)} files")


def start_family(post, how):
    """Leave descendants of some kind behind; each says its identifier. Then wait for a signal."""
    script = f"import sys; sys.path.insert(0, {os.path.dirname(__file__)!r}); import functions; functions."
    python = [sys.executable, "-c"]
    if how == "child":
        subprocess.Popen([*python, f"{script}wait_for_signal({post!r})"])
    elif how == "deaf child":
        subprocess.Popen([*python, f"{script}wait_and_ignore_sigterm({post!r})"])
    elif how == "session":
        subprocess.Popen([*python, f"{script}wait_for_signal({post!r})"], start_new_session=True)
    elif how == "deaf session":
        subprocess.Popen([*python, f"{script}wait_and_ignore_sigterm({post!r})"], start_new_session=True)
    elif how == "daemon":
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                wait_and_ignore_sigterm(post)
            os._exit(0)
        os.wait()
    elif how == "stopped":
        subprocess.Popen([*python, f"{script}stop_self({post!r})"], start_new_session=True)
    elif how == "bare daemon":
        # No environment, no descriptors, no session, no parent: nothing but its ancestry says whose it is.
        subprocess.Popen(
            [*python, f"import os; os.fork() and os._exit(0); {script}wait_and_ignore_sigterm({post!r})"],
            start_new_session=True,
            env={},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ).wait()
    else:
        raise AssertionError(how)
    wait_for_signal(post)


FAMILIES = ("child", "deaf child", "session", "deaf session", "daemon", "stopped", "bare daemon")


def fail_in_thread():
    thread = threading.Thread(target=_raise_lookup_error, name="loader")
    thread.start()
    thread.join()
    sys.exit(3)


def _raise_lookup_error():
    raise LookupError("in a thread")
