from __future__ import annotations

import contextlib
import filecmp
import io
import json
import os
import subprocess
import sys

import pytest
from installed_plugin import install_plugin

from holdfast.errors import ChildFailedError, ErrorHandler, ProcessFailure, get_error_handler
from holdfast.errors.diagnosis import Evidence
from holdfast.errors.error_file import spare_path
from holdfast.errors.kind import FailureKind


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))
    return str(path)


def full(code=None):
    message = {"message": "E: x", "extraInfo": {"py_callstack": "Traceback\nE: x", "timestamp": "10"}}
    return {"message": message if code is None else message | {"errorCode": code}}


class TestInitialize:
    def test_a_native_crash_shows_the_stack_of_every_thread(self, run_python):
        code = """
            import os, signal, threading
            from holdfast.errors import ErrorHandler

            ready, never = threading.Event(), threading.Event()

            def idle_in_the_background():
                ready.set()
                never.wait()

            ErrorHandler().initialize()
            threading.Thread(target=idle_in_the_background, daemon=True).start()
            ready.wait()
            os.kill(os.getpid(), signal.SIGSEGV)
        """
        ended = run_python(code)
        assert ended.returncode == -11
        assert "Fatal Python error: Segmentation fault" in ended.stderr
        assert "in idle_in_the_background" in ended.stderr

    def test_a_fault_handler_that_is_already_on_stays_as_it_is(self, run_python, tmp_path):
        code = """
            import faulthandler, os, signal
            from holdfast.errors import ErrorHandler

            file = open(os.environ["STACKS"], "w")
            faulthandler.enable(file=file)
            ErrorHandler().initialize()
            os.kill(os.getpid(), signal.SIGSEGV)
        """
        stacks = tmp_path / "stacks"
        assert "Fatal" not in run_python(code, STACKS=stacks).stderr
        assert "Segmentation fault" in stacks.read_text()

    @pytest.mark.parametrize("stderr", ["None", "io.StringIO()", "closed", "textless"])
    def test_without_a_usable_stderr_nothing_happens(self, run_python, stderr):
        code = f"""
            import io, sys
            from holdfast.errors import ErrorHandler

            closed = open("/dev/null", "w")
            closed.close()
            textless = type("", (), {{"flush": lambda self: None}})()
            sys.stderr = {stderr}
            ErrorHandler().initialize()
            print("still here")
        """
        ended = run_python(code)
        assert (ended.stdout, ended.returncode) == ("still here\n", 0)


class TestRecordException:
    def test_it_writes_the_file_that_the_environment_names(self, error_file):
        ErrorHandler().record_exception(ValueError("x"))
        assert json.loads(error_file.read_text())["message"]["message"] == "ValueError: x"

    @pytest.mark.parametrize("value", [None, ""])
    def test_without_a_place_nothing_is_written(self, monkeypatch, tmp_path, value, capfd):
        monkeypatch.chdir(tmp_path)
        monkeypatch.delenv("TORCHELASTIC_ERROR_FILE", raising=False)
        if value is not None:
            monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", value)
        ErrorHandler().record_exception(ValueError("x"))
        assert os.listdir(tmp_path) == []
        assert capfd.readouterr() == ("", "")

    def test_failed_children_leave_their_root_cause_and_its_exit_code(self, error_file):
        failures = {0: ProcessFailure(0, 12, -9, "")}
        ErrorHandler().record_exception(ChildFailedError("train.py", failures))
        message = json.loads(error_file.read_text())["message"]
        assert message["errorCode"] == -9
        assert "Signal 9 (SIGKILL) received by PID 12" in message["extraInfo"]["py_callstack"]

    @pytest.mark.parametrize("place", ["", "file/below", "a\0b"])
    def test_a_place_that_cannot_be_written_is_told_in_one_line(self, tmp_path, monkeypatch, capfd, place):
        (tmp_path / "file").touch()
        handler = ErrorHandler()
        monkeypatch.setattr(handler, "_get_error_file_path", lambda: str(tmp_path / place))
        handler.record_exception(ValueError("x"))
        told = capfd.readouterr().err
        assert told.startswith("holdfast: the error file ")
        assert "was not written" in told
        assert told.count("\n") == 1

    def test_a_subclass_decides_where_and_how(self):
        written = {}

        class Elsewhere(ErrorHandler):
            def _get_error_file_path(self):
                return "somewhere"

            def _write_error_file(self, file_path, error_msg):
                written[file_path] = json.loads(error_msg)

        Elsewhere().record_exception(ValueError("x"))
        assert written["somewhere"]["message"]["message"] == "ValueError: x"


class TestOverride:
    @pytest.mark.parametrize("code", [0, 5, -9])
    def test_the_code_goes_into_the_message(self, code):
        data = full(code=3)
        ErrorHandler().override_error_code_in_rootcause_data("/f", data, code)
        assert data == full(code=code)

    def test_beside_a_message_that_is_plain_text(self):
        data = {"message": "text", "timestamp": 10}
        ErrorHandler().override_error_code_in_rootcause_data("/f", data, 5)
        assert data == {"message": "text", "timestamp": 10, "errorCode": 5}


class TestDump:
    def test_the_childs_file_becomes_our_own(self, tmp_path, error_file):
        child = write(tmp_path / "child.json", full())
        ErrorHandler().dump_error_file(child)
        assert filecmp.cmp(child, error_file, shallow=False)

    @pytest.mark.parametrize("data", [full(), {"message": "text", "timestamp": 10}])
    def test_with_the_exit_code_in_it(self, tmp_path, error_file, data):
        ErrorHandler().dump_error_file(write(tmp_path / "child.json", data), -9)
        ours = json.loads(error_file.read_text())
        assert (ours["message"] if isinstance(ours["message"], dict) else ours)["errorCode"] == -9
        read = ProcessFailure(0, 1, 1, str(error_file))
        original = ProcessFailure(0, 1, 1, str(tmp_path / "child.json"))
        assert (read.message, read.timestamp) == (original.message, original.timestamp)

    def test_what_our_own_file_said_is_told_before_it_is_replaced(self, tmp_path, error_file, capfd):
        write(error_file, {"message": "an earlier failure"})
        ErrorHandler().dump_error_file(write(tmp_path / "child.json", full()), 1)
        assert f"{error_file} is replaced. It said:\n  an earlier failure\n" in capfd.readouterr().err
        assert json.loads(error_file.read_text()) == full(code=1)

    def test_without_a_file_of_our_own_the_childs_is_told(self, tmp_path, monkeypatch, capfd):
        monkeypatch.delenv("TORCHELASTIC_ERROR_FILE", raising=False)
        child = write(tmp_path / "child.json", full())
        ErrorHandler().dump_error_file(child, 1)
        told = capfd.readouterr().err
        assert child in told
        assert told.endswith("  Traceback\n  E: x\n")

    @pytest.mark.parametrize(
        ("content", "problem"), [(b"", "is empty"), (b'{"mess', "is cut off"), (None, "does not exist")]
    )
    def test_a_broken_file_of_the_child_is_described(self, tmp_path, error_file, content, problem):
        child = tmp_path / "child.json"
        if content is not None:
            child.write_bytes(content)
        ErrorHandler().dump_error_file(str(child), 7)
        ours = json.loads(error_file.read_text())
        assert f"its error file {str(child)!r} {problem}" in ours["message"]
        assert ours["errorCode"] == 7

    def test_our_own_file_may_be_the_childs(self, error_file):
        ErrorHandler().dump_error_file(write(error_file, full()), 7)
        assert json.loads(error_file.read_text()) == full(code=7)

    def test_a_closed_stderr_changes_nothing(self, tmp_path, error_file, monkeypatch):
        write(error_file, {"message": "an earlier failure"})
        closed = io.StringIO()
        closed.close()
        for stderr in (closed, None):
            monkeypatch.setattr(sys, "stderr", stderr)
            ErrorHandler().dump_error_file(write(tmp_path / "child.json", full()), 1)
            assert json.loads(error_file.read_text()) == full(code=1)


@pytest.fixture
def full_disk(tmp_path):
    """A file system of 64 KiB without a free byte, that holds an error file."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", disk], check=True)
    try:
        write(disk / "error.json", {"message": "an earlier failure"})
        with (disk / "filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
            while True:
                filler.write(b"x" * 4096)
        assert os.statvfs(disk).f_bfree == 0
        yield disk
    finally:
        subprocess.run(["umount", disk], check=True)


FAILING = """
    from holdfast.errors import record

    @record
    def main():
        raise ValueError("the true cause")

    main()
"""


@pytest.mark.root
class TestDisks:
    def test_a_full_disk_hides_nothing_and_spoils_nothing(self, full_disk, run_python):
        ended = run_python(FAILING, TORCHELASTIC_ERROR_FILE=full_disk / "error.json")
        assert ended.returncode == 1
        assert ended.stderr.endswith("ValueError: the true cause\n")
        assert "was not written" in ended.stderr
        assert "No space left on device" in ended.stderr
        assert sorted(os.listdir(full_disk)) == ["error.json", "filler"]
        assert json.loads((full_disk / "error.json").read_text()) == {"message": "an earlier failure"}

    def test_what_the_disk_has_no_room_for_is_left_beside_the_page(self, full_disk, run_python, tmp_path):
        page = tmp_path / "page"
        (full_disk / "error.json").unlink()
        (full_disk / "filler2").touch()
        with (full_disk / "filler2").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
            while True:
                filler.write(b"x" * 4096)
        environment = {"TORCHELASTIC_ERROR_FILE": full_disk / "error.json", "HOLDFAST_WORKER_PAGE": page}
        ended = run_python(FAILING, **environment)
        assert "was not written, the failure is reported all the same: [Errno 28]" in ended.stderr
        spare = spare_path({"HOLDFAST_WORKER_PAGE": str(page)})
        failure = ProcessFailure(0, 7, 1, str(full_disk / "error.json"), evidence=Evidence(spare_file=spare))
        assert (failure.kind, failure.exception) == (FailureKind.EXCEPTION, "ValueError")
        assert failure.message.endswith("ValueError: the true cause\n")
        assert not failure.has_error_file()

    def test_a_read_only_disk_hides_nothing(self, full_disk, run_python):
        (full_disk / "filler").unlink()
        subprocess.run(["mount", "-o", "remount,ro", full_disk], check=True)
        for place in (full_disk / "error.json", full_disk / "new" / "error.json"):
            ended = run_python(FAILING, TORCHELASTIC_ERROR_FILE=place)
            assert ended.returncode == 1
            assert ended.stderr.endswith("ValueError: the true cause\n")
            assert "Read-only file system" in ended.stderr
        assert os.listdir(full_disk) == ["error.json"]
        assert json.loads((full_disk / "error.json").read_text()) == {"message": "an earlier failure"}


PLUGIN = """
from holdfast.errors import ErrorHandler

class Loud(ErrorHandler):
    def record_exception(self, e):
        print("loud:", e)

def make():
    return Loud()

def not_a_handler():
    return 5

class NastyError(Exception):
    def __str__(self):
        raise self

def nasty():
    raise NastyError
"""

ENTRY_POINTS = """
[holdfast.error_handlers]
loud = plugin:Loud
made = plugin:make
number = plugin:not_a_handler
nasty = plugin:nasty
absent = no_such_module:Handler
missing = plugin:NoSuchName
"""


@pytest.fixture
def plugins(tmp_path):
    """A directory with an installed package that has error handlers."""
    return install_plugin(tmp_path, "plugin", PLUGIN, ENTRY_POINTS)


class TestPlugIns:
    def test_the_default_is_a_fresh_error_handler(self, monkeypatch):
        monkeypatch.delenv("HOLDFAST_ERROR_HANDLER", raising=False)
        assert type(get_error_handler()) is ErrorHandler
        assert get_error_handler() is not get_error_handler()

    @pytest.mark.parametrize("name", ["loud", "made"])
    def test_the_environment_chooses_an_entry_point(self, run_python, plugins, name):
        ended = run_python(FAILING, module_path=plugins, HOLDFAST_ERROR_HANDLER=name)
        assert ended.stdout == "loud: the true cause\n"
        assert ended.stderr.endswith("ValueError: the true cause\n")

    def test_an_installed_handler_that_nobody_asked_for_is_not_used(self, run_python, plugins):
        assert run_python(FAILING, module_path=plugins).stdout == ""

    @pytest.mark.parametrize(
        ("name", "reason"),
        [
            ("unknown", "no installed package has an entry point 'unknown'"),
            ("absent", "No module named 'no_such_module'"),
            ("missing", "NoSuchName"),
            ("number", "made a int, not an ErrorHandler"),
            ("nasty", "NastyError"),
        ],
    )
    def test_one_that_cannot_be_used_is_told_and_replaced(self, run_python, plugins, name, reason):
        own = plugins / "error.json"
        ended = run_python(FAILING, module_path=plugins, HOLDFAST_ERROR_HANDLER=name, TORCHELASTIC_ERROR_FILE=own)
        told = ended.stderr.splitlines()[0]
        assert told.startswith(f"holdfast: HOLDFAST_ERROR_HANDLER={name}: using the default error handler")
        assert reason in told
        assert json.loads(own.read_text())["message"]["message"] == "ValueError: the true cause"
