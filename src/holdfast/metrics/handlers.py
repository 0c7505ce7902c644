"""Metric handlers: one that discards metrics, one for the console, and the base for the user's own."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections import namedtuple

from holdfast.errors.notice import written
from holdfast.errors.text import visible_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    class MetricData(NamedTuple):
        """One value: when (in Unix seconds), in which group, its name, and the number."""

        timestamp: float
        group_name: str
        name: str
        value: float
else:
    MetricData = namedtuple("MetricData", ("timestamp", "group_name", "name", "value"))  # noqa: PYI024 - typed above


class MetricHandler(ABC):
    """The base of all handlers. Any thread may call `emit`."""

    @abstractmethod
    def emit(self, metric_data: MetricData) -> None: ...


class ConsoleMetricHandler(MetricHandler):
    """Prints each metric as a line on stdout: ``[1700000000.5][torchelastic]: workers.trainer.run_total=1``."""

    def emit(self, metric_data: MetricData) -> None:
        timestamp, group, name, value = metric_data
        if not written(sys.stdout, visible_line(f"[{timestamp}][{group}]: {name}={value}") + "\n"):
            raise TimeoutError("the console does not accept output")


class NullMetricHandler(MetricHandler):
    def emit(self, metric_data: MetricData) -> None:
        """Discard it."""
