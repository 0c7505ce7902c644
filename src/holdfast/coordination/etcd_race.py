"""A race of several members of etcd for one answer."""

from __future__ import annotations

import asyncio

from holdfast.coordination.errors import StoreRefusedError, StoreUnavailableError
from holdfast.coordination.etcd_errors import NotDoneError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from holdfast.coordination.errors import CoordinationError
    from holdfast.coordination.etcd_member import Endpoint, Member


class Race:
    """Concurrent requests to several members; the first answer wins."""

    def __init__(self) -> None:
        self.answer: tuple[Member, Any]
        self.errors: dict[Endpoint, CoordinationError] = {}
        """The last error of each member that failed."""

        self._attempts: dict[asyncio.Task[Any], Endpoint] = {}

    def start(self, endpoint: Endpoint, attempt: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.get_running_loop().create_task(attempt)
        task.add_done_callback(_look_at)
        self._attempts[task] = endpoint

    async def has_answer(self, until: float, *, in_spite_of_errors: bool = False) -> bool:
        """Wait until `until` for the answer, or for an error.

        Raises:
            CoordinationError: a member has answered with an error that all others would give.
        """
        loop = asyncio.get_running_loop()
        while True:
            timeout_s = max(0.0, until - loop.time())
            if not self._attempts:
                await asyncio.sleep(timeout_s if in_spite_of_errors else 0.0)
                return False
            done, _ = await asyncio.wait(self._attempts, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if any(self._take(attempt) for attempt in done):
                return True
            if not in_spite_of_errors or not done:
                return False

    def _take(self, attempt: asyncio.Task[Any]) -> bool:
        endpoint = self._attempts.pop(attempt)
        try:
            self.answer = attempt.result()
        except (StoreUnavailableError, StoreRefusedError) as error:
            self.errors[endpoint] = error
            return False
        return True

    def is_lost(self, members: int) -> bool:
        """Whether all members have failed, and none with `NotDoneError`, so that waiting is useless."""
        return (
            not self._attempts
            and len(self.errors) == members
            and not any(isinstance(error, NotDoneError) for error in self.errors.values())
        )

    def close(self) -> None:
        for attempt in self._attempts:
            attempt.cancel()


def _look_at(attempt: asyncio.Task[Any]) -> None:
    """Retrieve the exception of a finished attempt: nobody may be waiting, and asyncio would warn."""
    if not attempt.cancelled():
        attempt.exception()
