"""A job that goes on when machines come and go, in plain Python. `examples/three_machines.sh` runs it on three.

holdfast run --nproc-per-node 2 examples/elastic_job.py --directory /tmp/elastic --steps 40

The step that is done is kept in a file that all machines see. The next start resumes after it.
"""

import argparse
import os
import time

from holdfast import worker

PAUSE_S = 0.1


def done_steps(path: str) -> int:
    """How many steps were done, by whatever machines there were."""
    try:
        with open(path) as file:
            return int(file.read())
    except FileNotFoundError:
        return 0


def save(path: str, steps: int) -> None:
    """Under another name first: no crash leaves half a file."""
    with open(f"{path}.new", "w") as file:
        file.write(str(steps))
    os.replace(f"{path}.new", path)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--directory", required=True, help="for the step that is done")
    parser.add_argument("--steps", type=int, default=40)
    options = parser.parse_args()
    os.makedirs(options.directory, exist_ok=True)
    path = os.path.join(options.directory, "steps")
    first = done_steps(path)
    # With its end in the same text: the lines of several workers do not mix then.
    print(f"worker {worker.rank()} of {worker.world_size()} resumes after step {first}\n", end="", flush=True)
    for step in range(first, options.steps):
        time.sleep(PAUSE_S)  # the training
        worker.heartbeat(step)
        if worker.rank() == 0:
            save(path, step + 1)
        if worker.stop_requested():
            return  # a machine wants to join: exit code 0, and all start again with it
    if worker.rank() == 0:
        print(f"all {options.steps} steps are done", flush=True)


if __name__ == "__main__":
    main()
