"""A worker of the storm's job: says that it began, and is the example from then on. Its connection ends when it does.

Its arguments are the observer's socket, the node's name, the number of the job, the example, the directory of the
training and the file that says how many steps there are; "+40" is so many after those that were saved. All workers of
a generation find the same there: those of the last one have ended, and theirs cannot go on before all have begun.

As long as it runs it writes the time into its pulse, a file in memory: the last time is a proof that it was still
there, however late its end is seen. It does not hurry to end when it has lost its peers, as programs do that save or
upload something then. It stands still when a file asks it to.
"""

import json
import mmap
import os
import runpy
import socket
import struct
import sys
import threading
import time
from typing import NoReturn

NAMES = (
    *("RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    *("TORCHELASTIC_RESTART_COUNT", "HOLDFAST_GENERATION"),
)


def steps_to_make(goal: str, history: str) -> int:
    with open(goal) as file:
        text = file.read()
    if not text.startswith("+"):
        return int(text)
    with open(history) as file:
        saved = [fact["saved"] for fact in map(json.loads, file) if "saved" in fact]
    return int(text) + (saved[-1] if saved else 0)


PULSE_S = 0.01
"""How often the time is written."""

LINGER_S = 2.0
"""How long a worker lives on after an exception."""

STANDING_S = 86_400.0


def start_pulse(path: str) -> None:
    with open(path, "w+b") as file:
        file.write(bytes(8))
        file.flush()
        page = mmap.mmap(file.fileno(), 8)

    def beat() -> None:
        while True:
            struct.pack_into("q", page, 0, time.monotonic_ns())
            time.sleep(PULSE_S)

    threading.Thread(target=beat, daemon=True, name="pulse").start()


def stand_still() -> NoReturn:
    """Where a worker is that hangs: in none of torch's functions."""
    while True:
        time.sleep(STANDING_S)


def obey(request: str) -> None:
    """Let the training's heartbeats look for a request to stand still: before the heartbeat is sent, or after."""
    from holdfast import worker

    send = worker.heartbeat

    def heartbeat(step: int = -1) -> None:
        when = ""
        if os.path.exists(request):
            with open(request) as file:
                when = file.read()
            os.unlink(request)
        if when == "before":
            stand_still()
        send(step)
        if when == "after":
            stand_still()

    worker.heartbeat = heartbeat


def main() -> None:
    observer, node, job, example, directory, goal = sys.argv[1:]
    base = os.path.dirname(observer)
    pulse = os.path.join(base, "pulses", f"{node}-{os.getpid()}")
    start_pulse(pulse)
    steps = steps_to_make(goal, os.path.join(directory, "history.jsonl"))
    said = {
        "node": node,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "job": int(job),
        "pulse": pulse,
        "at_ns": time.monotonic_ns(),
        "steps": steps,
        "environment": {name: os.environ[name] for name in NAMES},
    }
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(observer)
    connection.sendall(json.dumps(said).encode() + b"\n")
    connection.detach()  # the kernel closes it, and not before this process is gone
    options = {"directory": directory, "steps": steps, "checkpoint-every": 15, "pause": 0.02}
    sys.argv = [example, *(word for name, value in options.items() for word in (f"--{name}", str(value)))]
    obey(os.path.join(base, "requests", f"{node}-{os.environ['LOCAL_RANK']}"))
    try:
        runpy.run_path(example, run_name="__main__")
    except Exception:
        time.sleep(LINGER_S)
        raise


if __name__ == "__main__":
    main()
