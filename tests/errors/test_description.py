from __future__ import annotations

import json

from holdfast.errors.description import TEXT_MAX_CHARS, describe, type_and_text
from holdfast.errors.error_file import FILE_MAX_BYTES, read_error_file, write_error_file

NOW_NS = 1_700_000_000_123_456_789


def caught(function):
    try:
        function()
    except BaseException as exc:
        return exc
    raise AssertionError("nothing was raised")


def described(exc):
    return describe(exc, NOW_NS)["message"]


def stack_of(exc):
    return described(exc)["extraInfo"]["py_callstack"]


class UnprintableError(Exception):
    def __str__(self):
        raise RuntimeError("no text for you")

    __repr__ = __str__


def test_the_object_has_the_agreed_shape():
    message = described(caught(lambda: int("x")))
    assert message["message"] == "ValueError: invalid literal for int() with base 10: 'x'"
    assert message["extraInfo"].pop("py_callstack").startswith("Traceback (most recent call last):\n")
    assert message == {
        "message": "ValueError: invalid literal for int() with base 10: 'x'",
        "extraInfo": {"timestamp": "1700000000", "timestamp_ns": "1700000000123456789"},
    }


def test_causes_and_contexts_are_kept():
    def fail():
        try:
            try:
                {}["first"]
            except KeyError:
                len(5)
        except TypeError as exc:
            raise ValueError("third") from exc

    stack = stack_of(caught(fail))
    places = [stack.index(text) for text in ("KeyError: 'first'", "TypeError: object of type", "ValueError: third")]
    assert places == sorted(places)


def test_groups_and_notes_are_kept():
    def fail():
        inner = ValueError("inside")
        inner.add_note("rank 3 was slow")
        raise ExceptionGroup("several", [inner, KeyError("also")])

    stack = stack_of(caught(fail))
    for text in ("several (2 sub-exceptions)", "ValueError: inside", "rank 3 was slow", "KeyError: 'also'"):
        assert text in stack


def test_an_exception_without_text_or_repr_is_described():
    exc = caught(lambda: (_ for _ in ()).throw(UnprintableError))
    assert type_and_text(exc) == "UnprintableError: <its text is not available: str() raised RuntimeError>"
    assert "UnprintableError" in stack_of(exc)


def test_a_traceback_that_cannot_be_formatted_is_said_to_be_so(monkeypatch):
    def fail(*_):
        raise LookupError

    monkeypatch.setattr("traceback.format_exception", fail)
    stack = stack_of(ValueError("x"))
    assert stack == "ValueError: x\n<its traceback is not available: formatting it raised LookupError>"


def test_surrogates_are_escaped():
    exc = caught(lambda: (_ for _ in ()).throw(ValueError("\udcff")))
    message = described(exc)
    assert message["message"] == "ValueError: \\udcff"
    assert message["extraInfo"]["py_callstack"].encode()


def test_a_long_text_keeps_its_ends():
    exc = caught(lambda: (_ for _ in ()).throw(ValueError("<" + "x" * 1_000_000 + ">")))
    stack = stack_of(exc)
    assert len(stack) < TEXT_MAX_CHARS + 100
    assert stack.startswith("Traceback")
    assert stack.endswith("x>\n")


def test_the_greatest_object_is_small_enough_for_the_reader(tmp_path):
    exc = caught(lambda: (_ for _ in ()).throw(ValueError("\U0001f600" * 1_000_000)))
    content = json.dumps(describe(exc, NOW_NS))
    assert len(content) < FILE_MAX_BYTES
    write_error_file(str(tmp_path / "f"), content)
    report = read_error_file(str(tmp_path / "f"), 2e9)
    assert report.data == describe(exc, NOW_NS)
    assert report.message == stack_of(exc), "what was cut to its length is cut again"


def test_endless_recursion_is_described():
    def even():
        odd()

    def odd():
        even()

    assert "RecursionError" in stack_of(caught(even))


def test_an_exception_that_was_never_raised_is_described():
    assert stack_of(ValueError("x")) == "ValueError: x\n"
