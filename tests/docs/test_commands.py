"""What the README and the docs tell a reader to type is typed here, page by page.

tests/support/page_blocks.py says how a block is told what it needs, page_output.py how output is compared.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from page_blocks import RUN, blocks_of, needs_of
from page_output import missing_line
from page_session import in_own_namespaces

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
BLOCKS = [block for page in PAGES for block in blocks_of(page, ROOT)]


def parameter(page):
    """A page with what it needs of the machine besides; None if there is nothing to run."""
    blocks = [block for block in blocks_of(page, ROOT) if block.is_run and block.language in RUN]
    marks = [pytest.mark.slurm] if any("slurm" in block.needs for block in blocks) else []
    return pytest.param(page, id=str(page.relative_to(ROOT)), marks=marks) if blocks else None


@pytest.mark.root
@pytest.mark.torch
@pytest.mark.etcd
@pytest.mark.parametrize("page", list(filter(None, map(parameter, PAGES))))
def test_every_command_of_a_page_does_what_the_page_says(page, tmp_path):
    ran = in_own_namespaces(page, tmp_path)
    print(ran.stdout)
    assert ran.returncode == 0, ran.stderr


def test_the_blocks_that_cannot_be_run_here_are_known():
    not_run = {(block.page, block.needs["no"]) for block in BLOCKS if not block.is_run}
    assert not_run == NOT_RUN


NOT_RUN = {
    ("README.md", "the tests do not run themselves"),
    ("docs/other-launchers.md", "the tests do not install TorchX"),
}
"""All of them: a page that has another one is not tested as it should be."""


def test_no_block_is_forgotten():
    """A command that stands in a block without a language would be run by nobody."""
    for block in BLOCKS:
        if block.language not in RUN:
            assert not any(line.startswith("$ ") for line in block.text.splitlines()), f"{block.name}: write ```console"
        elif block.language == "console":
            assert block.text.startswith("$ "), f"{block.name}: a console begins with a command"
            if block.is_run:
                assert "pip install" not in block.text, f"{block.name}: nothing is installed by a test"


def test_a_block_that_says_what_it_needs(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("<!-- run: nodes=2, exit=1 -->\n```console\n$ a \\\n    b\nshown\n$ c\n```\n\n```\npicture\n```\n")
    first, second = blocks_of(page, tmp_path)
    assert (first.name, first.needs) == ("page.md:2", {"nodes": "2", "exit": "1"})
    assert first.commands == [("a \\\n    b", ["shown"]), ("c", [])]
    assert second.language not in RUN


def test_a_block_that_cannot_be_run_says_why():
    assert needs_of("<!-- run: no, it needs a cluster, and time -->", "here") == {"no": "it needs a cluster, and time"}


def test_a_need_that_nobody_knows_is_a_mistake_of_the_page():
    with pytest.raises(AssertionError, match=r"page\.md:1: nobody knows what nodez means"):
        needs_of("<!-- run: nodez=2 -->", "page.md:1")


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("exitcode 1 (pid: 4242)", "exitcode 1 (pid: 77)"),
        ("where: /srv/train.py:12 in step", "where: /tmp/x/train.py:9 in step"),
        ("started  ...", "started  at noon"),
        ("host node7", "host node1"),
        ("ran 285 ms  2.4 s", "ran 1.5 s  190 ms"),
        ("one", "zero\none\ntwo"),
    ],
)
def test_output_that_differs_in_what_nobody_can_know_is_the_same(shown, printed):
    assert missing_line([shown], printed) is None


@pytest.mark.parametrize(("shown", "printed"), [("one", "one more"), ("/srv/a.py", "/srv/b.py"), ("b", "")])
def test_output_that_differs_otherwise_does_not(shown, printed):
    assert missing_line([shown], printed) == shown


def test_lines_in_another_order_are_not_the_same():
    assert missing_line(["one", "two"], "two\none") == "two"


def test_lines_of_several_workers_may_run_together():
    shown = ["worker ... of 2", "worker ... of 2"]
    assert missing_line(shown, "worker 1 of 2worker 0 of 2\n\n") is None
    assert missing_line(shown, "worker 1 of 2\n") == shown[1]
