"""The page, as a browser has it."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import sys
from html.parser import HTMLParser

import pytest
import written_runs

from holdfast.report import find_run, report_page

EVERY_RUN = [
    written_runs.success,
    written_runs.restarted,
    written_runs.four_nodes,
    written_runs.three_machines,
    written_runs.two_told,
    written_runs.hang,
    written_runs.killed_agent,
    written_runs.without_attempt,
    written_runs.torch_only,
]
VOID = {"meta"}


class Elements(HTMLParser):
    """Checks that elements are closed in order, and keeps them with their attributes."""

    def __init__(self, page):
        super().__init__()
        self.found, self._open = [], []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in VOID and tag != "br":
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag


@pytest.mark.parametrize("write", EVERY_RUN)
def test_a_page_is_well_formed_and_needs_nothing_else(write, tmp_path):
    write(tmp_path)
    page = report_page(find_run(str(tmp_path)))
    tags = Elements(page).found
    assert not {tag for tag, _ in tags} & {"script", "link", "img", "iframe", "a", "object"}
    assert not [
        attrs for _, attrs in tags if {"src", "href"} & set(attrs) or any(name.startswith("on") for name in attrs)
    ]
    assert "http://" not in page
    assert "https://" not in page
    assert len(page) < 100_000


def test_the_picture_has_a_row_for_each_node_and_tells_the_cause_from_its_victims(tmp_path):
    written_runs.four_nodes(tmp_path)
    page = report_page(find_run(str(tmp_path)))
    assert len(re.findall(r"<text [^>]*>node \d gpu-host-\d · ✕ failed</text>", page)) == 4
    picture = page[page.index('<svg class="timeline"') : page.index("<h2>Time of all")]
    drawn = picture[: picture.index('<ul class="legend">')]
    assert drawn.count('class="cause"') == 2
    assert drawn.count('class="victim"') == 6


def test_a_page_of_a_thousand_attempts_is_bounded(tmp_path):
    written_runs.many_attempts(tmp_path, 1000)
    page = report_page(find_run(str(tmp_path)))
    Elements(page)
    assert len(page) < 400_000
    assert "901 attempts are left out here" in page


def test_what_a_log_says_is_text_and_never_markup(tmp_path):
    hostile = "</pre></title><script>alert(1)</script><img src=x onerror=alert(1)>\"'&\x1b[2J\u202e"
    run = written_runs.WrittenNode(tmp_path, host=hostile, run_id="job7", command=[hostile], version=hostile)
    run.starts()
    values = dict.fromkeys(("host", "message", "where", "exception", "log_file", "kind"), hostile)
    run.fails(0, **values).stacks(hostile, [1]).ends("failed", 5, hostile)
    run.event("stacks", attempt=1, reason=hostile, file=hostile, outliers=[0])
    run.verdict(run.failure(0, **values), hostile, hostile).done("failed", hostile)
    page = report_page(find_run(str(tmp_path)))
    tags = {tag for tag, _ in Elements(page).found}
    assert not tags & {"script", "img"}
    assert "&lt;script&gt;" in page
    assert all(char.isprintable() or char == "\n" for char in page)


def chromium(tmp_path, *flags):
    """Run the browser on a profile of its own; what it writes to stdout."""
    command = [
        *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
        *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--no-first-run"),
        *("--hide-scrollbars", f"--user-data-dir={tmp_path / 'profile'}", *flags),
    ]
    try:
        ran = subprocess.run(command, capture_output=True, timeout=120, check=False)
    finally:
        shutil.rmtree(tmp_path / "profile", ignore_errors=True)
    assert ran.returncode == 0, ran.stderr.decode(errors="replace")
    return ran.stdout.decode()


def pixels_wide_and_high(png):
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", png[16:24])


@pytest.fixture
def page_file(tmp_path):
    written_runs.four_nodes(tmp_path / "logs")
    path = tmp_path / "report.html"
    path.write_text(report_page(find_run(str(tmp_path / "logs"))))
    return path


@pytest.mark.chromium
def test_a_browser_shows_the_verdict_the_timeline_and_the_details(page_file, tmp_path):
    dom = chromium(tmp_path, "--dump-dom", f"file://{page_file}")
    for part in ("Why it failed", "rank 5 on gpu-host-2", "What to do:", "<h2>Timeline</h2>", "Generation 2"):
        assert part in dom
    assert dom.count("<svg") == report_page(find_run(str(tmp_path / "logs"))).count("<svg")


@pytest.mark.chromium
@pytest.mark.parametrize("size", [(1200, 900), (500, 900)])
def test_a_browser_paints_the_page_in_light_and_in_dark(size, page_file, tmp_path):
    shots = []
    for scheme in ("1", "0"):  # light, dark
        shot = tmp_path / f"{scheme}.png"
        chromium(
            tmp_path,
            f"--blink-settings=preferredColorScheme={scheme}",
            f"--window-size={size[0]},{size[1]}",
            f"--screenshot={shot}",
            f"file://{page_file}",
        )
        shots.append(shot.read_bytes())
        assert pixels_wide_and_high(shots[-1]) == size
        assert len(shots[-1]) > 20_000  # a page with something on it
    assert shots[0] != shots[1]


def test_the_command_writes_the_page_and_says_where(tmp_path):
    directory = written_runs.success(tmp_path).directory
    for words, path in (
        (["--html", directory], os.path.join(directory, "report.html")),
        ([directory, "--html", str(tmp_path / "page")], str(tmp_path / "page")),
    ):
        ran = subprocess.run(
            [sys.executable, "-m", "holdfast", "report", *words], capture_output=True, text=True, check=True, timeout=60
        )
        assert (ran.stdout, ran.stderr) == (f"{path}\n", "")
        with open(path) as file:
            assert "<h1>Run job7</h1>" in file.read()
        assert not [name for name in os.listdir(os.path.dirname(path)) if name.endswith(".part")]
