"""Choose a metric handler by name, in the job's configuration or in the environment."""

from __future__ import annotations

import os

from holdfast.errors.tree import InputError
from holdfast.metrics.streams import configure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from holdfast.metrics.handlers import MetricHandler

HANDLER_VARIABLE = "HOLDFAST_METRIC_HANDLER"
"""The environment variable that names the handler if the configuration does not."""

ENTRY_POINT_GROUP = "holdfast.metric_handlers"
"""The entry point group of installed handlers. An entry is a `MetricHandler`, or a class or function that makes one
without arguments.
"""

BUILT_IN = ("null", "console")


class MetricsConfig:
    """The metrics part of the job's configuration.

    `params` may have a "handler" ("null", "console" or the name of an installed one) and a "group". Without a group,
    the handler takes all groups.
    """

    __slots__ = ("params",)

    def __init__(self, params: dict[str, str] | None = None) -> None:
        self.params: dict[str, str] = {} if params is None else params


def initialize_metrics(cfg: MetricsConfig | None = None) -> None:
    """Configure the handler that `cfg`, or else the environment, names. If neither names one, change nothing.

    Raises:
        InputError: there is no handler of that name, or it cannot be loaded.
    """
    params = {} if cfg is None else cfg.params
    if name := params.get("handler") or os.environ.get(HANDLER_VARIABLE):
        configure(_handler(name), params.get("group"))


def _handler(name: str) -> MetricHandler:
    from holdfast.metrics.handlers import ConsoleMetricHandler, NullMetricHandler

    if name == "null":
        return NullMetricHandler()
    return ConsoleMetricHandler() if name == "console" else _installed(name)


def _installed(name: str) -> MetricHandler:
    from holdfast.plugins import load_plugin

    def make(loaded: Any) -> MetricHandler:
        handler: MetricHandler = loaded if _is_handler(loaded) else loaded()
        if not _is_handler(handler):
            raise InputError(f"it is a {type(handler).__name__}, which has no emit()")
        return handler

    what = f"metric handler (of metrics_cfg or {HANDLER_VARIABLE})"
    return load_plugin(what, name, [ENTRY_POINT_GROUP], BUILT_IN, make)


def _is_handler(thing: object) -> bool:
    return not isinstance(thing, type) and callable(getattr(thing, "emit", None))
