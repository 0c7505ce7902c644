from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import textwrap

import pytest

from holdfast.logger import get_logger

CHILD_DEADLINE_S = 60

LOG = """
import sys
from holdfast.logger import get_logger
log = get_logger("holdfast.agent.loop")
log.debug("a debug message")
log.info("an info message")
log.warning("a %s of %d", "warning", 2)
log.error("an error")
"""


def run(code, **environment):
    inherited = {name: value for name, value in os.environ.items() if name != "LOGLEVEL"}
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=inherited | environment,
        capture_output=True,
        text=True,
        timeout=CHILD_DEADLINE_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended


def levels(stderr):
    return [line.split()[2] for line in stderr.splitlines()]


class TestLevel:
    @pytest.mark.parametrize("value", [None, "", " ", "WARNING", "warn", "30"])
    def test_is_warning_by_default(self, value):
        ended = run(LOG, **({} if value is None else {"LOGLEVEL": value}))
        assert levels(ended.stderr) == ["WARNING", "ERROR"]

    @pytest.mark.parametrize(
        ("value", "shown"),
        [
            ("DEBUG", ["DEBUG", "INFO", "WARNING", "ERROR"]),
            ("NOTSET", ["DEBUG", "INFO", "WARNING", "ERROR"]),
            ("0", ["DEBUG", "INFO", "WARNING", "ERROR"]),
            ("info", ["INFO", "WARNING", "ERROR"]),
            (" Error ", ["ERROR"]),
            ("40", ["ERROR"]),
            ("CRITICAL", []),
            ("1000", []),
        ],
    )
    def test_is_what_the_environment_says(self, value, shown):
        assert levels(run(LOG, LOGLEVEL=value).stderr) == shown

    @pytest.mark.parametrize("value", ["LOUD", "-1", "\u00b2", "1.5", "9" * 5_000])
    def test_that_there_is_not_is_told_once_and_is_warning(self, value):
        told, *shown = run(LOG, LOGLEVEL=value).stderr.splitlines()
        assert told.startswith(f"holdfast: unknown LOGLEVEL {value!r}, ignored")
        assert "WARNING" in told
        assert levels("\n".join(shown)) == ["WARNING", "ERROR"]

    def test_can_be_set_by_the_program(self):
        code = "import logging; logging.getLogger('holdfast').setLevel('DEBUG')" + LOG
        assert levels(run(code, LOGLEVEL="ERROR").stderr) == ["DEBUG", "INFO", "WARNING", "ERROR"]

    def test_can_be_set_for_a_part(self):
        code = "import logging; logging.getLogger('holdfast.agent').setLevel('INFO')" + LOG
        assert levels(run(code).stderr) == ["INFO", "WARNING", "ERROR"]

    def test_can_be_asked_for(self):
        code = """
            import sys
            from holdfast.logger import get_logger
            log = get_logger("x")
            before = [log.isEnabledFor(level) for level in (10, 20, 30, 40)]
            import logging
            assert before == [log.isEnabledFor(level) for level in (10, 20, 30, 40)]
            print(before)
        """
        assert run(code).stdout == "[False, False, True, True]\n"


class TestLine:
    def test_has_time_level_name_and_message(self):
        line = run(LOG).stderr.splitlines()[0]
        assert re.fullmatch(
            r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} WARNING holdfast\.agent\.loop: a warning of 2", line
        )

    def test_of_an_exception_has_the_traceback(self):
        code = """
            from holdfast.logger import get_logger
            try:
                raise ValueError("the cause")
            except ValueError:
                get_logger("x").exception("it %s", "failed")
        """
        first, *others = run(code).stderr.splitlines()
        assert first.endswith("ERROR holdfast.x: it failed")
        assert others[0].startswith("Traceback ")
        assert others[-1] == "ValueError: the cause"

    def test_of_a_percent_sign_without_arguments_is_left_alone(self):
        code = "from holdfast.logger import get_logger; get_logger().warning('100% of %s')"
        assert run(code).stderr.endswith("WARNING holdfast: 100% of %s\n")

    @pytest.mark.parametrize("stderr", ["None", "open('/dev/full', 'w')"])
    def test_that_cannot_be_written_harms_nobody(self, stderr):
        # Python itself minds at its end that it cannot flush; so leave without that.
        code = f"import os, sys; sys.stderr = {stderr}" + LOG + "print('alive', flush=True); os._exit(0)"
        assert run(code).stdout == "alive\n"

    def test_that_cannot_be_formatted_harms_nobody(self):
        code = """
            from holdfast.logger import get_logger

            class Nasty:
                def __str__(self):
                    raise RuntimeError("no text")

            get_logger().warning("%d", "text")
            get_logger().warning("it is %s", Nasty())
            print("alive")
        """
        ended = run(code)
        assert ended.stdout == "alive\n"
        assert "Message: '%d'" in ended.stderr
        assert "RuntimeError: no text" in ended.stderr

    def test_a_signal_to_stop_passes(self):
        code = """
            import signal
            from holdfast.logger import get_logger
            from holdfast.processes import SignalException

            class Interrupted:
                def __str__(self):
                    raise SignalException("stop", signal.SIGTERM)

            try:
                get_logger().warning("%s", Interrupted())
            except SignalException:
                print("passed")
        """
        assert run(code).stdout == "passed\n"


class TestCost:
    def test_a_message_that_is_not_shown_imports_nothing(self):
        code = """
            import sys
            before = set(sys.modules)
            from holdfast.logger import get_logger
            log = get_logger("x")
            log.debug("no")
            log.info("no")
            print("logging" in sys.modules, "typing" in set(sys.modules) - before)
            log.warning("yes")
            print("logging" in sys.modules)
        """
        assert run(code).stdout == "False False\nTrue\n"


class TestWithLogging:
    def test_a_program_with_logging_gets_messages_its_own_way_and_once(self):
        code = "import logging; logging.basicConfig(format='mine %(filename)s %(funcName)s %(message)s')" + LOG
        assert run(code).stderr.splitlines() == [
            "mine <string> <module> a warning of 2",
            "mine <string> <module> an error",
        ]

    def test_also_if_it_sets_up_logging_later(self):
        code = LOG + "import logging; logging.basicConfig(format='mine %(message)s'); log.error('later')"
        assert run(code).stderr.splitlines()[2:] == ["mine later"]

    def test_a_handler_on_our_logger_replaces_the_lines(self):
        code = """
            import logging
            logging.getLogger("holdfast").addHandler(logging.NullHandler())
            from holdfast.logger import get_logger
            get_logger("x").error("unseen")
        """
        assert run(code).stderr == ""

    def test_messages_are_seen_by_tools(self, caplog):
        get_logger("test").error("an %s", "error")
        [record] = caplog.records
        assert (record.name, record.levelno, record.getMessage()) == ("holdfast.test", logging.ERROR, "an error")
        assert record.filename == "test_logger.py"
        assert record.funcName == "test_messages_are_seen_by_tools"


@pytest.mark.parametrize(
    ("name", "full"),
    [
        (None, "holdfast"),
        ("", "holdfast"),
        ("holdfast", "holdfast"),
        ("holdfast.agent", "holdfast.agent"),
        ("mine", "holdfast.mine"),
        ("holdfastened", "holdfast.holdfastened"),
    ],
)
def test_every_logger_is_below_the_one_called_holdfast(name, full):
    assert get_logger(name).name == full


def test_a_console_that_takes_nothing_does_not_stop_the_one_who_logs():
    code = """
    import fcntl, os, sys
    from holdfast.logger import get_logger
    log = get_logger("x")
    unread, console = os.pipe()
    os.dup2(console, 2)
    os.set_blocking(console, False)
    filled = 0
    try:
        while True:
            filled += os.write(console, b"x" * 4096)
    except BlockingIOError:
        pass
    os.set_blocking(console, True)
    log.warning("nobody reads this")
    log.warning("nor this")
    while filled:
        filled -= len(os.read(unread, filled))
    log.warning("but this")
    print(os.read(unread, 4096).decode())
    """
    first, second = run(code).stdout.rstrip().splitlines()
    assert first == "(2 messages are missing here: the console took nothing)"
    assert second.endswith("but this")


HOSTILE = """
log = get_logger()
evil = "\\x1b[2J\\u202e\\nholdfast: all is well"
log.warning("text %s, quoted %r, error %s, number %.1f, %d", evil, evil, ValueError(evil), 1.5, 2)
try:
    raise ValueError(evil)
except ValueError:
    log.exception("raised: %s", evil)
log.error("later", cause=KeyError(evil))
"""


@pytest.mark.parametrize("handlers", ["", "logging.basicConfig()"], ids=["ours", "the program's"])
def test_arguments_cannot_steer_a_terminal_or_add_a_line(handlers):
    code = f"import logging\nfrom holdfast.logger import get_logger\n{handlers}\n"
    stderr = run(code + HOSTILE.split("try:", maxsplit=1)[0]).stderr
    shown = "\\x1b[2J\\u202e\\nholdfast: all is well"
    assert stderr.count("\n") == 1
    assert f"text {shown}, quoted '{shown}', error {shown}, number 1.5, 2" in stderr


def test_tracebacks_are_shown_in_lines_and_steer_nothing():
    stderr = run("from holdfast.logger import get_logger" + HOSTILE).stderr
    assert "\x1b" not in stderr
    assert "\u202e" not in stderr
    assert "\nTraceback (most recent call last):\n" in stderr
    assert "\nKeyError: " in stderr
