"""A worker's place in its job, from its environment. Without an agent, it is the only worker."""

from __future__ import annotations

import os


def rank() -> int:
    """This worker's number among all workers of the job: 0 to `world_size` - 1."""
    return int(os.environ.get("RANK", "0"))


def world_size() -> int:
    """The number of workers that the job has now."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def local_rank() -> int:
    """This worker's number among the workers of its machine."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def local_world_size() -> int:
    """The number of workers on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def restart_count() -> int:
    """How often the job was restarted after a failure."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def generation() -> int:
    """How often the job was started for any reason, such as machines that join or leave; 1 is the first start."""
    return int(os.environ.get("HOLDFAST_GENERATION") or restart_count() + 1)


def run_id() -> str:
    """The job's id, the same in all its workers; "" without an agent."""
    return os.environ.get("TORCHELASTIC_RUN_ID", "")
