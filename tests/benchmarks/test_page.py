"""The page with plots."""

from __future__ import annotations

import shutil
import struct
import subprocess
from html.parser import HTMLParser

import pytest
from benchmarks.page import page
from benchmarks.plots import Axis, tick_label

VOID = {"meta", "br"}


class Reader(HTMLParser):
    """Fails on tags that are not closed in order, and keeps the text and what would be fetched."""

    def __init__(self):
        super().__init__()
        self.open, self.text, self.fetched = [], "", []

    def handle_starttag(self, tag, attrs):
        self.fetched += [value for name, value in attrs if name in ("src", "href", "srcset")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.fetched += [value for name, value in attrs if name in ("src", "href", "srcset")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def read(text):
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    return reader


def test_the_page_is_whole_and_fetches_nothing(results):
    reader = read(page(results))
    assert reader.fetched == []
    assert "script" not in page(results)
    assert "url(" not in page(results)


def test_the_page_has_all_measurements_and_the_machine(results):
    text = read(page(results)).text
    for each in results.measurements:
        assert each.what in text
    assert "2 of <Made & Up>" in text
    assert "1 of 4 targets missed" in text
    assert "> 20 s" in text


def test_a_quick_run_says_so(results):
    assert "A quick run" in page(results._replace(is_quick=True))
    assert "A quick run" not in page(results)


def test_nothing_measured_is_a_page_too(results):
    read(page(results._replace(measurements=[])))


def test_nothing_but_zeros_has_values_and_no_plot(results):
    zeros = [each for each in results.measurements if each.what == "lines lost"]
    text = page(results._replace(measurements=zeros))
    assert 'role="img"' not in text
    assert "holdfast 0 lines" in text


def test_an_axis_has_all_values_on_it_in_their_order():
    values = [0.0, 0.002, 0.5, 30.0]
    axis = Axis.over(values)
    places = [axis.at(value) for value in values]
    assert places == sorted(places)
    assert len(set(places)) == 4
    assert 0 <= places[0] < places[-1] <= 100
    assert [tick for tick in axis.ticks() if not axis.low <= tick <= axis.high] == []


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.0), (1.0, 3.0), (0.001, 60.0), (1e-6, 1e9)])
def test_an_axis_has_a_few_ticks(low, high):
    assert 1 <= len(Axis.over([low, high]).ticks()) <= 7


def test_ticks_of_time_have_the_unit_that_fits():
    labels = [tick_label(value, "time") for value in (30.0, 1.0, 0.5, 0.001, 2e-5, 1e-8)]
    assert labels == ["30 s", "1 s", "500 ms", "1 ms", "20 µs", "10 ns"]
    assert tick_label(20000.0, "ops/s") == "20,000 ops/s"


@pytest.mark.chromium
def test_a_browser_paints_the_page_wide_narrow_light_and_dark(results, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(page(results))
    shots = set()
    for scheme, size in (("1", (1200, 900)), ("0", (500, 900))):
        shot = tmp_path / f"{scheme}.png"
        command = [
            *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
            *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--no-first-run"),
            *("--hide-scrollbars", f"--user-data-dir={tmp_path / 'profile'}"),
            *(f"--blink-settings=preferredColorScheme={scheme}", f"--window-size={size[0]},{size[1]}"),
            *(f"--screenshot={shot}", f"file://{path}"),
        ]
        try:
            subprocess.run(command, capture_output=True, timeout=120, check=True)
        finally:
            shutil.rmtree(tmp_path / "profile", ignore_errors=True)
        image = shot.read_bytes()
        assert struct.unpack(">II", image[16:24]) == size
        assert len(image) > 20_000  # a page with something on it
        shots.add(image)
    assert len(shots) == 2
