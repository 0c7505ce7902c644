"""A worker of the storm's job: says that it began, and is the example from then on. Its connection ends when it does.

Its arguments are the observer's socket, the node's name, the example, the directory of the training and the file that
says how many steps there are; "+40" is so many after those that were saved. All workers of a generation find the same
there: those of the last one have ended, and theirs cannot go on before all have begun.
"""

import json
import os
import runpy
import socket
import sys
import time

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


def main() -> None:
    observer, node, example, directory, goal = sys.argv[1:]
    steps = steps_to_make(goal, os.path.join(directory, "history.jsonl"))
    said = {
        "node": node,
        "host": socket.gethostname(),
        "pid": os.getpid(),
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
    runpy.run_path(example, run_name="__main__")


if __name__ == "__main__":
    main()
