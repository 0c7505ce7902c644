from __future__ import annotations

import pytest

from holdfast.errors.advice import advice
from holdfast.errors.kind import COMMAND_LINE, INTERPRETER_END, MODULE_START, FailureKind


@pytest.mark.parametrize("kind", FailureKind)
def test_every_kind_of_failure_has_advice_in_whole_sentences(kind):
    text = advice(kind)
    assert text[0].isupper()
    assert text.endswith(".")
    assert "\n" not in text
    assert "{" not in text


def test_an_exception_whose_class_says_more_has_advice_of_its_own():
    assert "Install the missing module" in advice(FailureKind.EXCEPTION, "ModuleNotFoundError", "train.py:1")
    assert "accelerator" in advice("exception", "torch.OutOfMemoryError")
    assert "accelerator" not in advice("killed", "torch.OutOfMemoryError")


def test_a_launch_that_every_worker_would_repeat_belongs_under_a_guard():
    assert '`if __name__ == "__main__":`' in advice("exception", "holdfast.launcher.launching.NoMainGuardError")


def test_the_place_is_named_where_it_is_known():
    assert "look first at train.py:12 in step" in advice(FailureKind.EXCEPTION, "ValueError", "train.py:12 in step")


def test_a_crash_after_the_last_line_is_not_looked_for_in_a_stack():
    assert "destroy_process_group()" in advice("crash", where=INTERPRETER_END)
    assert "destroy_process_group()" not in advice("crash", where="train.py:12 in step")
    assert "destroy_process_group()" not in advice("exception", where=INTERPRETER_END)


def test_a_module_that_is_not_found_at_the_start_may_be_misspelt():
    told = advice("exception", "ModuleNotFoundError", MODULE_START)
    assert told.startswith("Check the name after -m")
    assert "on every machine" in told


def test_a_program_that_is_not_python_needs_an_option():
    for name in ("SyntaxError", "IndentationError", "TabError"):
        assert "add --no-python" in advice("exception", name, "/home/me/prog.sh:2")
        assert "--no-python" not in advice("exception", name, "/home/me/train.py:2")
    assert "If it is not Python, add --no-python" in advice("exception", "SyntaxError", "/home/me.d/prog:2")
    assert "--no-python" not in advice("exception", "SyntaxError", "<string>:2")
    assert "--no-python" not in advice("exception", "SyntaxError")
    assert "--no-python" not in advice("exception", "ValueError", "/home/me/prog.sh:2")


def test_arguments_that_were_refused_are_corrected_and_not_searched_for():
    assert advice("exit", where=COMMAND_LINE).startswith("Fix the program's arguments")
    assert "log file" not in advice("exit")


def test_a_kind_that_nobody_knows_has_none():
    assert not advice("of a later version")
