"""Route metrics to the handler of their group.

Until a program configures a handler there is none, and a metric costs one dictionary lookup.
"""

from __future__ import annotations

import time

from holdfast.errors.description import type_and_text
from holdfast.errors.notice import notice
from holdfast.errors.text import REASON_MAX_CHARS, headline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.metrics.handlers import MetricHandler

DEFAULT_GROUP = "torchelastic"


class _Configured:
    """The handler of each group. None means that metrics are discarded."""

    __slots__ = ("by_group", "default", "failed_ids")

    def __init__(self) -> None:
        self.default: MetricHandler | None = None
        self.by_group: dict[str, MetricHandler | None] = {}
        self.failed_ids: set[int] = set()


_configured = _Configured()


def configure(handler: MetricHandler, group: str | None = None) -> None:
    """Use `handler` for the metrics of `group`; without a group, for every group that has no handler of its own."""
    from holdfast.metrics.handlers import NullMetricHandler

    chosen = None if type(handler) is NullMetricHandler else handler
    if group is None:
        _configured.default = chosen
    else:
        _configured.by_group[group] = chosen


class MetricStream:
    """Passes the metrics of one group to its handler."""

    __slots__ = ("group_name", "handler")

    def __init__(self, group_name: str, handler: MetricHandler) -> None:
        self.group_name = group_name
        self.handler = handler

    def add_value(self, metric_name: str, metric_value: float) -> None:
        """Pass one value to the handler. A failure of the handler is reported once and does not reach the caller."""
        from holdfast.metrics.handlers import MetricData

        try:
            self.handler.emit(MetricData(time.time(), self.group_name, metric_name, metric_value))
        except Exception as problem:
            if hasattr(problem, "sigval"):
                raise  # a SignalException is not the handler's failure: it arrived while the handler ran
            self._tell_once(problem)

    def _tell_once(self, problem: Exception) -> None:
        if id(self.handler) not in _configured.failed_ids:
            _configured.failed_ids.add(id(self.handler))
            reason = headline(type_and_text(problem), REASON_MAX_CHARS)
            notice(f"{type(self.handler).__name__} failed, and metrics are missing there (shown once): {reason}")


def getStream(group: str) -> MetricStream:  # noqa: N802 - the name is part of the public API
    """The stream to the current handler of `group`."""
    from holdfast.metrics.handlers import NullMetricHandler

    return MetricStream(group, _configured.by_group.get(group, _configured.default) or NullMetricHandler())


def put_metric(metric_name: str, metric_value: float, metric_group: str = DEFAULT_GROUP) -> None:
    """Pass one value to the handler of `metric_group`."""
    handler = _configured.by_group.get(metric_group, _configured.default)
    if handler is not None:
        MetricStream(metric_group, handler).add_value(metric_name, metric_value)


def publish_metric(metric_group: str, metric_name: str, metric_value: float) -> None:
    """`put_metric` under its older name, with its older argument order."""
    put_metric(metric_name, metric_value, metric_group)
