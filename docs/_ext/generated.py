"""Puts what is read from the code into pages, and the texts of the project's top directory.

A line ``<!-- generated: limits -->`` in a page is replaced by Markdown before the page is read. On a code host, which
shows pages as they are, such a line is not seen. So a page says in a sentence what a reader would miss there.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import command_line
import pictures
import python_names
import source_facts

if TYPE_CHECKING:
    from collections.abc import Callable

    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

TOP = Path(__file__).parents[2]

TOP_PAGES = {"ARCHITECTURE.md": "architecture.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
"""The texts of the top directory that are pages, too: what a link to them becomes."""

_MARK = re.compile(r"^<!-- generated: (\S+)(?: (\S+))? -->$", re.MULTILINE)
_LINK = re.compile(r"\]\(((?:\.\./)*)([A-Z]+\.md)((?:#[\w-]*)?)\)")


def top_file(name: str) -> str:
    """A text of the top directory as a page beside the others."""
    text = (TOP / name).read_text(encoding="utf-8").replace("](docs/", "](")
    return re.sub(r"\]\(([\w/-]+)\)", _index_of_directory, text)


def _index_of_directory(link: re.Match[str]) -> str:
    is_directory = (TOP / "docs" / link[1]).is_dir()
    return f"]({link[1]}/index.md)" if is_directory else link[0]


MAKERS: dict[str, Callable[..., str]] = {
    "top": top_file,
    "commands": command_line.commands,
    "command": command_line.command,
    "options": command_line.run_options,
    "names": python_names.package,
    "limits": source_facts.limits,
    "events": source_facts.events,
    "kinds": source_facts.failure_kinds,
    "exit-codes": source_facts.exit_codes,
    "settings": source_facts.rendezvous_settings,
    "states": source_facts.transitions,
    "states-picture": pictures.states,
    "fence-picture": pictures.fence,
    "machine-picture": pictures.machine,
}
"""What a mark can ask for: a function that returns Markdown, with the mark's second word if there is one."""


def filled(text: str, docname: str) -> str:
    """The text of a page with its marks replaced, and links to the top directory turned into links between pages."""
    text = _MARK.sub(lambda mark: MAKERS[mark[1]](*filter(None, [mark[2]])), text)
    to_docs = os.path.relpath(".", os.path.dirname(docname) or ".")

    def to_page(link: re.Match[str]) -> str:
        page = TOP_PAGES.get(link[2])
        return link[0] if page is None else f"]({to_docs}/{page}{link[3]})"

    return _LINK.sub(to_page, text)


def _on_source_read(app: Sphinx, docname: str, content: list[str]) -> None:
    del app
    content[0] = filled(content[0], docname)


def _on_outdated(app: Sphinx, env: BuildEnvironment, *changes: set[str]) -> list[str]:
    """A page with a mark is made anew in every build, as the code it is made from may have changed."""
    del app, changes
    pages = ((name, Path(env.doc2path(name))) for name in env.found_docs)
    return [name for name, path in pages if path.exists() and _MARK.search(path.read_text(encoding="utf-8"))]


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", _on_source_read)
    app.connect("env-get-outdated", _on_outdated)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
