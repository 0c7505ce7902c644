"""Convert an exception to the object in the error file."""

from __future__ import annotations

from holdfast.errors.error_file import NS_PER_S
from holdfast.errors.text import clipped, encodable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

TEXT_MAX_CHARS = 64_000
"""The longest message or traceback that is written. With the note of what is missing, it is within the reader's limit
for a message, and both together are within that for a file.
"""

RECORDING_MODULE = "holdfast.errors.recording"
"""The module whose frames are cut from the head of a traceback."""


def describe(exc: BaseException, now_ns: int) -> dict[str, Any]:
    """The error file's object for `exc`. Never raises, not even if the exception cannot be printed."""
    return {
        "message": {
            "message": _fit(type_and_text(exc)),
            "extraInfo": {
                "py_callstack": _fit(_traceback(exc)),
                "timestamp": str(now_ns // NS_PER_S),
                "timestamp_ns": str(now_ns),
            },
        }
    }


def type_and_text(exc: BaseException) -> str:
    """`exc` as "ValueError: text". Never raises."""
    name = type(exc).__name__
    try:
        return f"{name}: {exc}"
    except Exception as problem:  # noqa: BLE001 - __str__ is the user's code and may raise anything
        return f"{name}: <its text is not available: str() raised {type(problem).__name__}>"


def _fit(text: str) -> str:
    return clipped(encodable(text), TEXT_MAX_CHARS)


def _traceback(exc: BaseException) -> str:
    """The traceback with causes, contexts, groups and notes, as the interpreter prints it."""
    import traceback

    try:
        return "".join(traceback.format_exception(type(exc), exc, _users_part(exc.__traceback__)))
    except Exception as problem:  # noqa: BLE001 - formatting runs the user's code: loaders, notes, __str__
        reason = f"formatting it raised {type(problem).__name__}"
        return f"{type_and_text(exc)}\n<its traceback is not available: {reason}>"


def _users_part(tb: TracebackType | None) -> TracebackType | None:
    part = tb
    while part is not None and part.tb_frame.f_globals.get("__name__") == RECORDING_MODULE:
        part = part.tb_next
    return part or tb
