"""The soft limit of open files, which a server of many clients raises.

The raised limit is for the agent only. Workers get the limit that the agent was started with: a program that calls
select() cannot use descriptors above 1,023 and relies on a limit below that.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

_UNCHANGED: Final = (0, 0)
_change = _UNCHANGED
"""The soft limit before this process raised it, and after."""


def allow(wanted: int) -> int:
    """Raise the soft limit to `wanted` open files, or as near to it as the hard limit allows.

    Returns the limit now in effect. The limit is never lowered.
    """
    global _change  # noqa: PLW0603 - the limit belongs to the process
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    target = wanted if hard == unlimited else min(wanted, hard)
    if soft == unlimited:
        return max(wanted, 0)
    if soft >= target:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
    except (OSError, ValueError):  # a sandbox may forbid it
        return soft
    _change = (_change[0] if _change[1] == soft else soft, target)
    return target


def before() -> int | None:
    """The soft limit to restore in workers; None if this process did not change its own."""
    if _change == _UNCHANGED:
        return None
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _change[0] if soft == _change[1] else None  # otherwise other code has set it since


def restore(soft: int) -> None:
    """Set the soft limit of a worker to `soft`."""
    import resource

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
