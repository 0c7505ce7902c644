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
    """One kind of fault.

    `breaks` is what must end the generation. `may` is what may end it as well, or instead. A restart is spent on FAILED
    and on nothing else. `backend` is the only one that can have this fault; "" is any. `ends` is what the agents say if
    the fault ends the job, as a pattern; "" means that it must not end the job. A kind that is not `is_covered` shows a
    named limit of what holdfast promises, and happens only if somebody asks for it.
    """

    text: str
    breaks: Break
    after: After
    weight: int
    backend: str = ""
    may: frozenset[Break] = frozenset()
    ends: str = ""
    is_covered: bool = True


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
STOP_KEEPER = "stop_keeper"
CUT_WITHOUT_KEEPER = "cut_without_keeper"
STOP_NODE = "stop_node"
REMOVE_WITHOUT_KEEPER = "remove_without_keeper"
STOP_ETCD = "stop_etcd_leader"
CUT_ETCD = "cut_etcd_leader"
HANG_WORKER = "hang_worker"
FLAP_NODE = "flap_node"
LOSE_HOST = "lose_host"
RETURN_HOST = "return_host"
RESET_LINK = "reset_link"
RESET_ALL = "reset_all"
FILL_ETCD = "fill_etcd"
DELETE_RECORD = "delete_record"

_COMES_AND_GOES = frozenset({Break.LOST, Break.JOINED})
_STORE_GONE = r"store .*(gone|was lost|was replaced|cannot be reached|could not be reached|another|not the one)"
_RECORD_GONE = r"deleted|vanished|removed|missing|gone|no longer|ended before"

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
    KILL_ETCD: Kind("SIGKILL to the leader of etcd, which is brought back", Break.NOTHING, After.STAYS, 2, "etcd"),
    FILL_DISK: Kind("a disk filled: logs, events, error files", Break.NOTHING, After.STAYS, 3),
    REMOVE_NODE: Kind("SIGTERM to an agent", Break.LEFT, After.IDLE, 3),
    ADD_NODE: Kind("an agent started", Break.JOINED, After.OVER, 0),
    STOP_KEEPER: Kind("SIGSTOP to a keeper, SIGCONT seconds later", Break.NOTHING, After.OVER, 2, "", _COMES_AND_GOES),
    CUT_WITHOUT_KEEPER: Kind(
        "a link cut where the keeper is stopped, until the node is lost", Break.LOST, After.RETURNS, 2
    ),
    STOP_NODE: Kind(
        "SIGSTOP to an agent and its keeper until the node is lost, then SIGCONT",
        Break.LOST,
        After.RETURNS,
        2,
        is_covered=False,
    ),
    REMOVE_WITHOUT_KEEPER: Kind(
        "SIGTERM to an agent whose keeper is stopped", Break.LEFT, After.IDLE, 1, "", frozenset({Break.LOST})
    ),
    STOP_ETCD: Kind("SIGSTOP to the leader of etcd, SIGCONT seconds later", Break.NOTHING, After.OVER, 2, "etcd"),
    CUT_ETCD: Kind("the link of etcd's leader cut, mended seconds later", Break.NOTHING, After.OVER, 2, "etcd"),
    HANG_WORKER: Kind("a worker that sleeps outside of any collective, or is stopped", Break.FAILED, After.OVER, 2),
    FLAP_NODE: Kind(
        "an agent that starts and is ended every second, for a while",
        Break.LOST,
        After.OVER,
        1,
        "",
        frozenset({Break.JOINED, Break.LEFT}),
    ),
    LOSE_HOST: Kind("SIGKILL to the agent that serves the store", Break.LOST, After.OVER, 1, "c10d", ends=_STORE_GONE),
    RETURN_HOST: Kind(
        "the same, with an agent that takes its place at once behind a relay",
        Break.LOST,
        After.OVER,
        2,
        "c10d",
        _COMES_AND_GOES,
        _STORE_GONE,
    ),
    RESET_LINK: Kind(
        "a node's connections to the store reset, and no new ones for a while",
        Break.NOTHING,
        After.OVER,
        3,
        "c10d",
        _COMES_AND_GOES,
    ),
    RESET_ALL: Kind("the same for all nodes", Break.NOTHING, After.OVER, 2, "c10d", _COMES_AND_GOES),
    FILL_ETCD: Kind(
        "etcd filled by others until it takes no more writes",
        Break.NOTHING,
        After.OVER,
        1,
        "etcd",
        frozenset({Break.FAILED}),
        "NOSPACE",
    ),
    DELETE_RECORD: Kind(
        "a record of the run deleted by somebody else", Break.LOST, After.OVER, 2, "etcd", _COMES_AND_GOES, _RECORD_GONE
    ),
}

TAKES_A_NODE = frozenset(
    {
        *(KILL_AGENT, STOP_AGENT, CUT_LINK, REMOVE_NODE),
        *(CUT_WITHOUT_KEEPER, STOP_NODE, REMOVE_WITHOUT_KEEPER, FLAP_NODE),
    }
)
"""After these there is a node less, for a while or until it is added again."""

MAY_COINCIDE = frozenset(
    {
        *(KILL_WORKER, FREEZE_WORKER, KILL_AGENT, STOP_AGENT, CUT_LINK, REMOVE_NODE, ADD_NODE),
        *(CUT_WITHOUT_KEEPER, STOP_NODE),
    }
)
"""Two of these may happen at once. The others last, so that everything happens under them, or are over in a moment."""

NEVER_ALONE = frozenset({FREEZE_WORKER})
"""A worker that is stopped for good stops all others, and nobody is to blame it before the hang timeout. It has to be
ended with its generation, though.
"""

MOMENTS = frozenset({STOP_WORKER, PAUSE_AGENT, FLAP_LINK})
"""Over before anybody has to be missed."""

HITS_A_WORKER = frozenset({KILL_WORKER, HANG_WORKER})
"""A worker fails, and the verdict has to name it."""

HITS_ETCD = frozenset({KILL_ETCD, STOP_ETCD, CUT_ETCD})
"""etcd loses its leader and elects another. One of its three members may be away at a time."""

HITS_THE_STORE = frozenset({*HITS_ETCD, LOSE_HOST, RETURN_HOST, RESET_ALL})
"""Not one node is hit, but what all of them meet in."""

LEAVES = frozenset({REMOVE_NODE, REMOVE_WITHOUT_KEEPER})
"""An agent is asked to go."""

KILLS_AN_AGENT = frozenset({KILL_AGENT, LOSE_HOST, RETURN_HOST})
