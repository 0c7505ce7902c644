from __future__ import annotations

import pytest
from installed_plugin import install_plugin

from holdfast.errors import InputError
from holdfast.metrics import (
    ConsoleMetricHandler,
    MetricsConfig,
    NullMetricHandler,
    configure,
    getStream,
    initialize_metrics,
    put_metric,
)

PLUGIN = """
from holdfast.metrics import MetricHandler

class Loud(MetricHandler):
    def emit(self, metric_data):
        print("loud", metric_data.name, metric_data.value)

loud = Loud()

def make():
    return Loud()

number = 5

def make_number():
    return 5

def fail():
    raise OSError("no connection")
"""

ENTRY_POINTS = """
[holdfast.metric_handlers]
class = plugin:Loud
instance = plugin:loud
function = plugin:make
number = plugin:number
made_number = plugin:make_number
failing = plugin:fail
absent = no_such_module:Handler
"""

INITIALIZE = """
    import sys
    from holdfast.metrics import MetricsConfig, initialize_metrics, put_metric
    initialize_metrics(MetricsConfig({"handler": "NAME"}))
    put_metric("a", 1)
"""


@pytest.fixture
def plugins(tmp_path):
    """A directory with an installed package that has metric handlers."""
    return install_plugin(tmp_path, "plugin", PLUGIN, ENTRY_POINTS)


class TestChoice:
    @pytest.mark.parametrize("cfg", [(), (None,), (MetricsConfig(),), (MetricsConfig({"unrelated": "x"}),)])
    def test_none_leaves_all_as_it_is(self, listener, cfg):
        initialize_metrics(*cfg)
        assert isinstance(getStream("any").handler, NullMetricHandler)
        configure(listener)
        initialize_metrics(*cfg)
        assert getStream("any").handler is listener

    def test_of_the_configuration(self):
        initialize_metrics(MetricsConfig({"handler": "console"}))
        assert isinstance(getStream("any").handler, ConsoleMetricHandler)
        initialize_metrics(MetricsConfig({"handler": "null"}))
        assert isinstance(getStream("any").handler, NullMetricHandler)

    def test_of_the_configuration_for_one_group(self):
        initialize_metrics(MetricsConfig({"handler": "console", "group": "mine"}))
        assert isinstance(getStream("mine").handler, ConsoleMetricHandler)
        assert isinstance(getStream("other").handler, NullMetricHandler)

    def test_of_the_environment(self, monkeypatch):
        monkeypatch.setenv("HOLDFAST_METRIC_HANDLER", "console")
        initialize_metrics()
        assert isinstance(getStream("any").handler, ConsoleMetricHandler)

    def test_of_the_configuration_wins(self, monkeypatch):
        monkeypatch.setenv("HOLDFAST_METRIC_HANDLER", "nonsense")
        initialize_metrics(MetricsConfig({"handler": "console"}))
        assert isinstance(getStream("any").handler, ConsoleMetricHandler)

    def test_of_the_console_prints(self, capsys):
        initialize_metrics(MetricsConfig({"handler": "console"}))
        put_metric("a", 1)
        assert capsys.readouterr().out.endswith("][torchelastic]: a=1\n")


class TestInstalled:
    @pytest.mark.parametrize("name", ["class", "instance", "function"])
    def test_handlers_take_metrics(self, run_python, plugins, name):
        ended = run_python(INITIALIZE.replace("NAME", name), module_path=plugins)
        assert ended.stdout == "loud a 1\n", ended.stderr

    @pytest.mark.parametrize(
        ("name", "reason"),
        [
            ("number", "cannot be loaded"),
            ("made_number", "is a int, which has no emit()"),
            ("failing", "no connection"),
            ("absent", "No module named 'no_such_module'"),
            ("nonsense", "unknown name; choose from absent, class, console, failing"),
        ],
    )
    def test_one_that_cannot_be_used_is_an_input_error(self, run_python, plugins, name, reason):
        error = run_python(INITIALIZE.replace("NAME", name), module_path=plugins).stderr.splitlines()[-1]
        assert error.startswith(
            f"holdfast.errors.tree.InputError: metric handler (of metrics_cfg or HOLDFAST_METRIC_HANDLER) {name!r}"
        )
        assert reason in error

    def test_the_error_says_where_the_name_may_come_from(self, monkeypatch):
        monkeypatch.setenv("HOLDFAST_METRIC_HANDLER", "nonsense")
        with pytest.raises(InputError, match=r"metrics_cfg or HOLDFAST_METRIC_HANDLER.*console.*null"):
            initialize_metrics()


def test_params_are_those_given_or_none():
    assert MetricsConfig().params == {}
    assert MetricsConfig({"a": "b"}).params == {"a": "b"}
