"""What is measured, by topic: every measurement belongs to one. Tables and pages show them in this order."""

from __future__ import annotations

from typing import NamedTuple


class Topic(NamedTuple):
    """`title` stands above its rows; `about` says in a few sentences what is compared."""

    title: str
    about: str


COLD_START = Topic(
    "Cold start",
    "From the command to its end, or to a line of the workers. The limit starts the same interpreters without a "
    "launcher.",
)
WARM_START = Topic(
    "Warm start",
    "Workers that import torch: holdfast run --warm beside torchrun. The limit is a process that has imported torch "
    "and forks as many.",
)
CRASH = Topic(
    "Crash detection",
    "One worker ends, and its siblings get SIGTERM. The limit is the wake-up of a process that polls a pidfd.",
)
RESTART = Topic(
    "Restart",
    "One worker crashes, and all workers of the next attempt have come to a line. The limit starts as many "
    "interpreters at once.",
)
NODES = Topic(
    "Nodes that are lost and that join",
    "Three nodes of two workers in network namespaces; two nodes suffice. From the fault until all workers run again. "
    "A node that falls silent is given 3 s by holdfast's default. The limit starts as many interpreters at once; "
    "where something ends, it is a pidfd wake-up and a loopback round trip.",
)
RENDEZVOUS = Topic(
    "Rendezvous",
    "From the start of the first agent to the last one that has its rank. The limit is as many connections on "
    "loopback, each answered when all have said a word.",
)
LOGS = Topic(
    "Logs",
    "Four workers print, and every line goes to a file and to the console. The limit is the shell's redirection to "
    "files.",
)
VALUES = Topic(
    "Return values",
    "A function in a spawned process returns 100 MB. The limit is a pickle in memory, or one from a bare interpreter.",
)
WORKER_STORE = Topic(
    "Worker store",
    "The store that workers share, asked by torch's own client, so that only the servers differ. The limit is an echo "
    "over loopback; for a process group, a meeting of bare connections.",
)
FOOTPRINT = Topic(
    "Memory and idleness",
    "What the launcher takes while its workers run. The limit is an interpreter that spawned the same workers.",
)
MACHINE = Topic("The machine", "What nothing on this machine can be faster than, measured in the same run.")

TOPICS = (
    *(COLD_START, WARM_START, CRASH, RESTART, NODES, RENDEZVOUS),
    *(LOGS, VALUES, WORKER_STORE, FOOTPRINT, MACHINE),
)
