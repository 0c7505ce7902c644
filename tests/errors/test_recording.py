from __future__ import annotations

import inspect
import json

import pytest

from holdfast.errors import ChildFailedError, ErrorHandler, ProcessFailure, record


def message_in(path):
    return json.loads(path.read_text())["message"]


class Remembering(ErrorHandler):
    def __init__(self):
        self.calls = []

    def initialize(self):
        self.calls.append("initialize")

    def record_exception(self, e):
        self.calls.append(e)

    def dump_error_file(self, rootcause_error_file, error_code=0):
        self.calls.append((rootcause_error_file, error_code))


class Broken(ErrorHandler):
    def initialize(self):
        raise RuntimeError("broken initialize")

    def record_exception(self, e):
        raise RuntimeError("broken record_exception") from e

    def dump_error_file(self, rootcause_error_file, error_code=0):
        raise RuntimeError("broken dump_error_file", rootcause_error_file, error_code)


def fail_with(exc):
    def main():
        raise exc

    return main


class TestWithoutFailure:
    def test_arguments_and_value_pass(self):
        @record
        def main(a, *, b):
            return a, b

        assert main(1, b=2) == (1, 2)

    def test_it_looks_like_the_function(self):
        def main(a: int) -> int:
            """The docstring."""
            return a

        recorded = record(main)
        assert (recorded.__name__, recorded.__doc__) == ("main", "The docstring.")
        assert inspect.signature(recorded) == inspect.signature(main)

    def test_the_handler_is_ready_before_the_function_runs(self):
        handler = Remembering()
        record(lambda: handler.calls.append("main"), handler)()
        assert handler.calls == ["initialize", "main"]

    def test_nothing_is_written(self, error_file):
        record(lambda: None)()
        assert not error_file.parent.exists()


class TestExceptions:
    def test_an_exception_is_recorded_and_raised(self, error_file):
        boom = ValueError("boom")
        with pytest.raises(ValueError, match="boom") as raised:
            record(fail_with(boom))()
        assert raised.value is boom
        assert message_in(error_file)["message"] == "ValueError: boom"

    def test_the_recorded_traceback_begins_in_the_users_program(self, error_file):
        with pytest.raises(ValueError, match="boom"):
            record(fail_with(ValueError("boom")))()
        stack = message_in(error_file)["extraInfo"]["py_callstack"].splitlines()
        assert f'File "{__file__}"' in stack[1]
        assert stack[-1] == "ValueError: boom"

    def test_a_call_with_wrong_arguments_is_recorded(self, error_file):
        with pytest.raises(TypeError):
            record(lambda needed: needed)()
        assert message_in(error_file)["extraInfo"]["py_callstack"].startswith("Traceback")

    @pytest.mark.parametrize("exc", [KeyboardInterrupt(), GeneratorExit()])
    def test_what_is_not_an_exception_is_recorded_too(self, error_file, exc):
        with pytest.raises(type(exc)):
            record(fail_with(exc))()
        assert message_in(error_file)["message"].startswith(type(exc).__name__)

    def test_an_exception_that_cannot_be_printed_is_recorded(self, error_file):
        class MuteError(Exception):
            def __str__(self):
                raise RuntimeError

            __repr__ = __str__

        with pytest.raises(MuteError):
            record(fail_with(MuteError()))()
        assert message_in(error_file)["message"].startswith("MuteError: <its text is not available")

    def test_the_place_is_looked_up_when_it_is_needed(self, tmp_path, monkeypatch):
        main = record(fail_with(ValueError("boom")))
        monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "later.json"))
        with pytest.raises(ValueError, match="boom"):
            main()
        assert (tmp_path / "later.json").exists()


class TestSystemExit:
    @pytest.mark.parametrize("code", [None, 0, False])
    def test_success_returns_none(self, error_file, code):
        assert record(fail_with(SystemExit(code)))() is None
        assert not error_file.exists()

    @pytest.mark.parametrize("code", [1, "text", 0.0, 255])
    def test_another_passes_unrecorded(self, error_file, code):
        with pytest.raises(SystemExit) as raised:
            record(fail_with(SystemExit(code)))()
        assert raised.value.code == code
        assert not error_file.exists()


class TestChildFailed:
    def test_the_first_failures_file_becomes_our_own(self, tmp_path, error_file):
        first = tmp_path / "first.json"
        info = {"py_callstack": "Traceback\nE: x", "timestamp": "10"}
        first.write_text(json.dumps({"message": {"message": "E: x", "extraInfo": info}}))
        failures = {0: ProcessFailure(0, 11, -15, ""), 1: ProcessFailure(1, 12, 3, str(first))}
        failed = ChildFailedError("main", failures)
        with pytest.raises(ChildFailedError) as raised:
            record(fail_with(failed))()
        assert raised.value is failed
        assert message_in(error_file) == {"message": "E: x", "extraInfo": info, "errorCode": 3}

    def test_without_a_file_of_the_child_the_cause_is_told_and_none_is_written(self, error_file, capfd):
        failed = ChildFailedError("main", {5: ProcessFailure(1, 12, -9, "")})
        with pytest.raises(ChildFailedError):
            record(fail_with(failed))()
        told = capfd.readouterr().err
        assert "rank 5 of main failed and left no error file: Signal 9 (SIGKILL) received by PID 12" in told
        assert not error_file.exists()

    def test_a_broken_file_of_the_child_is_described_in_ours(self, tmp_path, error_file):
        (tmp_path / "cut.json").write_text('{"message": "half')
        failed = ChildFailedError("main", {0: ProcessFailure(0, 12, 1, str(tmp_path / "cut.json"))})
        with pytest.raises(ChildFailedError):
            record(fail_with(failed))()
        assert "half" in message_in(error_file)

    def test_the_root_cause_travels_up_a_tree_of_processes(self, run_python, tmp_path):
        worker = """if True:
            from holdfast.errors import record

            @record
            def main():
                raise ValueError("deep down")

            main()
        """
        agent = """
            import os, subprocess, sys
            from holdfast.errors import ChildFailedError, ProcessFailure, record

            @record
            def main():
                place = os.environ["WORKER_FILE"]
                environment = os.environ | {"TORCHELASTIC_ERROR_FILE": place}
                with subprocess.Popen([sys.executable, "-c", os.environ["WORKER"]], env=environment) as worker:
                    exitcode = worker.wait()
                raise ChildFailedError("worker", {0: ProcessFailure(0, worker.pid, exitcode, place)})

            main()
        """
        own = tmp_path / "agent.json"
        ended = run_python(agent, WORKER=worker, WORKER_FILE=tmp_path / "worker.json", TORCHELASTIC_ERROR_FILE=own)
        assert ended.returncode == 1
        assert "Root Cause (first observed failure):" in ended.stderr
        assert message_in(own)["message"] == "ValueError: deep down"
        assert message_in(own)["errorCode"] == 1


class TestHandlers:
    def test_a_given_handler_gets_what_happens(self):
        handler, boom = Remembering(), ValueError("boom")
        with pytest.raises(ValueError, match="boom"):
            record(fail_with(boom), error_handler=handler)()
        assert handler.calls == ["initialize", boom]

    def test_a_given_handler_gets_the_root_cause(self, tmp_path):
        (tmp_path / "f").write_text('{"message": "m"}')
        handler = Remembering()
        failed = ChildFailedError("main", {0: ProcessFailure(0, 12, 3, str(tmp_path / "f"))})
        with pytest.raises(ChildFailedError):
            record(fail_with(failed), handler)()
        assert handler.calls == ["initialize", (str(tmp_path / "f"), 3)]

    def test_a_broken_handler_hides_no_value(self, capfd):
        assert record(lambda: 5, Broken())() == 5
        assert "Broken.initialize: RuntimeError: broken initialize" in capfd.readouterr().err

    def test_a_broken_handler_hides_no_exception(self, tmp_path, capfd):
        with pytest.raises(ValueError, match="boom"):
            record(fail_with(ValueError("boom")), Broken())()
        (tmp_path / "f").write_text('{"message": "m"}')
        failed = ChildFailedError("main", {0: ProcessFailure(0, 12, 3, str(tmp_path / "f"))})
        with pytest.raises(ChildFailedError):
            record(fail_with(failed), Broken())()
        told = capfd.readouterr().err
        assert "broken record_exception" in told
        assert "broken dump_error_file" in told
