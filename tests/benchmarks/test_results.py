"""The file of results."""

from __future__ import annotations

import json

import pytest
from benchmarks.results import Results, ResultsError, from_text, read, to_text


def everything(measurement):
    return vars(measurement)


def test_results_come_back_as_they_were(results):
    again = from_text(to_text(results))
    assert again._replace(measurements=[]) == results._replace(measurements=[])
    assert list(map(everything, again.measurements)) == list(map(everything, results.measurements))
    assert to_text(again) == to_text(results)


def test_the_file_is_json_with_a_line_for_each_measurement(results):
    text = to_text(results)
    document = json.loads(text)
    assert [row["what"] for row in document["measurements"]] == [each.what for each in results.measurements]
    assert document["measurements"][0]["targets"][0]["is_met"] is True
    assert len(text.splitlines()) == len(results.measurements) + 4


def test_samples_have_as_many_digits_as_clocks_are_good_for(results):
    results.measurements[0].samples["holdfast"] = [[1.23456789], [123456789.0]]
    assert from_text(to_text(results)).measurements[0].samples["holdfast"] == [[1.23457], [123457000.0]]


def test_topics_are_in_order_and_only_those_that_have_something(results):
    assert [topic.title for topic, _ in results.by_topic()] == [
        *("Cold start", "Nodes that are lost and that join", "Rendezvous"),
        *("Logs", "Memory and idleness", "The machine"),
    ]
    assert Results({}, False, []).by_topic() == []


def test_missed_targets_are_counted(results):
    assert results.missed() == 1


@pytest.mark.parametrize(
    "text",
    ["", "no", "[]", "{}", '{"machine": {}, "quick": false, "measurements": [{}]}', '{"measurements": 1}', "null"],
)
def test_what_is_no_file_of_results_is_refused(text, tmp_path):
    with pytest.raises(ResultsError, match="not a file of results"):
        from_text(text)
    (tmp_path / "file").write_text(text)
    with pytest.raises(ResultsError, match=f"^{tmp_path}/file: "):
        read(str(tmp_path / "file"))


def test_a_contestant_without_samples_is_refused(results):
    text = to_text(results).replace("[[0.5], [0.7]]", "[[], [0.7]]")
    with pytest.raises(ResultsError, match="fork has a contestant without samples"):
        from_text(text)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(ResultsError, match="nothing: No such file"):
        read(str(tmp_path / "nothing"))
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ResultsError, match="binary: "):
        read(str(tmp_path / "binary"))
