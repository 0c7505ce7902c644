"""The ways in which a program can fail, and what is to be said of each: a table of programs."""

from __future__ import annotations

import os
import signal
import sys

from failing_jobs import SCRIPT, Way

# Exceptions

EXCEPTIONS = [
    Way(
        "in the main thread",
        """
        def step(batch):
            return batch["loss"]

        step({})
        """,
        "exception",
        "Traceback (most recent call last):",
        "in step",
        "KeyError: 'loss'",
        exception="KeyError",
        where=f"{SCRIPT}:2 in step",
    ),
    Way(
        "on rank 1 of 2",
        """
        import os, signal
        if os.environ["RANK"] == "0":
            signal.pause()
        raise ValueError("only here")
        """,
        "exception",
        "ValueError: only here",
        rank=1,
        workers=2,
        exception="ValueError",
        where=f"{SCRIPT}:4",
    ),
    Way(
        "in a thread",
        """
        import sys, threading

        def load():
            raise OSError("no such shard")

        loader = threading.Thread(target=load, name="loader")
        loader.start()
        loader.join()
        sys.exit(1)
        """,
        "exception",
        "OSError: no such shard",
        exception="OSError",
        where=f"{SCRIPT}:4 in load",
    ),
    Way(
        "elsewhere, after a thread that nobody missed",
        """
        import contextlib, os, signal, sys, threading

        def monitor():
            raise OSError("nobody listens")

        with contextlib.suppress(FileExistsError):
            os.mkfifo("ready")
        if os.environ["RANK"] == "0":
            thread = threading.Thread(target=monitor)
            thread.start()
            thread.join()
            os.open("ready", os.O_WRONLY)
            signal.pause()
        os.open("ready", os.O_RDONLY)
        sys.exit(3)
        """,
        "exit",
        "exited with code 3",
        rank=1,
        workers=2,
    ),
    Way(
        "at import",
        "import model\n",
        "exception",
        "import model",
        "ZeroDivisionError: division by zero",
        exception="ZeroDivisionError",
        where="model.py:2",
        files={"model.py": "layers = 0\nwidth = 512 / layers\n"},
    ),
    Way(
        "in a module",
        "",
        "exception",
        "RuntimeError: as a module",
        exception="RuntimeError",
        where="job/__main__.py:1",
        words=("-m", "job"),
        files={"job/__main__.py": 'raise RuntimeError("as a module")\n'},
    ),
    Way(
        "a script that cannot be compiled",
        "epochs = 3\nfor epoch in range(epochs)\n    pass\n",
        "exception",
        "for epoch in range(epochs)",
        "SyntaxError: expected ':'",
        exception="SyntaxError",
        where=f"{SCRIPT}:2",
    ),
    Way(
        "a script that is not indented well",
        "if True:\nprint()\n",
        "exception",
        "IndentationError: expected an indented block",
        exception="IndentationError",
        where=f"{SCRIPT}:2",
    ),
    Way(
        "an import that cannot be compiled",
        "import model\n",
        "exception",
        "import model",
        "SyntaxError: '(' was never closed",
        exception="SyntaxError",
        where="model.py:1",
        files={"model.py": "layers = (1,\n"},
    ),
    Way(
        "a missing module",
        "import a_module_that_nobody_has\n",
        "exception",
        "ModuleNotFoundError: No module named 'a_module_that_nobody_has'",
        exception="ModuleNotFoundError",
        where=f"{SCRIPT}:1",
    ),
    Way(
        "a missing module as the program",
        "",
        "exception",
        "No module named json.a_module_that_nobody_has",
        exception="ModuleNotFoundError",
        where="python -m",
        words=("-m", "json.a_module_that_nobody_has"),
    ),
    Way(
        "chained",
        """
        try:
            {}["shard"]
        except KeyError as error:
            raise RuntimeError("cannot load") from error
        """,
        "exception",
        "KeyError: 'shard'",
        "direct cause of the following exception",
        "RuntimeError: cannot load",
        exception="RuntimeError",
        where=f"{SCRIPT}:4",
    ),
    Way(
        "a group",
        'raise ExceptionGroup("two shards", [ValueError("first"), OSError("second")])\n',
        "exception",
        "ExceptionGroup: two shards (2 sub-exceptions)",
        "ValueError: first",
        "OSError: second",
        exception="ExceptionGroup",
        where=f"{SCRIPT}:1",
    ),
    Way(
        "with notes",
        """
        error = ValueError("bad batch")
        error.add_note("in shard 17")
        raise error
        """,
        "exception",
        "ValueError: bad batch",
        "in shard 17",
        exception="ValueError",
        where=f"{SCRIPT}:3",
    ),
    Way(
        "without a text",
        """
        class Shy(Exception):
            def __str__(self):
                raise RuntimeError("not you again")

        raise Shy
        """,
        "exception",
        "Shy: <exception str() failed>",
        exception="Shy",
        where=f"{SCRIPT}:5",
    ),
    Way(
        "an interrupt of its own",
        "def step():\n    raise KeyboardInterrupt\n\nstep()\n",
        "exception",
        "KeyboardInterrupt",
        exception="KeyboardInterrupt",
        where=f"{SCRIPT}:2 in step",
    ),
    Way(
        "too deep",
        "def down():\n    return down() + 1\n\ndown()\n",
        "exception",
        "RecursionError: maximum recursion depth exceeded",
        exception="RecursionError",
        where=f"{SCRIPT}:2 in down",
    ),
    Way(
        "no memory that Python could have",
        "batch = bytearray(1 << 62)\n",
        "exception",
        "MemoryError",
        exception="MemoryError",
        where=f"{SCRIPT}:1",
    ),
    Way(
        "with --run-path",
        'raise LookupError("as a function")\n',
        "exception",
        "LookupError: as a function",
        exception="LookupError",
        where=f"{SCRIPT}:1",
        options=("--run-path",),
    ),
    Way(
        "with redirects",
        'raise LookupError("into a file")\n',
        "exception",
        "LookupError: into a file",
        exception="LookupError",
        where=f"{SCRIPT}:1",
        options=("--redirects", "3"),
    ),
    Way(
        "without what records it",
        'raise LookupError("isolated")\n',
        "exception",
        "Traceback (most recent call last):",
        "LookupError: isolated",
        exception="LookupError",
        where=f"{SCRIPT}:1",
        options=("--no-python",),
        words=(sys.executable, "-I", SCRIPT),
    ),
]

# Signals

CRASHES = [
    Way(
        "SIGSEGV",
        """
        import ctypes

        def kernel():
            ctypes.string_at(0)

        kernel()
        """,
        "crash",
        "(SIGSEGV)",
        "Fatal Python error: Segmentation fault",
        "in kernel",
        where=f"{SCRIPT}:4 in kernel",
    ),
    Way(
        "SIGSEGV with threads",
        """
        import ctypes, threading

        def prefetch():
            ready.set()
            threading.Event().wait()

        ready = threading.Event()
        threading.Thread(target=prefetch, daemon=True).start()
        ready.wait()
        ctypes.string_at(0)
        """,
        "crash",
        "(SIGSEGV)",
        "in prefetch",
        where=f"{SCRIPT}:10",
    ),
    Way(
        "SIGABRT",
        "import os\nos.abort()\n",
        "crash",
        "(SIGABRT)",
        "Fatal Python error: Aborted",
        where=f"{SCRIPT}:2",
    ),
    Way(
        "SIGABRT with last words",
        """
        import os
        os.write(2, b"terminate called after throwing an instance of 'std::runtime_error'\\n  what():  wrong device\\n")
        os.abort()
        """,
        "crash",
        "(SIGABRT)",
        "terminate called after throwing",
        "what():  wrong device",
        where=f"{SCRIPT}:3",
    ),
    Way(
        "SIGABRT after the last line",
        """
        import ctypes
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p] * 3
        terminate = ctypes.CDLL("libstdc++.so.6")._ZSt9terminatev
        ends_with_the_module = make(1, None, ctypes.cast(terminate, ctypes.c_void_p))
        """,
        "crash",
        "(SIGABRT)",
        "<no Python frame>",
        "terminate called without an active exception",
        where="the end of the interpreter",
        options=("--strict-exit",),
    ),
    Way(
        "SIGBUS",
        """
        import mmap
        with open("data", "w+b") as file:
            file.truncate(4096)
            data = mmap.mmap(file.fileno(), 4096)
            file.truncate(0)
        data[0]
        """,
        "crash",
        "(SIGBUS)",
        "Fatal Python error: Bus error",
        where=f"{SCRIPT}:6",
    ),
    *(
        Way(
            name,
            f"import os, signal\nos.kill(os.getpid(), signal.{name})\n",
            "crash",
            f"({name})",
            "Fatal Python error",
            where=f"{SCRIPT}:2",
        )
        for name in ("SIGFPE", "SIGILL")
    ),
]

POST_AND_WAIT = """
import os, signal
rank = os.environ["RANK"]
if rank == os.environ["WANTED"]:
    with open("post", "w") as post:
        post.write(f"{os.getpid()}\\n")
while True:
    signal.pause()
"""


def send(signum):
    return lambda pid: os.kill(pid, signum)


KILLS = [
    Way(
        "SIGKILL from outside",
        POST_AND_WAIT,
        "killed",
        "Signal 9 (SIGKILL)",
        environment={"WANTED": "0"},
        outside=send(signal.SIGKILL),
    ),
    Way(
        "SIGKILL from outside on rank 1 of 2",
        POST_AND_WAIT,
        "killed",
        "Signal 9 (SIGKILL)",
        rank=1,
        workers=2,
        environment={"WANTED": "1"},
        outside=send(signal.SIGKILL),
    ),
    Way(
        "SIGTERM from outside",
        POST_AND_WAIT,
        "killed",
        "Signal 15 (SIGTERM)",
        environment={"WANTED": "0"},
        outside=send(signal.SIGTERM),
    ),
]

# Exit codes

EXITS = [
    Way("exit code 3", "import sys\nsys.exit(3)\n", "exit", "exited with code 3"),
    Way(
        "a text to leave with",
        'import sys\nsys.exit("no data in /data")\n',
        "exit",
        "exited with code 1",
        "no data in /data",
    ),
    Way(
        "_exit",
        'import os, sys\nprint("about to leave", file=sys.stderr)\nos._exit(7)\n',
        "exit",
        "exited with code 7",
        "about to leave",
    ),
    Way(
        "arguments that it does not take",
        """
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--epochs", type=int, required=True)
        parser.parse_args()
        """,
        "exit",
        "exited with code 2",
        "the following arguments are required: --epochs",
        where="the command line",
    ),
    Way(
        "a shell whose command was killed",
        "",
        "exit",
        "exited with code 139",
        "SIGSEGV",
        options=("--no-python",),
        words=("./run.sh",),
        files={"run.sh": "#!/bin/sh\nsh -c 'kill -SEGV $$'\nexit $?\n"},
    ),
    Way(
        "a broken interpreter",
        "",
        "exit",
        "exited with code 127",
        "libpython3.so: cannot open shared object file",
        environment={"PYTHON_EXEC": "./python"},
        files={"python": "#!/bin/sh\necho 'libpython3.so: cannot open shared object file' >&2\nexit 127\n"},
    ),
]

# Too long

HANGS = [
    Way(
        "a hang in Python",
        """
        import time

        def wait_for_data():
            time.sleep(3600)

        wait_for_data()
        """,
        "hang",
        "in wait_for_data",
        where=f"{SCRIPT}:4 in wait_for_data",
        options=("--hang-timeout", "1"),
    ),
    Way(
        "a hang in C",
        """
        import ctypes, os

        def kernel():
            ctypes.CDLL(None).read(os.pipe()[0], ctypes.create_string_buffer(1), 1)

        kernel()
        """,
        "hang",
        "in kernel",
        where=f"{SCRIPT}:4 in kernel",
        options=("--hang-timeout", "1"),
    ),
    Way(
        "a hang of rank 1 of 3 that the others wait for",
        """
        import os, socket, time

        def all_reduce(sock):
            sock.recv(1)

        def load():
            time.sleep(3600)

        mine, other = socket.socketpair()
        if os.environ["RANK"] == "1":
            load()
        all_reduce(mine)
        """,
        "hang",
        "in load",
        rank=1,
        workers=3,
        where=f"{SCRIPT}:7 in load",
        options=("--hang-timeout", "1"),
    ),
    Way(
        "heartbeats that stop",
        """
        import os
        from holdfast.worker import heartbeat

        def spin():
            while True:
                pass

        heartbeat()
        spin()
        """,
        "hang",
        "in spin",
        where=f"{SCRIPT}:",
        options=("--hang-timeout", "1"),
    ),
    Way(
        "a timer that expired",
        """
        import signal
        from holdfast.watchdog import expires

        with expires(after=0.2, scope="all_reduce"):
            while True:
                signal.pause()
        """,
        "timeout",
        "all_reduce",
        where=f"{SCRIPT}:6 in <module>",
        environment={"TORCHELASTIC_ENABLE_FILE_TIMER": "1"},
    ),
]

# Others that fail because of it, or with it

VICTIMS = [
    Way(
        "a lost peer is a victim even if it is the first to say so",
        """
        import atexit, os, signal, socket, struct

        def served():
            listener = socket.create_server(("127.0.0.1", 0))
            with open("between", "w") as pipe:
                pipe.write(str(listener.getsockname()[1]))
            peer, _ = listener.accept()
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.close()
            open("between").close()
            raise ValueError("the cause")

        def linger():
            open("between", "w").close()
            while True:
                signal.pause()

        def connected():
            atexit.register(linger)
            with open("between") as pipe:
                port = int(pipe.read())
            with socket.create_connection(("127.0.0.1", port)) as peer:
                peer.recv(1)

        served() if os.environ["RANK"] == "0" else connected()
        """,
        "exception",
        "ValueError: the cause",
        workers=2,
        victims=1,
        exception="ValueError",
        where=f"{SCRIPT}:11 in served",
    ),
    Way(
        "a lost peer alone is the cause",
        """
        import socket
        mine, other = socket.socketpair()
        other.send(b"x")
        mine.send(b"x")
        other.close()
        mine.recv(1)
        mine.recv(1)
        """,
        "communication",
        "ConnectionResetError",
        exception="ConnectionResetError",
        where=f"{SCRIPT}:",
    ),
    Way(
        "one that had to be killed is no cause",
        """
        import os, signal
        if os.environ["RANK"] == "0":
            open("between").close()
            raise ValueError("the cause")
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        open("between", "w").close()
        while True:
            signal.pause()
        """,
        "exception",
        "ValueError: the cause",
        workers=2,
        exception="ValueError",
        where=f"{SCRIPT}:4",
        options=("--shutdown-timeout", "1"),
    ),
]

WAYS = [*EXCEPTIONS, *CRASHES, *KILLS, *EXITS, *HANGS, *VICTIMS]
