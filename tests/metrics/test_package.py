from __future__ import annotations

import inspect
import pkgutil

import pytest
from costly_imports import COSTLY_IMPORTS

import holdfast.metrics
from holdfast.metrics import (
    MetricsConfig,
    MetricStream,
    configure,
    get_elapsed_time_ms,
    getStream,
    initialize_metrics,
    prof,
    profile,
    publish_metric,
    put_metric,
)


def test_every_public_name_is_there():
    for name in holdfast.metrics.__all__:
        assert getattr(holdfast.metrics, name).__name__ == name


def test_no_module_hides_behind_a_public_name():
    modules = {module.name for module in pkgutil.iter_modules(holdfast.metrics.__path__)}
    assert not modules & set(holdfast.metrics.__all__)


def test_nothing_heavy_is_imported(run_python):
    code = f"""
        import sys
        before = set(sys.modules)
        import holdfast.metrics as metrics
        for name in metrics.__all__:
            getattr(metrics, name)
        metrics.initialize_metrics()
        metrics.put_metric("a", 1)
        metrics.configure(metrics.ConsoleMetricHandler())
        metrics.prof(lambda: None)()
        sys.stderr.write(repr(sorted({COSTLY_IMPORTS!r} & (set(sys.modules) - before))))
    """
    assert run_python(code).stderr == "[]"


def test_a_metric_for_nobody_needs_no_handlers(run_python):
    code = """
        import sys
        from holdfast.metrics import prof, put_metric
        prof(lambda: None)()
        put_metric("a", 1)
        print("holdfast.metrics.handlers" in sys.modules)
    """
    assert run_python(code).stdout == "False\n"


@pytest.mark.parametrize(
    ("function", "parameters"),
    [
        (configure, ["handler", "group"]),
        (getStream, ["group"]),
        (prof, ["fn", "group"]),
        (profile, ["group"]),
        (put_metric, ["metric_name", "metric_value", "metric_group"]),
        (publish_metric, ["metric_group", "metric_name", "metric_value"]),
        (get_elapsed_time_ms, ["start_time_in_seconds"]),
        (initialize_metrics, ["cfg"]),
        (MetricsConfig, ["params"]),
        (MetricStream, ["group_name", "handler"]),
        (MetricStream.add_value, ["self", "metric_name", "metric_value"]),
    ],
)
def test_the_parameters_are_the_agreed_ones(function, parameters):
    assert list(inspect.signature(function).parameters) == parameters
