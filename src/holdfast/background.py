"""Calls that may be stuck: a name look-up cannot be cancelled, nor can a read of a file system that does not answer."""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")
Item = TypeVar("Item")


def begin(call: Callable[[], T]) -> Future[T]:
    """Make the call in a daemon thread. The process can end while it is stuck, unlike with asyncio's or a pool's."""
    outcome: Future[T] = Future()
    outcome.set_running_or_notify_cancel()  # from now on it cannot be cancelled, so its result has a place

    def carry_out() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:  # noqa: BLE001 - it is raised again where the result is read
            outcome.set_exception(error)

    Thread(target=carry_out, daemon=True).start()
    return outcome


def all_at_once(call: Callable[[Item], T], items: Iterable[Item]) -> list[T]:
    """The results of the call with each item, in their order."""
    outcomes = [begin(partial(call, item)) for item in items]
    return [outcome.result() for outcome in outcomes]
