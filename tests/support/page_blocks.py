"""The blocks of a page in Markdown that a reader would type in, and what it takes to run them.

A line such as `<!-- run: nodes=2, exit=1 -->` directly above a block says what it needs; readers do not see it.

| word | means |
|---|---|
| `nodes=N` | `holdfast run` is started on each of N machines, called node0, node1 and so on |
| `slurm=N` | N machines are a Slurm cluster, and all is typed on the first of them |
| `on=NAME NAME..` | all of it is typed on each of these machines, which may also be called etcd0, etcd1 and so on |
| `exit=N` | the last command ends with this code; 0 unless given |
| `train=NAME` | `train.py` is what tests/support/page_programs/NAME.py is |
| `after-job` | a job was run before, and failed |
| `running-job` | a job runs meanwhile, with the run id job7 |
| `waiting=NODE` | an agent waits on this machine for others, at port 29400 and with another token |
| `background` | the last command goes on while the next blocks are run |
| `instead` | what went on in the background is ended first |
| `waits-for=FILE` | the block is run once there is this file |
| `eventually` | the last command is run again and again until it shows what the page does |
| `notebook` | the Python of the block is typed into a running interpreter |
| `part-of=FILE` | the Python is a part of this file, in which each of its lines is found |
| `prints=TEXT` | the rest is what the Python prints |
| `no, REASON` | it cannot be run here |

A block that begins with `# name.py`, or with `#!` and `# name.sh`, is a file, which a later command uses; if none does,
it is run.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

RUN = ("console", "python", "bash", "sh", "shell")
"""The languages of blocks that a reader would run."""

WORDS = frozenset(
    (
        *("nodes", "slurm", "on", "exit", "train", "after-job", "running-job", "waiting", "background", "instead"),
        *("waits-for", "eventually", "notebook", "part-of", "prints", "no"),
    )
)

_FENCE = re.compile(r"(?P<indent> *)(?P<fence>`{3,}|~{3,})(?P<language>[^`]*)")
_DIRECTIVE = re.compile(r"<!-- run: (.*) -->")
_FILE_NAME = re.compile(r"# ([\w./-]+\.py)\b|#!.*\n# ([\w./-]+\.sh)\b")


class Block(NamedTuple):
    page: str
    line: int
    language: str
    text: str
    needs: dict[str, str]

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def is_run(self) -> bool:
        return "no" not in self.needs

    @property
    def machines(self) -> list[str]:
        """The names of those that the block is run on; none for the reader's own."""
        if "on" in self.needs:
            return self.needs["on"].split()
        return [f"node{number}" for number in range(int(self.needs.get("nodes") or self.needs.get("slurm", "0")))]

    @property
    def file_name(self) -> str:
        """What the block is a file of; "" if it does not say so."""
        found = _FILE_NAME.match(self.text) if self.language in ("python", "bash") else None
        return found[1] or found[2] if found else ""

    @property
    def commands(self) -> list[tuple[str, list[str]]]:
        """What is typed, and the lines that are shown below it."""
        if self.language != "console":
            return [(self.text, [])]
        typed: list[tuple[str, list[str]]] = []
        goes_on = False
        for line in self.text.splitlines():
            if goes_on:
                typed[-1] = (f"{typed[-1][0]}\n{line}", [])
            elif line.startswith("$ "):
                typed.append((line[2:], []))
            else:
                typed[-1][1].append(line)
                continue
            goes_on = line.endswith("\\")
        return typed


def blocks_of(page: Path, root: Path) -> list[Block]:
    """All fenced blocks of a page, whatever their language."""
    found = []
    lines = page.read_text().splitlines()
    name = str(page.relative_to(root))
    number = 0
    while number < len(lines):
        opening = _FENCE.fullmatch(lines[number])
        number += 1
        if opening is None:
            continue
        first = number
        while not lines[number].strip().startswith(opening["fence"]):
            number += 1
        text = "\n".join(line.removeprefix(opening["indent"]) for line in lines[first:number])
        needs = needs_of(lines[first - 2].strip() if first > 1 else "", f"{name}:{first - 1}")
        found.append(Block(name, first, opening["language"].strip(), text + "\n", needs))
        number += 1
    return found


def needs_of(line: str, where: str) -> dict[str, str]:
    directive = _DIRECTIVE.fullmatch(line)
    if directive is None:
        return {}
    words, last, rest = directive[1], "", ""
    if words.startswith("no, "):
        return {"no": words.removeprefix("no, ")}
    if "prints=" in words:
        words, last, rest = words.partition("prints=")
    needs = {word: value for word, _, value in (part.strip().partition("=") for part in words.split(",")) if word}
    if last:
        needs["prints"] = rest
    unknown = needs.keys() - WORDS
    assert not unknown, f"{where}: nobody knows what {', '.join(unknown)} means; see page_blocks"
    return needs
