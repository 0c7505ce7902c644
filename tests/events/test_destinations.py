from __future__ import annotations

import json
import logging
import signal

import pytest
from installed_plugin import install_plugin

from holdfast.errors import InputError
from holdfast.events import Event, EventSource, NodeState, RdzvEvent, event_handler, record, set_event_handler
from holdfast.processes import SignalException

EVENT = Event("it happened", EventSource.AGENT, 1700000000.25, {"rank": 3})

RECORD = """
import sys
from holdfast.events import Event, EventSource, record
for number in range(2):
    record(Event(f"event {number}", EventSource.AGENT), "NAME")
"""

PLUGIN = """
import logging

class Lines(logging.Handler):
    def emit(self, record):
        print("logged", record.levelname, record.getMessage())

lines = Lines()

def take(event):
    print("taken", event.name)

class Taker:
    def __call__(self, event):
        print("taken by an object", event.name)

def fail(event):
    raise RuntimeError(f"cannot take {event.name}")

number = 5

class Unmakeable:
    def __init__(self):
        raise OSError("no connection")
"""

ENTRY_POINTS = """
[holdfast.event_handlers]
handler_class = plugin:Lines
handler = plugin:lines
function = plugin:take
callable_class = plugin:Taker
failing = plugin:fail
number = plugin:number
unmakeable = plugin:Unmakeable
absent = no_such_module:handler
null = plugin:take
"""


@pytest.fixture
def plugins(tmp_path):
    """A directory with an installed package that has event handlers."""
    return install_plugin(tmp_path, "plugin", PLUGIN, ENTRY_POINTS)


class TestBuiltIn:
    @pytest.mark.parametrize("name", ["null", "dynamic_rendezvous"])
    def test_null_and_the_rendezvous_go_nowhere(self, capfd, name):
        record(EVENT, name)
        assert capfd.readouterr() == ("", "")

    def test_null_is_the_default(self, capfd):
        record(EVENT)
        assert capfd.readouterr() == ("", "")

    def test_console_is_a_line_of_json_on_stderr(self, run_python):
        ended = run_python(RECORD.replace("NAME", "console"))
        assert (ended.returncode, ended.stdout) == (0, "")
        assert [json.loads(line)["name"] for line in ended.stderr.splitlines()] == ["event 0", "event 1"]

    def test_console_is_what_stderr_is_at_the_time(self, capsys):
        console = event_handler("console")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sys.stderr", None)
            console(EVENT)
        console(EVENT)
        assert json.loads(capsys.readouterr().err) == EVENT.fields()

    @pytest.mark.parametrize("stderr", ["None", "open('/dev/full', 'w')"])
    def test_a_console_that_cannot_be_written_harms_nobody(self, run_python, stderr):
        code = f"import sys; sys.stderr = {stderr}" + RECORD.replace("NAME", "console") + "print('alive')"
        assert run_python(code).stdout == "alive\n"

    @pytest.mark.parametrize("name", ["null", "dynamic_rendezvous", "console"])
    def test_no_entry_points_are_read_for_them(self, run_python, plugins, name):
        code = RECORD.replace("NAME", name) + "print('importlib.metadata' in sys.modules)"
        assert run_python(code, module_path=plugins).stdout == "False\n"


class TestLevel:
    """Events are messages of the level INFO, as they are in torch."""

    @pytest.mark.parametrize("level", ["", "info", "INFO", "DEBUG", "20"])
    def test_up_to_info_lets_events_pass(self, run_python, level):
        assert len(run_python(RECORD.replace("NAME", "console"), LOGLEVEL=level).stderr.splitlines()) == 2

    @pytest.mark.parametrize("level", ["WARNING", "ERROR", "21"])
    def test_above_info_silences_them(self, run_python, level):
        ended = run_python(RECORD.replace("NAME", "console"), LOGLEVEL=level)
        assert (ended.returncode, ended.stderr) == (0, "")

    def test_above_info_still_refuses_unknown_names(self, run_python):
        ended = run_python(RECORD.replace("NAME", "nonsense"), LOGLEVEL="ERROR")
        assert "InputError" in ended.stderr


class TestInstalled:
    @pytest.mark.parametrize(
        ("name", "first"),
        [
            ("handler_class", 'logged INFO {"name": "event 0", '),
            ("handler", 'logged INFO {"name": "event 0", '),
            ("function", "taken event 0"),
            ("callable_class", "taken by an object event 0"),
        ],
    )
    def test_handlers_take_events(self, run_python, plugins, name, first):
        ended = run_python(RECORD.replace("NAME", name), module_path=plugins)
        assert ended.returncode == 0, ended.stderr
        lines = ended.stdout.splitlines()
        assert len(lines) == 2
        assert lines[0].startswith(first)

    def test_a_failing_handler_is_told_once_and_harms_nobody(self, run_python, plugins):
        ended = run_python(RECORD.replace("NAME", "failing"), module_path=plugins)
        assert ended.returncode == 0
        [told] = ended.stderr.splitlines()
        assert told.startswith("holdfast: the event handler 'failing' failed")
        assert told.endswith("RuntimeError: cannot take event 0")

    def test_a_built_in_name_cannot_be_taken(self, run_python, plugins):
        assert run_python(RECORD.replace("NAME", "null"), module_path=plugins).stdout == ""

    @pytest.mark.parametrize(
        ("name", "reason"),
        [
            ("number", "it must be a function that takes an event, or a logging.Handler"),
            ("unmakeable", "no connection"),
            ("absent", "No module named 'no_such_module'"),
        ],
    )
    def test_one_that_cannot_be_used_is_an_input_error(self, run_python, plugins, name, reason):
        error = run_python(RECORD.replace("NAME", name), module_path=plugins).stderr.splitlines()[-1]
        assert error.startswith("holdfast.errors.tree.InputError: --event-log-handler")
        assert repr(name) in error
        assert reason in error

    def test_an_unknown_name_is_an_input_error_that_lists_what_there_is(self, run_python, plugins):
        error = run_python(RECORD.replace("NAME", "nonsense"), module_path=plugins).stderr.splitlines()[-1]
        assert "--event-log-handler 'nonsense': unknown name" in error
        for name in ("null", "console", "dynamic_rendezvous", "function", "failing"):
            assert name in error


class TestSet:
    def test_a_function_takes_the_events(self):
        taken = []
        set_event_handler("mine", taken.append)
        record(EVENT, "mine")
        assert taken == [EVENT]

    def test_it_can_stand_in_for_a_built_in(self):
        taken = []
        set_event_handler("dynamic_rendezvous", taken.append)
        record(EVENT, "dynamic_rendezvous")
        assert taken == [EVENT]

    def test_a_logging_handler_gets_a_record_of_the_events_own_time(self):
        records = []

        class Handler(logging.Handler):
            def emit(self, record):
                records.append(record)

        set_event_handler("mine", Handler())
        record(EVENT, "mine")
        [got] = records
        assert got.levelno == logging.INFO
        assert got.getMessage() == EVENT.serialize()
        assert got.event is EVENT
        assert logging.Formatter("%(created)s %(msecs)03d").format(got) == "1700000000.25 250"

    def test_a_logging_handlers_level_and_filters_count(self):
        records = []

        class Handler(logging.Handler):
            def emit(self, record):
                records.append(record)

        deaf, picky = Handler(logging.ERROR), Handler()
        picky.addFilter(lambda _: False)
        for handler in (deaf, picky):
            set_event_handler("mine", handler)
            record(EVENT, "mine")
        assert records == []

    def test_what_is_no_handler_is_an_input_error(self):
        with pytest.raises(InputError, match="'mine' is a int"):
            set_event_handler("mine", 5)

    def test_a_failure_is_told_once(self, capsys):
        def fail(event):
            raise RuntimeError(event.name)

        set_event_handler("mine", fail)
        record(EVENT, "mine")
        record(EVENT, "mine")
        assert capsys.readouterr().err.count("RuntimeError: it happened") == 1

    def test_a_signal_to_stop_passes(self, capsys):
        def interrupted(event):
            raise SignalException("stop", signal.SIGTERM)

        set_event_handler("mine", interrupted)
        with pytest.raises(SignalException):
            record(EVENT, "mine")
        assert capsys.readouterr().err == ""

    def test_rendezvous_events_reach_logging_handlers(self):
        messages = []

        class Handler(logging.Handler):
            def emit(self, record):
                messages.append(record.getMessage())

        set_event_handler("mine", Handler())
        event = RdzvEvent("n", "run", "joined", "host", 12, NodeState.RUNNING)
        event_handler("mine")(event)
        assert messages == [event.serialize()]
