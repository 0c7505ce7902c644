"""The stacks of workers: as their text, and as what other nodes send.

Promises: nothing but a `ValueError` of the decoder is raised. The verdict is one sentence. What is shown is fit for a
terminal and not much longer than the stacks. What a node sends is within its limit and is read as it was sent; the file
for programs can be read again.
"""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

import msgspec

from fuzz.oracles import check_line, check_shown, promise
from fuzz.shapes import LINES, MSGPACK
from fuzz.target import MIB, Target
from fuzz.typed import values_of
from holdfast.run_directory import RunDirectory
from holdfast.stacks import dump, wire
from holdfast.stacks.grouping import group
from holdfast.stacks.judgement import suspects, where_lines
from holdfast.stacks.parse import parse
from holdfast.stacks.remarks import with_remarks
from holdfast.stacks.render import render

if TYPE_CHECKING:
    from hypothesis import strategies as st

SHOWN_FACTOR = 20
"""How much longer than the stacks their text may be: of a control character it shows four or more, and twice."""

SHOWN_EXTRA_CHARS = 20_000
SENTENCE_MAX_CHARS = 100_000

FAULTHANDLER = """# step: 12
# line: work.wait()
Thread 0x00007f1 [loader] (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 320 in wait
  File "/srv/loader.py", line ??? in read

Current thread 0x00007f0 (most recent call first):
  File "/x/site-packages/torch/distributed/distributed_c10d.py", line 2806 in all_reduce
  File "/x/site-packages/torch/distributed/c10d_logger.py", line 81 in wrapper
  File "/srv/train.py", line 12 in step
  File "/srv/train.py", line 40 in <module>

Current thread's C stack trace (most recent call first):
  Binary file "/usr/bin/python3", at _Py_DumpStack+0x31
"""
PY_SPY = """# source: py-spy
Process 77: python train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 77 (active): "MainThread"
    step (train.py:12)
    <module> (train.py:40)
Thread 78 (idle): "loader"
    wait (threading.py:320)
"""
STOPPED = "# state: stopped by a signal\n"
CUT = FAULTHANDLER[:200] + "\n... 99 characters left out ...\n" + FAULTHANDLER[-300:]
TEXTS = (
    FAULTHANDLER,
    PY_SPY,
    STOPPED,
    CUT,
    "",
    'Stack (most recent call first):\n  File "<frozen runpy>", line 1 in x\n',
)


def _check(ranks: dict[int, wire.RankStacks], size: int) -> None:
    found = dump.gather("job", "a person asks", 1_770_000_000.0, ranks, {"node 3": "no answer"}, (99,))
    limit_chars = SHOWN_FACTOR * size + SHOWN_EXTRA_CHARS
    check_line(found.verdict, "the verdict", min(limit_chars, SENTENCE_MAX_CHARS))
    check_shown(render(found), "the stacks", limit_chars)
    promise(set(found.outliers) <= ranks.keys(), "a rank is blamed that is not there")
    with tempfile.TemporaryDirectory() as directory:
        run = RunDirectory(directory)
        dump.keep(found, run, "x")
        again = dump.read(run.stacks("x", "json"))
        promise(again.verdict == found.verdict and again.groups == found.groups, "the file does not hold what was kept")


def _run_text(data: bytes) -> None:
    text = data.decode("utf-8", "backslashreplace")
    stacks = parse(text)
    promise(sum(len(thread.frames) for thread in stacks.threads) <= text.count("\n") + 1, "more frames than lines")
    with_remarks(text, stacks.step)
    parsed = {0: stacks, 1: parse(FAULTHANDLER), 2: parse(PY_SPY)}
    groups = group(parsed)
    check_line(suspects(parsed, groups, [7]).sentence, "who is suspected", SENTENCE_MAX_CHARS)
    for line in where_lines(parsed, groups):
        check_line(line, "where a rank is", SENTENCE_MAX_CHARS)
    _check({0: wire.RankStacks("a", 7, text), 1: wire.RankStacks("b", 8, FAULTHANDLER)}, len(data) + 2_000)


def _run_wire(data: bytes) -> None:
    try:
        ranks = wire.decode(data)
    except ValueError as error:
        check_shown(str(error), "the error about stacks", 10_000)
        return
    sent = wire.encode(ranks)
    promise(len(sent) <= wire.NODE_MAX_BYTES, f"a node sends {len(sent)} bytes")
    promise(wire.encode(wire.decode(sent)) == sent, "stacks are others when they are read again")
    _check(ranks, len(data) + 100 * len(ranks))


def _text_seeds() -> list[bytes]:
    return [text.encode() for text in TEXTS]


def _wire_seeds() -> list[bytes]:
    each = {rank: wire.RankStacks(f"node{rank}", 70 + rank, text) for rank, text in enumerate(TEXTS)}
    return [wire.encode(each), wire.encode({5: each[0]}), wire.encode({})]


def _records() -> st.SearchStrategy[bytes]:
    return values_of(dict[int, wire.RankStacks]).map(msgspec.msgpack.encode)


TARGETS = (
    Target("stacks", _run_text, _text_seeds, LINES, memory_max_bytes=32 * MIB, short_runs=60),
    Target("stacks-of-nodes", _run_wire, _wire_seeds, MSGPACK, _records, short_runs=60),
)
