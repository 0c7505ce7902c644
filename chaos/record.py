"""What was seen of a storm: one list of entries in the order in which they were seen, and the same as JSON lines.

| event | says |
|---|---|
| storm | seed, backend, how many workers each node has, how long a lease is |
| job | a new job begins: the last one has ended, or was stuck |
| agent, agent_end | an agent was started; it ended, with its exit code and the last that it said |
| cleared | an agent that the storm ends, since its job is over or stuck |
| begin, end | a worker said that it began; its connection ended, and the last time of its own clock |
| fact | a line of the training's history |
| fault, undo | something was done; it was undone |
| settled | the world runs again: the generation, and what the stage was |
| job_end | the agents have all given up the job |
| left | processes on a node that should have none |
| stuck | the world did not run again: what was waited for |
| told | an agent's event, read from its events.jsonl when all was over |
| unread | a line of such a file that is no event |
| slow | the witness waited for long, and how much of that it was woken late |
| done | the training's steps |
| result | how the training compares with an undisturbed one |
"""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

Entry = dict[str, Any]


class Record:
    """Entries, from any thread."""

    def __init__(self, path: Path) -> None:
        self.entries: list[Entry] = []
        self._file = path.open("w")
        self._lock = threading.Lock()

    def add(self, event: str, **facts: Any) -> Entry:
        entry = {"event": event, "at_s": round(time.monotonic(), 3), **facts}
        with self._lock:
            self.entries.append(entry)
            self._file.write(json.dumps(entry) + "\n")
            self._file.flush()
        return entry

    def close(self) -> None:
        self._file.close()


def read(lines: Iterable[str]) -> list[Entry]:
    """The entries that a record was written with."""
    return [json.loads(line) for line in lines]
