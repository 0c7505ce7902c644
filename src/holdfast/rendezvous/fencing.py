"""A node's lease, for the workers of the node: the fence that their keeper watches, and the agent's last will."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.rendezvous.last_will import LeaseWill


class Fencing:
    """Passes every renewal of the lease on. The member's thread calls `begin` and `renewed`."""

    def __init__(self, make_will: Callable[[], LeaseWill]) -> None:
        self._make_will = make_will
        # Two threads name the lease and move the fence: an older value must not replace a newer one.
        self._lock = threading.Lock()
        self._lease: int | None = None
        self._fence_at = float("inf")
        self._fence: Callable[[float], None] | None = None
        self._will: LeaseWill | None = None

    def begin(self, lease: int, fence_at: float) -> None:
        """The node seeks a place, with the lease that it has. No workers run, so no fence is moved."""
        with self._lock:
            self._lease, self._fence_at = lease, fence_at

    def renewed(self, lease: int, fence_at: float) -> None:
        """The node has this lease, and its workers may live until `fence_at`, on the monotonic clock."""
        with self._lock:
            self._lease, self._fence_at = lease, fence_at
            if self._will is not None:
                self._will.name_lease(lease)
            if self._fence is not None:
                self._fence(fence_at)

    def on_lease(self, fence: Callable[[float], None] | None) -> None:
        """Call `fence` at every renewal, and now if there is a lease. None for nobody."""
        with self._lock:
            self._fence = fence
            if fence is not None and self._lease is not None:
                fence(self._fence_at)

    def last_will(self) -> LeaseWill | None:
        """The will, which always names the present lease; None before the node takes part."""
        with self._lock:
            if self._will is None and self._lease is not None:
                self._will = self._make_will()
                self._will.name_lease(self._lease)
            return self._will

    def close(self, *, is_thread_over: bool) -> None:
        """Forget the lease and the will. The will's descriptor stays open if another thread might still write to it."""
        with self._lock:
            will, self._will = self._will, None
            self._lease, self._fence_at, self._fence = None, float("inf"), None
        if will is not None and is_thread_over:
            will.close()
