"""What the project says of its speed is what was measured."""

from __future__ import annotations

import pytest
from benchmarks.__main__ import KEPT, KEPT_PAGE, SCENARIOS, SHOWN_IN
from benchmarks.markdown import filled
from benchmarks.page import page
from benchmarks.results import read, to_text
from benchmarks.topics import TOPICS


@pytest.mark.parametrize("path", SHOWN_IN)
def test_tables_are_those_of_the_kept_results(path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    assert text == filled(text, read(KEPT)), (
        "run: python -m benchmarks --from benchmarks/results/latest.json --into FILE"
    )


def test_the_page_of_the_docs_is_that_of_the_kept_results():
    with open(KEPT_PAGE, encoding="utf-8") as file:
        assert file.read() == page(read(KEPT))


def test_the_kept_results_are_those_of_a_whole_run():
    kept = read(KEPT)
    assert not kept.is_quick
    assert [topic for topic, _ in kept.by_topic()] == list(TOPICS)
    with open(KEPT, encoding="utf-8") as file:
        assert file.read() == to_text(kept)


def test_every_scenario_is_in_the_docs(root):
    text = (root / "docs" / "benchmarks.md").read_text()
    assert [name for name in SCENARIOS if f"`{name}`" not in text] == []
