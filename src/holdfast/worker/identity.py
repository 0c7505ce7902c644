"""A worker's place in its job, from its environment. Alone, it is the only one of its kind."""

from __future__ import annotations

import os


def rank() -> int:
    """This worker among all of the job: 0 to `world_size` - 1."""
    return int(os.environ.get("RANK", "0"))


def world_size() -> int:
    """How many workers the job has at the moment."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def local_rank() -> int:
    """This worker among those of its machine."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def local_world_size() -> int:
    """How many workers its machine has."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def restart_count() -> int:
    """How often the job was restarted because it failed."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def generation() -> int:
    """How often the job was started, for whatever reason: machines that come and go count, too. 1 is the first time."""
    return int(os.environ.get("HOLDFAST_GENERATION") or restart_count() + 1)


def run_id() -> str:
    """The job's id, the same in all its workers; "" alone."""
    return os.environ.get("TORCHELASTIC_RUN_ID", "")
