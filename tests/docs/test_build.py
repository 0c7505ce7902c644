"""The documentation as it is built: without a warning, with every name of the code, and made from its tables."""

from __future__ import annotations

import html
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.agent.core import RULES
from holdfast.cli.command import COMMANDS
from holdfast.cli.options import GROUPS
from holdfast.errors.kind import FailureKind

ROOT = Path(__file__).parents[2]
OPTIONS = [option for options in GROUPS.values() for option in options]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The pages, built as `make docs` builds them. Their own checks are Sphinx's: links, references, headings."""
    to = tmp_path_factory.mktemp("docs")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "docs", str(to)]
    # What a user has set must not change what the pages say.
    environment = {**os.environ, "PET_NNODES": "7"}
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False, env=environment)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    return to


def page(built, name: str) -> str:
    return (built / f"{name}.html").read_text()


def text(built, name: str) -> str:
    """What a reader of a page sees, without what it is marked up with."""
    main = re.search(r"<article.*</article>", page(built, name), re.DOTALL)[0]
    return html.unescape(re.sub(r"<[^>]*>", "", main)).replace("\u2019", "'")


def test_every_public_name_is_in_the_reference(built):
    from python_names import packages

    for package in packages():
        source = page(built, f"reference/python/{package.removeprefix('holdfast.')}")
        for name in importlib.import_module(package).__all__:
            assert f'id="{package}.{name}"' in source, f"{package}.{name}"


def test_the_reference_shows_types_and_docstrings(built):
    shown = text(built, "reference/python/launcher")
    assert "nproc_per_node: int" in shown
    assert "Run this node" in shown
    assert "_monitor_workers" in text(built, "reference/python/agent")


def test_every_option_is_in_the_command_reference(built):
    shown = text(built, "reference/commands")
    for option in OPTIONS:
        for name in option.names:
            assert name in shown
        assert " ".join(option.help.split()[:6]) in " ".join(shown.split())
    assert "1:1" in shown, "the default of --nnodes, and not that of the environment"


def test_every_command_has_a_section(built):
    source = page(built, "reference/commands")
    for name in COMMANDS:
        assert f'id="holdfast-{name}"' in source, f"docs/reference/commands.md has no ## holdfast {name}"


def test_the_picture_of_the_phases_has_every_way(built):
    shown = page(built, "design")
    table = re.sub(r"\n\s*", "\n", text(built, "design"))
    for (phase, event), (_, leads_to) in RULES.items():
        words = re.sub(r"(?<!^)([A-Z])", r" \1", event.__name__).lower()
        assert f"\n{phase}\n{words}\n{leads_to[0]}" in table, f"{phase}, {words} in the table"
        for to in leads_to:
            way = re.search(rf'data-way="{phase.name}-{to.name}"><title>(.*?)</title>', shown)
            assert to is phase or words in way[1], f"{phase} to {to}"


def test_every_kind_of_failure_is_in_the_reference(built):
    shown = text(built, "reference/failure-kinds")
    assert all(kind.value in shown for kind in FailureKind)


def test_limits_have_values_with_units(built):
    shown = " ".join(text(built, "reference/limits").split())
    assert "wire.FRAME_MAX_BYTES 4 MiB The size limit of a request's body." in shown
    assert "restarts.PAUSE_MAX_S 30 s The longest pause." in shown


def test_events_have_their_fields(built):
    shown = text(built, "reference/events")
    for name in (
        "holdfast.run.started",
        "holdfast.attempt.started",
        "holdfast.failure",
        "holdfast.verdict",
        "waited_s",
    ):
        assert name in shown
    assert "max_rss_kib" in shown, "what a failure tells is taken from the function that puts it together"


def test_nothing_is_fetched_from_the_network(built):
    for path in built.rglob("*.html"):
        assert not re.search(r'(?:src|href)="(?:https?:)?//[^"]*\.(?:js|css|woff2?)', path.read_text()), path


def test_pages_are_markdown_that_a_code_host_shows():
    """Links between pages lead to files, so that they also work where nothing is built."""
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", without_code(path.read_text())):
            if "://" not in target:
                assert (path.parent / target).exists(), f"{path.relative_to(ROOT)}: {target}"


def without_code(markdown: str) -> str:
    return re.sub(r"^```.*?^```$", "", markdown, flags=re.DOTALL | re.MULTILINE)
