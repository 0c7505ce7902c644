"""Metrics: counts and durations that go to a handler of the user's choice."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.metrics.configuration import MetricsConfig as MetricsConfig
    from holdfast.metrics.configuration import initialize_metrics as initialize_metrics
    from holdfast.metrics.handlers import ConsoleMetricHandler as ConsoleMetricHandler
    from holdfast.metrics.handlers import MetricData as MetricData
    from holdfast.metrics.handlers import MetricHandler as MetricHandler
    from holdfast.metrics.handlers import NullMetricHandler as NullMetricHandler
    from holdfast.metrics.streams import MetricStream as MetricStream
    from holdfast.metrics.streams import configure as configure
    from holdfast.metrics.streams import getStream as getStream
    from holdfast.metrics.streams import publish_metric as publish_metric
    from holdfast.metrics.streams import put_metric as put_metric
    from holdfast.metrics.timing import get_elapsed_time_ms as get_elapsed_time_ms
    from holdfast.metrics.timing import prof as prof
    from holdfast.metrics.timing import profile as profile
else:
    from holdfast._lazy import exports

    __getattr__, __dir__, __all__ = exports(
        __name__,
        {
            "configuration": ("MetricsConfig", "initialize_metrics"),
            "handlers": ("ConsoleMetricHandler", "MetricData", "MetricHandler", "NullMetricHandler"),
            "streams": ("MetricStream", "configure", "getStream", "publish_metric", "put_metric"),
            "timing": ("get_elapsed_time_ms", "prof", "profile"),
        },
    )
