"""What a failed worker leaves: its error file, its stderr and its stacks.

Promises: reading raises nothing, whatever is there. The message can be encoded, and the time is a time. What people are
shown is fit for a terminal, and not much longer than what the worker wrote. The file that `record` writes is read as it
was written.
"""

from __future__ import annotations

import json
import math
import os
import tempfile

from fuzz.oracles import check_line, check_shown, promise
from fuzz.shapes import JSON, LINES
from fuzz.target import MEMORY_MAX_BYTES, Target
from holdfast.errors.child_failed import ChildFailedError
from holdfast.errors.description import describe
from holdfast.errors.diagnosis import STACKS_MAX_CHARS, Evidence, is_usage_error
from holdfast.errors.error_file import FILE_MAX_BYTES, TIME_END_S, read_error_file, write_error_file
from holdfast.errors.failure import ProcessFailure
from holdfast.errors.summary import HEADLINE_MAX_CHARS, gist

NOW = 1_770_000_000.0
SHOWN_FACTOR = 10
"""How much longer than the file the text for people may be: of a control character it shows four or more."""

SHOWN_EXTRA_CHARS = 20_000
EXIT_CODES = (1, 2, 77, 139, -6, -9, -11, -64)
MODES = tuple(range(len(EXIT_CODES)))

TRACEBACK = """Traceback (most recent call last):
  File "/srv/train.py", line 88, in <module>
    main()
  File "/srv/train.py", line 23, in step
    raise ValueError("no")
ValueError: no
"""
CRASH = """Fatal Python error: Segmentation fault

Current thread 0x00007f0000000000 (most recent call first):
  File "/srv/train.py", line 12 in step
  File "/srv/train.py", line 40 in <module>
"""


def _run(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "error.json")
        with open(path, "wb") as file:
            file.write(data)
        report = read_error_file(path, NOW)
        assert report is not None
        promise(report.message.strip(), "a report without a message")
        report.message.encode()
        promise(math.isfinite(report.timestamp) and 0 <= report.timestamp < TIME_END_S, "a time that is none")
        json.dumps(report.data)
        _check_shown(ProcessFailure(0, 77, EXIT_CODES[len(data) % len(EXIT_CODES)], path), len(data) + len(path))


def _check_shown(failure: ProcessFailure, size: int) -> None:
    other = ProcessFailure(1, 78, 1, "")
    text = str(ChildFailedError("train.py", {0: failure, 1: other}))
    check_shown(text, "the summary of a failure", SHOWN_FACTOR * size + SHOWN_EXTRA_CHARS)
    promise(len(gist(failure)) <= HEADLINE_MAX_CHARS, "a headline is too long")
    for name in ("where", "exception"):
        promise("\n" not in getattr(failure, name), f"{name} has more than one line")


def _run_words(data: bytes) -> None:
    """The last words of a worker, on stderr and in its stacks; there is no error file."""
    text = data.decode("utf-8", "backslashreplace")
    head, _, tail = text.partition("\0")
    for code in EXIT_CODES:
        evidence = Evidence(stderr=head, stacks=tail, max_rss_kib=1024)
        failure = ProcessFailure(0, 77, code, "", evidence=evidence)
        _check_shown(failure, len(head) + min(len(tail), STACKS_MAX_CHARS))
    is_usage_error(2, text)
    check_line(str(failure.kind), "a kind of failure", HEADLINE_MAX_CHARS)


def _seeds() -> list[bytes]:
    written = json.dumps(describe(ValueError("no \ud800 \x1b[31m"), int(NOW) * 10**9))
    old = {"message": "ValueError: x", "timestamp": 1_700_000_000}
    torchs = {
        "message": {"message": "E: x", "errorCode": 1, "extraInfo": {"py_callstack": TRACEBACK, "timestamp": "17"}}
    }
    in_thread = {
        "message": {"message": "E: x", "extraInfo": {"thread": "Thread-1", "timestamp_ns": 10**18, "timestamp": "1e9"}}
    }
    found = [written, *(json.dumps(each) for each in (old, torchs, in_thread))]
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "e")
        write_error_file(path, found[0])
        with open(path, "rb") as file:
            return [file.read(), *(each.encode() for each in found[1:])]


def _word_seeds() -> list[bytes]:
    chained = f"{TRACEBACK}\nDuring handling of the above exception, another exception occurred:\n\n{TRACEBACK}"
    syntax = '  File "/srv/train.py", line 1\n    x y\n      ^\nSyntaxError: invalid syntax\n'
    texts = (
        TRACEBACK,
        f"step 1\r step 2\r\n[rank0]: {TRACEBACK}",
        f"{chained}holdfast: the error file was not written\n",
        syntax,
        f"said\0{CRASH}",
        f"{CRASH}\0",
        "usage: train.py [-h]\ntrain.py: error: unrecognized arguments: --x\n",
        "Connection reset by peer\nConnectionResetError: [Errno 104]\n",
        "\0Thread 0x1 (most recent call first):\n  <no Python frame>\n\nCurrent thread 0x2 (most recent call first):\n",
    )
    return [text.encode() for text in texts]


TARGETS = (
    Target("error-file", _run, _seeds, JSON, memory_max_bytes=FILE_MAX_BYTES + MEMORY_MAX_BYTES),
    Target("last-words", _run_words, _word_seeds, LINES, short_runs=100),
)
