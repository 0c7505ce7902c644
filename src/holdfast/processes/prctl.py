"""Two process attributes that the standard library cannot set."""

from __future__ import annotations

import os
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> bool:
    """Make this process the new parent of orphaned descendants. Returns False on platforms other than Linux."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(signum: int) -> bool:
    """Have the kernel send `signum` to this process when its parent dies. Returns False on other platforms."""
    return _prctl(_PR_SET_PDEATHSIG, signum)


def _prctl(option: int, argument: int) -> bool:
    if sys.platform != "linux":
        return False
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, argument, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"prctl({option}, {argument}): {os.strerror(error)}")
    return True
