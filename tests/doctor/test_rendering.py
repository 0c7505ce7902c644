from __future__ import annotations

import json

from holdfast.doctor.finding import Finding, State, Topic, counted, size
from holdfast.doctor.rendering import findings_json, findings_text

NAMES, LIMITS = Topic("names"), Topic("limits")
FINDINGS = [
    NAMES.ok("own-name", "this machine's name, node0, means 10.0.0.1"),
    NAMES.problem("endpoint-name", "the endpoint's name is not known", "check the spelling"),
    LIMITS.warning("open-files", "open files: 256", "raise it: " + "ulimit -n 65536, " * 8),
    LIMITS.note("stack", "stack: unlimited"),
    LIMITS.skipped("core-files", "not looked at"),
]


def test_findings_stand_under_their_topic_with_the_advice_below():
    text = findings_text(FINDINGS[:2] + FINDINGS[3:])
    assert text == (
        "names\n"
        "  ok    this machine's name, node0, means 10.0.0.1\n"
        "  ✗     the endpoint's name is not known\n"
        "        → check the spelling\n"
        "\n"
        "limits\n"
        "  note  stack: unlimited\n"
        "  -     not looked at\n"
        "\n"
        "1 problem (names)"
    )


def test_the_last_line_counts_problems_and_warnings():
    assert findings_text(FINDINGS).splitlines()[-1] == "1 problem (names), 1 warning (limits)"
    assert findings_text(FINDINGS[2:]).splitlines()[-1] == "no problem found, 1 warning (limits)"
    assert findings_text(FINDINGS[:1]).splitlines()[-1] == "no problem found"


def test_lines_fit_the_terminal():
    assert max(map(len, findings_text(FINDINGS, 70).splitlines())) <= 70
    assert max(map(len, findings_text(FINDINGS, 1).splitlines())) <= 60
    assert max(map(len, findings_text(FINDINGS, 1000).splitlines())) <= 120


def test_colours_are_only_there_where_they_are_wanted():
    assert "\x1b" not in findings_text(FINDINGS)
    assert "\x1b[31m✗     \x1b[0m" in findings_text(FINDINGS, colours=True)


def test_a_terminal_without_unicode_gets_other_marks():
    text = findings_text(FINDINGS, encoding="ascii")
    assert text.isascii()
    assert "  x     the endpoint's name is not known\n        -> check the spelling" in text


def test_what_others_said_plays_no_tricks_with_the_terminal():
    assert "\x1b" not in findings_text([NAMES.problem("x", "it says \x1b[2J", "\x07")])


def test_json_is_a_list_with_the_same_keys_for_all():
    read = json.loads(findings_json(FINDINGS))
    assert [list(one) for one in read] == [["topic", "check", "state", "what", "advice"]] * len(FINDINGS)
    assert Finding(**{**read[1], "state": State(read[1]["state"])}) == FINDINGS[1]


def test_sizes_and_counts_are_written_as_people_do():
    assert [size(count) for count in (0, 100, 64 << 20, 3 << 29, 24 << 30, 5 << 40)] == [
        *("0 bytes", "100 bytes", "64 MiB", "1.5 GiB", "24 GiB", "5 TiB")
    ]
    assert (counted(1, "worker"), counted(2, "worker")) == ("1 worker", "2 workers")
