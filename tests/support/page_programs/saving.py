"""A training program that goes on until it is asked to stop. There is a file `all-listen` once all workers would."""

import os
import time

from holdfast import worker


def touch(name):
    with open(name, "a"):
        pass


while not worker.stop_requested():
    touch(f"listens-{worker.rank()}")
    if all(os.path.exists(f"listens-{rank}") for rank in range(worker.world_size())):
        touch("all-listen")
    time.sleep(0.01)
print(f"worker {worker.rank()} has saved\n", end="", flush=True)
