"""A first job: four workers on this machine. In the first attempt one of them crashes, in the second all finish."""

import os
import sys
import tempfile
import time

from holdfast.errors import ChildFailedError
from holdfast.processes import DefaultLogsSpecs, Std, start_processes

WORKERS = 4


def train(rank: int, attempt: int) -> float:
    """What one worker does."""
    loss = 1.0
    for step in range(3):
        loss /= 2
        print(f"step {step}: loss {loss:.3f}", flush=True)
        if attempt == 0 and rank == 2 and step == 1:
            raise RuntimeError("the cosmic ray that every long job meets")
        time.sleep(0.1)
    return loss


def run(attempt: int, log_dir: str) -> bool:
    """Start the workers, wait for them, and say how it went."""
    print(f"attempt {attempt}: starting {WORKERS} workers")
    began = time.monotonic()
    context = start_processes(
        name="worker",
        entrypoint=train,
        args={rank: (rank, attempt) for rank in range(WORKERS)},
        envs={rank: {"RANK": str(rank), "TORCHELASTIC_RESTART_COUNT": str(attempt)} for rank in range(WORKERS)},
        logs_specs=DefaultLogsSpecs(log_dir=log_dir, tee=Std.OUT, redirects=Std.ERR),
        log_line_prefixes={rank: f"  [worker {rank}] " for rank in range(WORKERS)},
    )
    result = context.wait()
    took = time.monotonic() - began
    if result is None or result.is_failed():
        failures = result.failures if result else {}
        stopped = ", ".join(map(str, result.terminated)) if result else ""
        print(f"attempt {attempt}: failed after {took:.2f} s; worker {stopped} stopped with it\n")
        print(ChildFailedError("train", failures), "\n")
        return False
    print(f"attempt {attempt}: done after {took:.2f} s, final losses {result.return_values}")
    return True


if __name__ == "__main__":
    logs = tempfile.mkdtemp(prefix="holdfast_demo_")
    succeeded = run(0, logs) or run(1, logs)
    print(f"logs of both attempts: {logs}")
    sys.exit(os.EX_OK if succeeded else 1)
