from __future__ import annotations

import signal
import sys
import threading
import time

import pytest

from holdfast.metrics import (
    ConsoleMetricHandler,
    MetricHandler,
    MetricStream,
    NullMetricHandler,
    configure,
    getStream,
    publish_metric,
    put_metric,
)
from holdfast.processes import SignalException

DEADLINE_S = 120


class Failing(MetricHandler):
    def __init__(self, problem):
        self.problem = problem

    def emit(self, _metric_data):
        raise self.problem


class TestPutMetric:
    def test_is_for_nobody_by_default(self, capfd):
        put_metric("name", 1)
        assert capfd.readouterr() == ("", "")

    def test_goes_to_the_configured_handler_with_the_present_time(self, listener):
        configure(listener)
        before = time.time()
        put_metric("name", 5)
        put_metric("other", 0.5, "mine")
        assert listener.values() == [("torchelastic", "name", 5), ("mine", "other", 0.5)]
        assert before <= listener.data[0].timestamp <= listener.data[1].timestamp <= time.time()

    def test_goes_to_the_handler_of_its_group(self, listener):
        others = type(listener)()
        configure(listener, "mine")
        configure(others)
        put_metric("a", 1, "mine")
        put_metric("b", 2)
        assert listener.values() == [("mine", "a", 1)]
        assert others.values() == [("torchelastic", "b", 2)]

    def test_a_group_can_be_silenced(self, listener):
        configure(listener)
        configure(NullMetricHandler(), "loud")
        put_metric("a", 1, "loud")
        assert listener.values() == []

    def test_the_last_handler_counts(self, listener, capsys):
        configure(ConsoleMetricHandler())
        configure(listener)
        put_metric("a", 1)
        assert capsys.readouterr().out == ""
        configure(NullMetricHandler())
        put_metric("b", 1)
        assert listener.values() == [("torchelastic", "a", 1)]

    def test_a_handler_derived_from_the_null_one_is_asked(self):
        class Counting(NullMetricHandler):
            count = 0

            def emit(self, _metric_data):
                self.count += 1

        counting = Counting()
        configure(counting)
        put_metric("a", 1)
        assert counting.count == 1

    def test_a_handler_needs_no_base_class(self):
        class Plain:
            seen = None

            def emit(self, metric_data):
                self.seen = metric_data.name

        plain = Plain()
        configure(plain)
        put_metric("a", 1)
        assert plain.seen == "a"

    def test_for_nobody_calls_nothing(self):
        """Cheap, said in a way that does not depend on the machine: one call, of a table."""
        calls = []

        def watch(_frame, kind, argument):
            if kind in ("call", "c_call"):
                calls.append(getattr(argument, "__name__", "put_metric"))

        sys.setprofile(watch)
        try:
            put_metric("name", 1)
        finally:
            sys.setprofile(None)
        assert calls[:2] == ["put_metric", "get"]
        assert calls[2:] == ["setprofile"]

    def test_takes_metrics_of_many_threads(self, listener):
        configure(listener)
        threads = [
            threading.Thread(target=lambda: [put_metric("a", number) for number in range(500)]) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S)
        assert sorted(data.value for data in listener.data) == sorted(list(range(500)) * 4)


def test_publish_metric_has_the_group_first(listener):
    configure(listener)
    publish_metric("mine", "a", 1)
    assert listener.values() == [("mine", "a", 1)]


class TestStream:
    def test_belongs_to_a_group(self, listener):
        stream = MetricStream("mine", listener)
        stream.add_value("a", 1)
        assert (stream.group_name, stream.handler) == ("mine", listener)
        assert listener.values() == [("mine", "a", 1)]

    def test_is_made_for_the_handler_of_its_group(self, listener):
        configure(listener, "mine")
        assert getStream("mine").handler is listener
        assert isinstance(getStream("other").handler, NullMetricHandler)
        default = type(listener)()
        configure(default)
        assert getStream("other").handler is default
        getStream("mine").add_value("a", 1)
        assert listener.values() == [("mine", "a", 1)]

    def test_to_nobody_does_nothing(self, capfd):
        getStream("other").add_value("a", 1)
        assert capfd.readouterr() == ("", "")


class TestTrouble:
    def test_a_failing_handler_is_told_once_and_harms_nobody(self, capsys):
        configure(Failing(RuntimeError("no connection")))
        put_metric("a", 1)
        put_metric("b", 1, "mine")
        [told] = capsys.readouterr().err.splitlines()
        assert told.startswith("holdfast: Failing failed, and metrics are missing there")
        assert told.endswith("RuntimeError: no connection")

    def test_another_failing_handler_is_told_too(self, capsys):
        first, second = Failing(RuntimeError("first")), Failing(RuntimeError("second"))
        for handler in (first, second):
            configure(handler)
            put_metric("a", 1)
        assert [line.rpartition(" ")[2] for line in capsys.readouterr().err.splitlines()] == ["first", "second"]

    def test_a_signal_to_stop_passes(self, capsys):
        configure(Failing(SignalException("stop", signal.SIGTERM)))
        with pytest.raises(SignalException):
            put_metric("a", 1)
        assert capsys.readouterr().err == ""

    def test_a_console_that_is_closed_harms_nobody(self, run_python):
        code = """
            import sys
            from holdfast.metrics import *
            configure(ConsoleMetricHandler())
            sys.stdout = open("/dev/full", "w")
            put_metric("a", 1)
            put_metric("b", 1)
            sys.stdout = None
            put_metric("c", 1)
            sys.stderr.write("alive")
        """
        told, alive = run_python(code).stderr.splitlines()[:2]
        assert "ConsoleMetricHandler failed" in told
        assert alive.startswith("alive")
