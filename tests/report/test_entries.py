"""Reading an event log: whatever stands in it, what can be read is read, and no more of it than the limits allow."""

from __future__ import annotations

import json
import os

import pytest
import written_runs

from holdfast.errors.tree import InputError
from holdfast.events.schema import RunStarted
from holdfast.report import entries
from holdfast.report.entries import (
    ID_MAX_CHARS,
    LINE_MAX_BYTES,
    LIST_MAX_ITEMS,
    NUMBER_MAX,
    PEEK_MAX_BYTES,
    PEEK_MAX_LINES,
    TEXT_MAX_CHARS,
    Facts,
    identity_of,
    parse_line,
    read_log,
    skim_log,
)
from holdfast.report.records import Outcome
from holdfast.report.timeline import node_of
from holdfast.run_directory import RunDirectory


def told(written, presence=None):
    return node_of(read_log(RunDirectory(written.directory)), written.directory, presence)


def test_lines_that_nobody_understands_are_skipped_and_counted(tmp_path):
    written = written_runs.success(tmp_path)
    for line in (
        "{",
        "[]",
        "null",
        '"text"',
        '{"name": 7}',
        "\udcff\udcfe",
        "[" * 99_999,
    ):
        written.line(line)
    written.line("")
    written.line(json.dumps({"name": "watchdog", "source": "AGENT", "timestamp": 1, "metadata": {}}))
    node = told(written)
    assert (node.skipped_lines, node.outcome) == (7, Outcome.SUCCEEDED)


# Values


@pytest.mark.parametrize(
    "value", [True, "7", None, [7], float("nan"), float("inf"), NUMBER_MAX, -10 * NUMBER_MAX, 10**400]
)
def test_what_is_no_number_counts_as_missing(value):
    facts = Facts({"value": value})
    assert (facts.number_or_none("value"), facts.integer_or_none("value")) == (None, None)
    assert (facts.number("value", 1.5), facts.integer("value", 3)) == (1.5, 3)


def test_numbers_are_read_as_they_are():
    facts = Facts({"whole": -7, "part": 2.75})
    assert (facts.number("whole"), facts.integer("whole")) == (-7.0, -7)
    assert (facts.number("part"), facts.integer("part")) == (2.75, 2)


def test_lists_keep_what_has_the_type_and_no_more_than_the_limit():
    facts = Facts({"mixed": [1, "a", True, 2.0, None, 10**20, 3], "long": [0] * (LIST_MAX_ITEMS + 1), "none": "x"})
    assert (facts.integers("mixed"), facts.texts("mixed")) == ([1, 3], ["a"])
    assert len(facts.integers("long")) == LIST_MAX_ITEMS
    assert facts.integers("none") == facts.texts("none") == facts.integers("missing") == []


def test_of_a_long_text_the_head_and_the_tail_are_kept():
    text = Facts({"text": "head" + "x" * 10 * TEXT_MAX_CHARS + "tail"}).text("text")
    assert (text[:4], text[-4:]) == ("head", "tail")
    assert len(text) < 2 * TEXT_MAX_CHARS


def test_an_object_may_be_written_as_json_in_a_string():
    facts = Facts({"plain": {"a": 1}, "string": '{"a": 1}', "broken": "{", "list": "[1]"})
    assert [facts.facts(name).integer("a") for name in ("plain", "string", "broken", "list", "missing")] == [
        1,
        1,
        0,
        0,
        0,
    ]
    assert (bool(facts.facts("plain")), bool(facts.facts("broken"))) == (True, False)


# Lines


def test_a_line_of_a_later_version_is_an_entry_without_an_event():
    entry = parse_line(b'{"name": "holdfast.of.later", "timestamp": 3.5, "metadata": {"monotonic": 2.5}}')
    assert (entry.name, entry.event, entry.timestamp, entry.monotonic) == ("holdfast.of.later", None, 3.5, 2.5)


def test_a_line_that_is_too_long_is_skipped_whole_and_the_next_one_is_read(tmp_path):
    written = written_runs.WrittenNode(tmp_path)
    written.line(json.dumps({"name": "x" * (2 * LINE_MAX_BYTES)})).done("succeeded")
    log = read_log(RunDirectory(written.directory))
    assert [entry.name for entry in log.entries] == ["holdfast.run.started", "holdfast.run.ended"]
    assert (log.skipped_lines, log.is_cut) == (1, False)


def test_a_log_is_read_up_to_its_limit(tmp_path, monkeypatch):
    written = written_runs.WrittenNode(tmp_path)
    size = os.path.getsize(written.path)
    monkeypatch.setattr(entries, "LOG_MAX_BYTES", size)
    assert not read_log(RunDirectory(written.directory)).is_cut
    written.done("succeeded")
    log = read_log(RunDirectory(written.directory))
    assert (len(log.entries), log.skipped_lines, log.is_cut) == (1, 0, True)


def test_a_log_of_many_short_lines_is_read_up_to_a_number_of_them(tmp_path, monkeypatch):
    written = written_runs.WrittenNode(tmp_path).line('{"name":"x"}').line("nonsense").done("succeeded")
    monkeypatch.setattr(entries, "LOG_MAX_LINES", 4)
    assert (len(read_log(RunDirectory(written.directory)).entries), told(written).is_cut) == (3, False)
    monkeypatch.setattr(entries, "LOG_MAX_LINES", 3)
    log = read_log(RunDirectory(written.directory))
    assert (len(log.entries), log.skipped_lines, log.read_lines, log.is_cut) == (2, 1, 3, True)


def test_what_nobody_reads_of_an_event_is_not_kept():
    junk = {"junk": [[]] * 9}
    line = {
        "name": "x",
        "metadata": {"run_id": "job7", "details": junk, **junk, "raw_error": {"message": junk, **junk}},
    }
    metadata = parse_line(json.dumps(line).encode()).metadata
    assert metadata.text("run_id") == "job7"
    assert not any(metadata.facts(name) for name in ("details", "junk"))
    assert not metadata.facts("raw_error").facts("message")
    nested = {"message": {"message": {"message": {"message": {"message": "too deep"}}}}}
    assert "too deep" not in repr(parse_line(json.dumps({"name": "x", "metadata": {"raw_error": nested}}).encode()))


def test_a_listing_reads_the_beginning_and_the_end_of_a_long_log(tmp_path, monkeypatch):
    written = written_runs.WrittenNode(tmp_path).starts()
    for number in range(100):
        written.event("warned", text=f"warning {number}")
    written.done("succeeded")
    whole = skim_log(RunDirectory(written.directory))
    assert (len(whole.entries), whole.is_cut) == (103, False)
    monkeypatch.setattr(entries, "LISTED_MAX_BYTES", 4000)
    log = skim_log(RunDirectory(written.directory))
    assert log.is_cut
    assert log.skipped_lines == 0, "no line is cut in the middle"
    assert 2000 < log.read_bytes <= 4000
    assert [log.entries[place].name for place in (0, 1, -1)] == [
        "holdfast.run.started",
        "holdfast.attempt.started",
        "holdfast.run.ended",
    ]
    assert node_of(log, written.directory).outcome is Outcome.SUCCEEDED


def test_a_log_that_is_no_file_is_bad_input(tmp_path):
    written = written_runs.WrittenNode(tmp_path)
    os.unlink(written.path)
    for _ in range(2):
        with pytest.raises(InputError, match=r"events\.jsonl' cannot be read"):
            read_log(RunDirectory(written.directory))
        with pytest.raises(InputError, match=r"events\.jsonl' cannot be read"):
            skim_log(RunDirectory(written.directory))
        assert identity_of(RunDirectory(written.directory)) is None
        if not os.path.exists(written.path):
            os.mkfifo(written.path)  # nobody will ever write to it


# Whose log it is


def test_a_log_is_known_by_its_first_events(tmp_path):
    written = written_runs.WrittenNode(tmp_path, job="j" * 2 * ID_MAX_CHARS).line("nonsense").starts(nodes=4)
    found = identity_of(RunDirectory(written.directory))
    assert (found.directory, found.run_id, found.nodes) == (written.directory, "job7", 4)
    assert (found.agent, found.job) == (written.agent, "j" * ID_MAX_CHARS)
    assert found.started_at == written_runs.START
    assert found.is_named(written.agent[:5])
    assert found.is_named("jjj")
    assert not found.is_named("job7")


def test_only_the_beginning_of_a_log_is_read_to_know_it(tmp_path):
    written = written_runs.WrittenNode(tmp_path, job="beef")
    for _ in range(PEEK_MAX_LINES):
        written.line("nonsense")
    found = identity_of(RunDirectory(written.starts().directory))
    assert (found.agent, found.job) == (written.agent, "")
    assert isinstance(read_log(RunDirectory(written.directory)).entries[0].event, RunStarted)


def test_a_few_bytes_of_a_log_are_read_to_know_it(tmp_path):
    written = written_runs.WrittenNode(tmp_path, job="beef")
    for _ in range(PEEK_MAX_LINES // 2):
        written.line("x" * (2 * PEEK_MAX_BYTES // PEEK_MAX_LINES))
    found = identity_of(RunDirectory(written.starts().directory))
    assert (found.agent, found.job, found.owner) == (written.agent, "", os.geteuid())


@pytest.mark.parametrize("arguments", [2_500, 50_000])
def test_a_line_that_is_too_long_does_not_hide_whose_a_log_is(arguments, tmp_path):
    """As versions wrote it that kept all of a command."""
    command = [f"shard-{number:05}-of-02500.tar.zst" for number in range(arguments)]
    written = written_runs.WrittenNode(tmp_path, job="beef", command=command).starts(nodes=4)
    found = identity_of(RunDirectory(written.directory))
    assert (found.run_id, found.job, found.nodes) == ("job7", "beef", 4)


def test_a_log_without_an_end_of_line_is_nobodys(tmp_path):
    written = written_runs.WrittenNode(tmp_path)
    os.truncate(written.path, 0)
    os.truncate(written.path, 1 << 40)
    assert identity_of(RunDirectory(written.directory)).run_id == ""
