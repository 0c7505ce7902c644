"""The table in the terminal, and the tables of Markdown."""

from __future__ import annotations

import pytest
from benchmarks.markdown import NoPlaceError, everything, filled, headlines
from benchmarks.table import table
from benchmarks.words import number


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"),
        (3.0, "3"),
        (0.04567, "0.0457"),
        (1.2345, "1.23"),
        (123.45, "123"),
        (0.00012, "0.000120"),
        (2e5, "200000"),
    ],
)
def test_numbers_have_three_digits_and_no_exponent(value, shown):
    assert number(value) == shown


def cells(line):
    return [cell for cell in line.split("  ") if cell.strip()]


def row_of(text, start):
    return [cell.strip() for cell in cells(next(line for line in text.splitlines() if line.startswith(start)))]


def test_the_table_has_a_block_for_each_topic(results):
    lines = table(results).splitlines()
    assert [line.strip("─ ") for line in lines if line.startswith("──")] == [
        topic.title for topic, _ in results.by_topic()
    ]
    assert cells(lines[0])[-1] == "target"
    assert max(map(len, lines)) <= 160


def test_a_row_has_medians_quartiles_ratio_limit_and_verdict(results):
    assert row_of(table(results), "a job of 2") == [
        *("a job of 2", "ms", "90 (85…95)", "1800 (1400…2150)"),
        *("0.05", "40 least", "≤ 0.1 of torchrun ok"),
    ]


def test_what_did_not_happen_is_shown_as_that(results):
    assert row_of(table(results), "a link is cut") == [
        *("a link is cut | mended", "s", "3.1 (3.05…3.15)", "> 20", "< 0.152", "≤ 0.5 MISSED"),
    ]


def test_a_second_target_has_a_line_of_its_own(results):
    lines = table(results).splitlines()
    at = next(place for place, line in enumerate(lines) if line.startswith("tee"))
    assert lines[at].endswith("≥ 0.7 of shell: 0.9 ok")
    assert lines[at + 1].split() == ["≥", "1", "of", "torchrun", "ok"]


def test_a_limit_alone_is_a_row_too(results):
    assert row_of(table(results), "fork") == ["fork", "ms", "0.6 fork"]


def test_the_headlines_are_one_table(results):
    rows = [line for line in headlines(results).splitlines() if line.startswith("|")]
    assert rows[2] == "| **Cold start** |  |  |  |  |  |"
    assert rows[3] == "| a job of 2, ms | 90 | 1800 | 0.05 | 40 least | ≤ 0.1 of torchrun ok |"
    assert rows[5] == "| a link is cut \\| mended, s | 3.1 | > 20 | < 0.152 |  | ≤ 0.5 MISSED |"
    assert len(rows) == 6


def test_everything_has_a_section_for_each_topic(results):
    text = everything(results)
    assert text.count("### ") == len(results.by_topic())
    for each in results.measurements:
        assert each.what.replace("|", "\\|") in text


def test_only_what_is_between_the_marks_of_a_text_is_written_anew(results):
    text = "above\n<!-- benchmark: headlines -->\nwhat was there\n<!-- benchmark: end -->\nbelow\n"
    new = filled(text, results)
    assert new.startswith("above\n<!-- benchmark: headlines -->\n")
    assert new.endswith("<!-- benchmark: end -->\nbelow\n")
    assert "what was there" not in new
    assert "a job of 2" in new
    assert filled(new, results) == new


def test_a_text_may_have_both_tables(results):
    marks = "<!-- benchmark: {} -->\n<!-- benchmark: end -->\n"
    new = filled(marks.format("headlines") + "between\n" + marks.format("everything"), results)
    assert new.count("benchmark: end") == 2
    assert new.index("benchmark: headlines") < new.index("between") < new.index("### Rendezvous")


def test_a_text_without_a_place_is_refused(results):
    with pytest.raises(NoPlaceError, match="benchmark: headlines"):
        filled("nothing here\n", results)
