"""What a template says to the agent: its process has run the imports of somebody's program.

Promises: nothing is raised. The texts are not longer than the bytes. A process identifier is a number above 0, or none.
A message that is written is read as it was written.
"""

from __future__ import annotations

from fuzz.oracles import promise
from fuzz.shapes import WORDS
from fuzz.target import Target
from holdfast.warm.answers import MESSAGE_MAX_BYTES, decode, encode, process_in

PID_MAX = 10**10

MESSAGES: tuple[dict[str, object], ...] = (
    {"importing": "torch"},
    {"problem": "an import has started a thread"},
    {"modules": 812, "left": "train.py:12: an import behind a condition"},
    {"stale": "/srv/train.py"},
    {"fresh": True},
    {"keeper": 77},
    {"refused": "it cannot be forked: Cannot allocate memory"},
)


def _run(data: bytes) -> None:
    said = decode(data[:MESSAGE_MAX_BYTES])
    promise(sum(map(len, [*said, *said.values()])) <= len(data), "there is more than was said")
    again = decode(encode(said))
    promise(again == said or len(encode(said)) == MESSAGE_MAX_BYTES, "a message is another one when it is read again")
    promise(0 <= process_in(said.get("keeper", "")) < PID_MAX, "a process identifier that is none")


def _seeds() -> list[bytes]:
    return [encode(message) for message in MESSAGES]


TARGETS = (Target("warm", _run, _seeds, WORDS),)
