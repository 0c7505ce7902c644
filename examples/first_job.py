"""A first job. Every worker trains its part; in the first attempt one of them crashes, in the second all finish.

holdfast run --nproc-per-node 4 --max-restarts 1 --tee 3 examples/first_job.py
"""

import os
import time

from holdfast.errors import record

STEPS = 4


@record  # lets the launcher show the traceback of a failure, and not only its exit code
def main() -> None:
    """What every worker does."""
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    print(f"worker {rank} of {world_size}, attempt {attempt}", flush=True)
    loss = 1.0
    for step in range(STEPS):
        time.sleep(0.1)  # the training
        loss /= 2
        if attempt == 0 and rank == 2 and step == 2:
            raise RuntimeError("the cosmic ray that every long job meets")
    print(f"done, loss {loss}", flush=True)


if __name__ == "__main__":
    main()
