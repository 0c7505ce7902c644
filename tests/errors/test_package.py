from __future__ import annotations

import inspect

import pytest
from costly_imports import COSTLY_IMPORTS

import holdfast.errors
from holdfast.errors import ChildFailedError, ErrorHandler, ProcessFailure, get_error_handler, record


def test_every_public_name_is_there():
    for name in holdfast.errors.__all__:
        assert getattr(holdfast.errors, name).__name__ == name
    assert set(holdfast.errors.__all__) <= set(dir(holdfast.errors))


def test_no_module_hides_behind_a_public_name(run_python):
    code = """
        import pkgutil
        import holdfast.errors
        modules = {module.name for module in pkgutil.iter_modules(holdfast.errors.__path__)}
        print(modules & set(holdfast.errors.__all__))
    """
    assert run_python(code).stdout == "set()\n"


def test_a_worker_that_does_not_fail_imports_nothing_heavy(run_python, tmp_path):
    code = f"""
        import sys
        before = set(sys.modules)
        import holdfast.errors
        holdfast.errors.record(lambda: None)()
        for name in holdfast.errors.__all__:
            getattr(holdfast.errors, name)
        holdfast.errors.ProcessFailure(0, 1, -9, "").timestamp_isoformat()
        print(sorted({COSTLY_IMPORTS!r} & (set(sys.modules) - before)))
    """
    ended = run_python(code, TORCHELASTIC_ERROR_FILE=tmp_path / "f")
    assert ended.stdout == "[]\n", ended.stderr


@pytest.mark.parametrize(
    ("function", "parameters"),
    [
        (record, ["fn", "error_handler"]),
        (get_error_handler, []),
        (ErrorHandler, []),
        (ErrorHandler.initialize, ["self"]),
        (ErrorHandler.record_exception, ["self", "e"]),
        (ErrorHandler.dump_error_file, ["self", "rootcause_error_file", "error_code"]),
        (
            ErrorHandler.override_error_code_in_rootcause_data,
            ["self", "rootcause_error_file", "rootcause_error", "error_code"],
        ),
        (ErrorHandler._get_error_file_path, ["self"]),
        (ErrorHandler._write_error_file, ["self", "file_path", "error_msg"]),
        (ProcessFailure, ["local_rank", "pid", "exitcode", "error_file", "evidence"]),
        (ChildFailedError, ["name", "failures"]),
        (ChildFailedError.format_msg, ["self", "boarder_delim", "section_delim"]),
    ],
)
def test_the_parameters_are_the_agreed_ones(function, parameters):
    assert list(inspect.signature(function).parameters) == parameters
