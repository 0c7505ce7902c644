"""`prof`: count a function's successes and failures, and measure its duration."""

from __future__ import annotations

import time
from functools import wraps

from holdfast.metrics.streams import DEFAULT_GROUP, put_metric

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import ParamSpec, TypeVar, overload

    P = ParamSpec("P")
    R = TypeVar("R")
else:

    def overload(signature):  # noqa: ANN001, ANN201 - typing's own, without its import
        return signature


@overload
def prof(fn: Callable[P, R], group: str = DEFAULT_GROUP) -> Callable[P, R]: ...
@overload
def prof(  # noqa: F811 - an overload
    fn: None = None, group: str = DEFAULT_GROUP
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def prof(  # noqa: F811 - the implementation of the overloads
    fn: Callable[P, R] | None = None, group: str = DEFAULT_GROUP
) -> Callable[P, R] | Callable[[Callable[P, R]], Callable[P, R]]:
    """Wrap `fn`: each call adds ``Class.method.success`` or ``.failure``, and ``.duration.ms``.

    For a function outside a class, the module takes the place of the class. Any end other than a return is a failure.
    Works with or without arguments:

        @prof
        def train(): ...

        @prof(group="training")
        def evaluate(): ...
    """

    def measured(function: Callable[P, R]) -> Callable[P, R]:
        return _measured(function, _metric_name(function), group)

    return measured if fn is None else measured(fn)


def profile(group: str | None = None) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """`prof` under its older name. Metrics are named by the function alone."""

    def measured(function: Callable[P, R]) -> Callable[P, R]:
        return _measured(function, _metric_name(function).rpartition(".")[2], group or DEFAULT_GROUP)

    return measured


def get_elapsed_time_ms(start_time_in_seconds: float) -> int:
    """Whole milliseconds since `start_time_in_seconds`, a value of `time.time`; 0 if that is in the future."""
    return max(0, int((time.time() - start_time_in_seconds) * 1000))


def _measured(function: Callable[P, R], name: str, group: str) -> Callable[P, R]:
    success, failure, duration_ms = f"{name}.success", f"{name}.failure", f"{name}.duration.ms"

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        outcome = failure
        began = time.perf_counter()
        try:
            result = function(*args, **kwargs)
            outcome = success
        finally:
            elapsed_ms = int((time.perf_counter() - began) * 1000)
            put_metric(outcome, 1, group)
            put_metric(duration_ms, elapsed_ms, group)
        return result

    return call


def _metric_name(function: Callable[..., object]) -> str:
    name: str = getattr(function, "__qualname__", type(function).__qualname__)
    return name if "." in name else f"{function.__module__}.{name}"
