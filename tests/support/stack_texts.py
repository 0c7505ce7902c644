"""Stacks as faulthandler and py-spy write them."""

from __future__ import annotations

import textwrap

SITE = "/venv/lib/python3.11/site-packages"
C10D = f"{SITE}/torch/distributed/distributed_c10d.py"
LOGGER = f"{SITE}/torch/distributed/c10d_logger.py"


def text(*frames, remarks=""):
    """What faulthandler writes: "file:line function", the innermost first. A thread of the library comes before."""
    lines = [
        "Thread 0x00007f0000000001 (most recent call first):",
        f'  File "{C10D}", line 1 in all_reduce',
        "",
        "Current thread 0x00007f4020457b80 (most recent call first):",
    ]
    for frame in frames:
        place, _, function = frame.partition(" ")
        file, _, line = place.rpartition(":")
        lines.append(f'  File "{file}", line {line} in {function}')
    return remarks + "\n".join(lines) + "\n"


MAIN = ("/srv/train.py:27 main", "/srv/train.py:28 <module>")
WRAPPER = f"{LOGGER}:83 wrapper"

ALL_REDUCE = text(f"{C10D}:3252 all_reduce", WRAPPER, "/srv/train.py:8 step", *MAIN)
BARRIER = text(f"{C10D}:5400 barrier", WRAPPER, "/srv/train.py:9 step", *MAIN)
LOADER = text("/srv/loader.py:4 read", "/srv/train.py:6 step", *MAIN)
SAVING = text("/venv/lib/python3.11/socket.py:705 readinto", "/srv/save.py:7 save", *MAIN)
BACKWARD = text(
    f"{SITE}/torch/autograd/graph.py:979 _engine_run_backward",
    f"{SITE}/torch/autograd/__init__.py:395 backward",
    f"{SITE}/torch/_tensor.py:623 backward",
    "/srv/train.py:15 step",
    *MAIN,
)
WORK_WAIT = text("/srv/train.py:11 step", *MAIN, remarks="# line: dist.all_reduce(t, async_op=True).wait()\n")
STOPPED = "# state: stopped by a signal\n" + ALL_REDUCE
NO_STACK = "# state: no Python stack: sleeping, in the kernel at futex_wait\n# source: the kernel\n"
PY_SPY = textwrap.dedent(f"""\
    # source: py-spy, because it did not answer
    Process 4242
    Thread 4243 (idle): "loader"
        wait (threading.py:320)
    Thread 4242 (active): "MainThread"
        all_reduce ({C10D}:3252)
        wrapper ({LOGGER}:83)
        step (/srv/train.py:8)
        <module> (/srv/train.py:28)
    """)
