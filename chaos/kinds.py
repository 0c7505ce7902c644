"""The faults of a storm, and what must follow from each: the table that the plan is made from and that verdicts are
compared with.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Break(StrEnum):
    """What ends a generation, as the nodes have to tell it."""

    NOTHING = ""
    FAILED = "failed"
    LOST = "lost"
    JOINED = "joined"
    LEFT = "left"


class After(StrEnum):
    """What becomes of a fault once the world has settled."""

    OVER = "over"
    """Nothing is left to undo."""

    IDLE = "idle"
    """The node has no agent until it is added again."""

    RETURNS = "returns"
    """It is undone at once, and the node comes back by itself."""

    STAYS = "stays"
    """It lasts while other faults happen, and is undone some steps later."""


class Kind(NamedTuple):
    """One kind of fault. `breaks` is what it must be told as; a restart is spent on FAILED and on nothing else."""

    text: str
    breaks: Break
    after: After
    weight: int
    needs_etcd: bool = False


KILL_WORKER = "kill_worker"
STOP_WORKER = "stop_worker"
FREEZE_WORKER = "freeze_worker"
KILL_AGENT = "kill_agent"
STOP_AGENT = "stop_agent"
PAUSE_AGENT = "pause_agent"
CUT_LINK = "cut_link"
FLAP_LINK = "flap_link"
SLOW_LINK = "slow_link"
SHIFT_CLOCK = "shift_clock"
KILL_ETCD = "kill_etcd_leader"
FILL_DISK = "fill_disk"
REMOVE_NODE = "remove_node"
ADD_NODE = "add_node"

KINDS = {
    KILL_WORKER: Kind("SIGKILL to a worker", Break.FAILED, After.OVER, 5),
    STOP_WORKER: Kind("SIGSTOP to a worker, SIGCONT a moment later", Break.NOTHING, After.OVER, 2),
    FREEZE_WORKER: Kind("SIGSTOP to a worker for good, while something else ends", Break.NOTHING, After.OVER, 2),
    KILL_AGENT: Kind("SIGKILL to an agent", Break.LOST, After.IDLE, 4),
    STOP_AGENT: Kind("SIGSTOP to an agent until its workers are fenced, then SIGCONT", Break.LOST, After.RETURNS, 2),
    PAUSE_AGENT: Kind("SIGSTOP to an agent, SIGCONT a moment later", Break.NOTHING, After.OVER, 2),
    CUT_LINK: Kind("a link cut until the node is lost, then mended", Break.LOST, After.RETURNS, 2),
    FLAP_LINK: Kind("a link cut, mended a moment later", Break.NOTHING, After.OVER, 2),
    SLOW_LINK: Kind("a link slowed", Break.NOTHING, After.STAYS, 3),
    SHIFT_CLOCK: Kind("a wall clock shifted", Break.NOTHING, After.STAYS, 2),
    KILL_ETCD: Kind("SIGKILL to the leader of etcd, which is brought back", Break.NOTHING, After.STAYS, 2, True),
    FILL_DISK: Kind("a disk filled: logs, events, error files", Break.NOTHING, After.STAYS, 3),
    REMOVE_NODE: Kind("SIGTERM to an agent", Break.LEFT, After.IDLE, 3),
    ADD_NODE: Kind("an agent started", Break.JOINED, After.OVER, 0),
}

TAKES_A_NODE = frozenset({KILL_AGENT, STOP_AGENT, CUT_LINK, REMOVE_NODE})
"""After these there is a node less, for a while or until it is added again."""

MAY_COINCIDE = frozenset({KILL_WORKER, FREEZE_WORKER, KILL_AGENT, STOP_AGENT, CUT_LINK, REMOVE_NODE, ADD_NODE})
"""Two of these may happen at once. The others last, so that everything happens under them, or are over in a moment."""

NEVER_ALONE = frozenset({FREEZE_WORKER})
"""A worker that is stopped for good stops all others, and nobody is to blame it before the hang timeout. It has to be
ended with its generation, though.
"""

MOMENTS = frozenset({STOP_WORKER, PAUSE_AGENT, FLAP_LINK})
"""Over before anybody has to be missed."""
