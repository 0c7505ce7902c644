"""The error file: one JSON object in which a failed process tells the watching process why it failed.

Path and format are those of torch.distributed.elastic, so that either side can be torch. Two formats are read:

    {"message": {"message": "ValueError: x", "errorCode": 1,
                 "extraInfo": {"py_callstack": "Traceback ...", "timestamp": "1700000000"}}}
    {"message": "ValueError: x", "timestamp": 1700000000}

The first is written. Its timestamp is a string of whole seconds, because torch's reader accepts nothing else.
`timestamp_ns` beside it has the resolution needed to find the first of several failures.
"""

from __future__ import annotations

import errno
import os
import stat

from holdfast.errors.text import clipped, encodable, visible
from holdfast.files import NotRegularError, write_whole_in
from holdfast.own_files import ForeignError, Place, find, open_own

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

PATH_VARIABLE = "TORCHELASTIC_ERROR_FILE"
"""The environment variable with the path of the error file. If it is unset or empty, no file is written."""

PAGE_VARIABLE = "HOLDFAST_WORKER_PAGE"
SPARE_SUFFIX = ".error"
"""The suffix of the spare error file. It is beside the worker's page, in memory, in case the disk is full."""

THREAD_KEY = "thread"
"""The key in `extraInfo` with the name of the thread that failed, if it was not the main thread. The process may have
continued after that.
"""

FILE_MODE = 0o666
"""The mode before the umask, the same as torch's. If a worker runs as another user than its agent, both can read the
file.
"""

FILE_MAX_BYTES = 2 * 1024 * 1024
"""The largest error file that is read. Decoding it takes the agent less than a second, whatever a worker writes."""

MESSAGE_MAX_CHARS = 64 * 1024
"""How much of a message or traceback is taken from the file, to be shown and recorded: about a thousand lines."""

NESTING_MAX_LEVELS = 64
"""The deepest object that is accepted, so that printing, pickling or copying it cannot exhaust the stack."""

QUOTE_MAX_CHARS = 4_000
"""How much of an unreadable file is quoted."""

TIME_END_S = 253_402_300_800
"""The year 10000 in Unix time. A larger number is not a time."""

WRITING_MAX_S = 2.0
"""How long after its own timestamp a file may be modified and still count as just written."""

LAST_OF_SECOND_S = 0.999_999

NS_PER_S = 1_000_000_000

NOT_REPLACEABLE = frozenset({errno.EBUSY, errno.EACCES, errno.EPERM, errno.EROFS})
"""The errors for a file that can perhaps be written, but not replaced."""


class ErrorReport:
    """The content of an error file, or what is wrong with it.

    Attributes:
        data: the file's object, unchanged; for an unreadable file, its description in the second format.
        message: the traceback if there is one, else the message; cut to `MESSAGE_MAX_CHARS`.
        timestamp: when the process failed, in Unix seconds.
    """

    __slots__ = ("data", "message", "timestamp")

    def __init__(self, data: dict[str, Any], message: str, timestamp: float) -> None:
        self.data = data
        self.message = message
        self.timestamp = timestamp

    def __repr__(self) -> str:
        return f"ErrorReport(data={self.data!r}, message={self.message!r}, timestamp={self.timestamp!r})"


class _UnreadableError(Exception):
    """The file exists but has no usable content. The argument completes the sentence "the error file ..."."""


def read_error_file(path: str, now: float) -> ErrorReport | None:
    """Read the error file at `path`; None if there is none, or if another user may have put it there. Never raises.

    `now` is the time of the failure if neither the content nor the modification time of the file gives it.
    """
    content = b""
    written_at = now
    try:
        content, modified_at = _read(path)
        if 0 <= modified_at <= now:
            written_at = modified_at
        data = _decode(content)
        message = clipped(_message(data), MESSAGE_MAX_CHARS, path)
        return ErrorReport(data, message, _timestamp(data, written_at))
    except (FileNotFoundError, NotADirectoryError, ForeignError):
        return None
    except OSError as problem:
        return unreadable(path, f"cannot be read ({problem.strerror})", written_at)
    except _UnreadableError as problem:
        # Even if it is truncated, the text is often enough for a person to see the cause.
        quote = visible(clipped(content.decode("utf-8", "backslashreplace"), QUOTE_MAX_CHARS))
        return unreadable(path, f"{problem}\n{quote}".rstrip(), written_at)


def spare_path(environ: Mapping[str, str]) -> str:
    """Where a process with this environment writes if its error file cannot be written; "" for nowhere."""
    page = environ.get(PAGE_VARIABLE)
    return page + SPARE_SUFFIX if page else ""


def thread_in(data: dict[str, Any]) -> str:
    """The name of the failed thread in an error file's object; "" for the main thread."""
    name = _extra_info(data).get(THREAD_KEY)
    return name if isinstance(name, str) else ""


def unreadable(path: str, problem: str, timestamp: float) -> ErrorReport:
    """A report for an error file that cannot be used. `problem` completes "the error file ..."."""
    message = f"the process failed, but its error file {path!r} {problem}"
    return ErrorReport({"message": message, "timestamp": int(timestamp)}, message, timestamp)


def write_error_file(path: str, content: str) -> None:
    """Write `content` to `path`, all or nothing, and create missing directories.

    Links of this user and of root are followed. Only targets that cannot be replaced are written in place: a device, or
    a file that is itself a mount, such as a container's termination log. Raises OSError, and leaves no temporary file
    behind.

    Raises:
        ForeignError: another user has taken the path: a clean-up of the temporary directory may have removed it.
    """
    payload = content.encode("utf-8", "backslashreplace")
    with find(path, make=True) as place:
        kind = _kind(place)
        if kind not in (0, stat.S_IFREG):
            _overwrite(place, payload)
            return
        try:
            write_whole_in(place.directory, place.name, payload, mode=FILE_MODE)
        except OSError as problem:
            if problem.errno not in NOT_REPLACEABLE or not kind:
                raise
            _overwrite(place, payload)


def _kind(place: Place) -> int:
    """The kind of file that is there; 0 for none."""
    try:
        status = os.stat(place.name, dir_fd=place.directory, follow_symlinks=place.is_process)
    except FileNotFoundError:
        return 0
    return stat.S_IFMT(status.st_mode)


def _overwrite(place: Place, payload: bytes) -> None:
    # A FIFO without a reader must not block a process that is about to exit.
    flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | (0 if place.is_process else os.O_NOFOLLOW)
    with open(os.open(place.name, flags, dir_fd=place.directory), "wb") as file:
        place.check(file.fileno())
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            os.ftruncate(file.fileno(), 0)
        file.write(payload)


def written_identity(path: str) -> tuple[int, int] | None:
    """What tells the content of the error file at `path` from another one; None if there is none, or it is empty."""
    try:
        descriptor = open_own(path)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    return (status.st_ino, status.st_mtime_ns) if status.st_size else None


def _read(path: str) -> tuple[bytes, float]:
    """The file's bytes and modification time."""
    try:
        descriptor = open_own(path)
    except NotRegularError:
        if os.path.isdir(path):
            raise _UnreadableError("is a directory") from None
        raise FileNotFoundError(path) from None  # a device or a FIFO stores nothing
    with open(descriptor, "rb") as file:
        return file.read(FILE_MAX_BYTES + 1), os.fstat(descriptor).st_mtime


def _decode(content: bytes) -> dict[str, Any]:
    """Decode a file's bytes to its object."""
    import json

    if not content.strip():
        raise _UnreadableError("is empty")
    if len(content) > FILE_MAX_BYTES:
        raise _UnreadableError(f"is larger than {FILE_MAX_BYTES} bytes; its first part:")
    try:
        data = json.loads(content.decode("utf-8"))
    except UnicodeDecodeError as problem:
        raise _UnreadableError(f"is not UTF-8 text ({problem}):") from None
    except (ValueError, RecursionError) as problem:
        raise _UnreadableError(f"is cut off or is not JSON ({problem}):") from None
    if not isinstance(data, dict):
        raise _UnreadableError("is not a JSON object:")
    if _is_deeper_than(NESTING_MAX_LEVELS, data):
        raise _UnreadableError(f"is nested deeper than {NESTING_MAX_LEVELS} levels:")
    return data


def _is_deeper_than(levels: int, data: dict[str, Any]) -> bool:
    level: list[Any] = [data]
    for _ in range(levels):
        level = [
            child
            for item in level
            if isinstance(item, (dict, list))
            for child in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return False
    return True


def _message(data: dict[str, Any]) -> str:
    """The most informative text of either format."""
    message = data.get("message")
    texts = [
        _extra_info(data).get("py_callstack"),
        message.get("message") if isinstance(message, dict) else message,
    ]
    for text in texts:
        if isinstance(text, str) and text.strip():
            return encodable(text)
    raise _UnreadableError("has no message in it:")


def _extra_info(data: dict[str, Any]) -> dict[str, Any]:
    message = data.get("message")
    info = message.get("extraInfo") if isinstance(message, dict) else None
    return info if isinstance(info, dict) else {}


def _timestamp(data: dict[str, Any], written_at: float) -> float:
    """When the failure happened, as precisely as the file says; `written_at` if it says nothing.

    A refined time stays within the stated second, so that every reader agrees on the second.
    """
    info = _extra_info(data)
    second = _unix_time(info.get("timestamp", data.get("timestamp")))
    if second is None:
        return written_at
    exact = _unix_time(info.get("timestamp_ns"), units_per_s=NS_PER_S)
    if exact is not None and int(exact) == int(second):
        return exact
    if second.is_integer() and 0 <= written_at - second < WRITING_MAX_S:
        return min(written_at, second + LAST_OF_SECOND_S)
    return second


def _unix_time(value: object, units_per_s: int = 1) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        seconds = float(value) / units_per_s
    except (ValueError, OverflowError):
        return None
    return seconds if 0 <= seconds < TIME_END_S else None
