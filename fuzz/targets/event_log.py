"""The event logs of a run, from lines of bytes to all reports.

An input is one log or several, one for each agent, with lines of dashes between them.

Promises: nothing is raised, whatever the lines hold. The text is fit for a terminal. The page has no element or
attribute that does anything. The JSON can be read. No report is much longer than the logs.
"""

from __future__ import annotations

import json
import os
import tempfile
from html.parser import HTMLParser
from typing import Any

from fuzz.oracles import check_shown, promise
from fuzz.shapes import JSON_LINES, LINES, Shape
from fuzz.target import MIB, Target
from holdfast.errors.tree import InputError
from holdfast.events.records import Event, EventSource, NodeState, RdzvEvent
from holdfast.report.as_json import report_json
from holdfast.report.entries import identity_of, read_log
from holdfast.report.joining import run_of, together
from holdfast.report.listing import listing_json, listing_text
from holdfast.report.page import report_page
from holdfast.report.text import report_text
from holdfast.report.timeline import Presence, node_of
from holdfast.run_directory import RunDirectory

BETWEEN = b"\n---\n"
NODES_MAX = 4
SHOWN_FACTOR = 60
"""How much longer than the logs a report may be: of two bytes of a list, JSON makes a line."""

SHOWN_EXTRA_CHARS = 200_000
ACTIVE = frozenset(
    ("script", "img", "iframe", "object", "embed", "link", "form", "input", "audio", "video", "base", "a")
)
"""Elements that run or fetch something. The page has none of them."""

PRESENCES = (Presence(), Presence(is_alive=True, monotonic=99.0), Presence(is_alive=False))


class _Page(HTMLParser):
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        promise(tag not in ACTIVE, f"the page has an element of the log's own: {tag}")
        for name, value in attrs:
            promise(not name.startswith("on"), f"the page has a handler of the log's own: {name}")
            promise("javascript:" not in (value or ""), "the page has a link that runs something")


def _run(data: bytes) -> None:
    nodes = []
    limit_chars = SHOWN_FACTOR * len(data) + SHOWN_EXTRA_CHARS
    with tempfile.TemporaryDirectory() as directory:
        for number, log in enumerate(data.split(BETWEEN)[:NODES_MAX]):
            place = RunDirectory(os.path.join(directory, str(number)))
            os.mkdir(place.path)
            with open(place.events, "wb") as file:
                file.write(log)
            promise(identity_of(place) is not None, "a log that is there has no identity")
            nodes.append(node_of(read_log(place), place.path, PRESENCES[len(log) % len(PRESENCES)]))
    together(nodes[0], nodes[1:])
    run = run_of(nodes)
    for width in (10, 100):
        check_shown(report_text(run, width), "the report", limit_chars)
    check_shown(listing_text([run]), "the list of runs", limit_chars)
    json.loads(report_json(run))
    for text in (report_json(run), listing_json([run])):
        promise(len(text) <= limit_chars, f"the report in JSON has {len(text)} characters")
        promise(text.isascii(), "the report in JSON is not ASCII")
    page = report_page(run)
    check_shown(page, "the page", limit_chars)
    _Page().feed(page)


def _event(name: str, monotonic: float, machine: str, **details: Any) -> bytes:
    metadata: dict[str, Any] = {"run_id": "job7", "hostname": machine, "group_rank": 0, "monotonic": monotonic}
    metadata["details"] = json.dumps(details)
    return Event(f"holdfast.{name}", EventSource.AGENT, 1_770_000_000.0 + monotonic, metadata).serialize().encode()


def _failure(rank: int, kind: str = "exception") -> dict[str, Any]:
    return {
        "rank": rank,
        "local_rank": rank,
        "host": "node0",
        "pid": 77,
        "exit_code": 1,
        "kind": kind,
        "message": "Traceback ...\nValueError: no",
        "where": "train.py:1 in f",
        "exception": "ValueError",
        "log_file": "/tmp/x",
        "max_rss_kib": 1024,
        "ran_s": 2.0,
        "timestamp": 1_770_000_010.0,
    }


def _log(host: str, node: int, generation: int | None, job: str) -> bytes:
    def started(attempt: int, at: float) -> bytes:
        return _event(
            *("attempt.started", at, host),
            attempt=attempt,
            job=job,
            restart=attempt - 1,
            max_restarts=3,
            generation=generation,
            master="node0:29500",
            node=node,
            nodes=2,
            world_size=4,
            ranks=[0, 1],
            pids=[7, 8],
            waited_s=1.0,
            started_s=0.1,
        )

    run = {"agent": f"a{node}", "version": "0.1.0", "pid": 4_000_000, "command": ["train.py"], "role": "r", "nproc": 2}
    lines = [
        _event("run.started", 1.0, host, **run, min_nodes=1, max_nodes=2, backend="c10d", max_restarts=3),
        started(1, 3.0),
        _event("failure", 5.0, host, attempt=1, **_failure(1)),
        _event("verdict", 5.0, host, attempt=1, cause=_failure(1), victims=1, decision="restart", reason="why"),
        _event("stacks", 5.0, host, attempt=1, reason="hang", file="stacks/x.txt", outliers=[1], where=["rank 1: x"]),
        _event("attempt.ended", 5.5, host, attempt=1, outcome="failed", reason="why", ran_s=2.0),
        started(2, 7.0),
        _event("warning", 8.0, host, attempt=2, text="late crash", rank=1),
        _event("attempt.ended", 9.0, host, attempt=2, outcome="succeeded", reason="", ran_s=2.0),
        _event("run.ended", 9.5, host, outcome="succeeded", reason="", restarts=1),
    ]
    return b"\n".join(lines)


def _torch_log() -> bytes:
    raw = json.dumps({"message": {"message": "E", "extraInfo": {"py_callstack": "Traceback"}}})
    more = json.dumps({"group_world_size": 2, "local_rank": [0], "role_world_size": [2], "worker_pid": [7]})
    metadata: dict[str, Any] = {"run_id": "job7", "global_rank": 0, "group_rank": 0, "hostname": "n", "state": "FAILED"}
    lines = [
        Event(
            "torchelastic.worker.status.FAILED",
            EventSource.WORKER,
            1.0,
            {**metadata, "raw_error": raw, "metadata": more},
        ),
        Event("torchelastic.worker.status.FAILED", EventSource.AGENT, 2.0, {**metadata, "agent_restarts": 0}),
    ]
    return b"\n".join(line.serialize().encode() for line in lines)


def _seeds() -> list[bytes]:
    alone = _log("node0", 0, None, "")
    two = BETWEEN.join(_log(f"node{node}", node, 1, "job-1") for node in range(2))
    return [
        alone,
        alone.replace(b"node0", b"<img src=x onerror=y>\\u001b[31m"),
        two,
        alone.rpartition(b"\n")[0],
        b"\n".join(alone.split(b"\n")[:2]),
        two[: len(two) // 2],
        _torch_log(),
    ]


def _parse(data: bytes) -> Any:
    return _opened(JSON_LINES.parse(data))


def _opened(tree: Any) -> Any:
    """Objects that are written as texts in objects are changed as objects."""
    if isinstance(tree, list):
        return [_opened(item) for item in tree]
    if isinstance(tree, dict):
        return {key: _opened(item) for key, item in tree.items()}
    if isinstance(tree, str) and tree.startswith("{"):
        try:
            return _opened(json.loads(tree))
        except ValueError:
            return tree
    return tree


def _run_event(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    for kind in (Event, RdzvEvent):
        try:
            event = kind.deserialize(text)
        except InputError:
            continue
        again = event.serialize()
        promise(kind.deserialize(again).serialize() == again, "an event is another one when it is read again")


def _event_seeds() -> list[bytes]:
    events = (
        Event("x", EventSource.AGENT, 1.5, {"a": 1, "b": None, "c": True, "d": "text"}),
        RdzvEvent("x", "job", "said", "host", 7, NodeState.FAILED, "node0:1", 0, 0, "Traceback"),
    )
    return [event.serialize().encode() for event in events]


TARGETS = (
    Target("event-log", _run, _seeds, Shape(_parse, JSON_LINES.dump), memory_max_bytes=32 * MIB, short_runs=60),
    Target("event", _run_event, _event_seeds, LINES),
)
