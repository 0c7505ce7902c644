"""The stages of a storm: what was done between two times at which the world was seen to run. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.attribution import ENDED, RUNS, STUCK, Stage
from chaos.generations import job_of
from chaos.kinds import FILL_DISK, HITS_ETCD, KINDS, After, Break
from chaos.world import LONG_LEASE_SHARE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from chaos.generations import Key, Numbering
    from chaos.record import Entry

OUTAGE_LEASE_SHARE = 0.6
"""An etcd that takes no writes for this share of a lease may cost nodes their places: workers are told to stop at three
quarters, and the last renewal may have been a second before.
"""


def stages(entries: Sequence[Entry], numbering: Numbering, lease_s: float) -> Iterator[Stage]:
    """Each stage that has an end. The last one has none but the training's."""
    reading = _Reading(entries, lease_s)
    for place, entry in enumerate(entries):
        match entry["event"]:
            case "fault":
                reading.add(entry)
            case "undo":
                reading.undo(entry)
            case "settled":
                key = numbering.seen[place]
                if entry["before"]:
                    yield reading.stage(entry, RUNS, key)
                reading.settle(entry, key)
            case "job_end":
                yield reading.stage(entry, ENDED, reading.next_key)
                reading.forget(entry)
            case "stuck" if reading.is_known:
                yield reading.stage({"stage": "stuck", **entry}, STUCK, reading.next_key)
                reading.forget(entry)


class _Reading:
    """What is known of the stage that has begun."""

    def __init__(self, entries: Sequence[Entry], lease_s: float) -> None:
        self._slow = [entry for entry in entries if entry["event"] == "slow"]
        self._lease_s = lease_s
        self._faults: list[Entry] = []
        self._recent: tuple[Entry, ...] = ()
        self._returning: set[str] = set()
        self._key: Key | None = None
        self._began_s = 0.0
        self._full: set[str] = set()
        self._mute: set[str] = set()  # the nodes whose disk was full at some time of this stage,
        self._mute_at_start: set[str] = set()  # and of the one in which the generation began
        self._is_etcd_hit = False

    @property
    def is_known(self) -> bool:
        return self._key is not None

    @property
    def next_key(self) -> Key:
        assert self._key is not None
        return self._key._replace(number=self._key.number + 1)

    def add(self, fault: Entry) -> None:
        self._faults.append(fault)
        self._is_etcd_hit = self._is_etcd_hit or fault["kind"] in HITS_ETCD
        if fault["kind"] == FILL_DISK:
            self._full.add(fault["node"])
            self._mute.add(fault["node"])

    def undo(self, fault: Entry) -> None:
        if fault["kind"] == FILL_DISK:
            self._full.discard(fault["node"])
        if KINDS[fault["kind"]].after is After.RETURNS:
            self._returning.add(fault["node"])

    def stage(self, entry: Entry, outcome: str, after: Key) -> Stage:
        assert self._key is not None
        return Stage(
            name=entry["stage"],
            outcome=outcome,
            since_s=self._began_s,
            until_s=entry["at_s"],
            faults=tuple(self._faults),
            recent=self._recent,
            returning=frozenset(self._returning),
            before=self._key,
            after=after,
            is_slow=self._is_slow(entry["at_s"]),
            mute=frozenset(self._mute | self._mute_at_start),
        )

    def settle(self, entry: Entry, key: Key) -> None:
        """The world runs: what was done until then is over."""
        if key != self._key:
            self._mute_at_start = self._mute
        may_be_late = [fault for fault in self._faults if Break.LOST in KINDS[fault["kind"]].may]
        self._recent = () if self._key is None or self._key.job != job_of(entry) else tuple(may_be_late)
        self._key = key
        self._begin(entry)

    def forget(self, entry: Entry) -> None:
        """The job is over, or is ended since it is stuck."""
        self._recent = ()
        self._key = None
        self._begin(entry)

    def _begin(self, entry: Entry) -> None:
        self._faults, self._returning, self._mute = [], set(), set(self._full)
        self._is_etcd_hit = False
        self._began_s = entry["at_s"]

    def _is_slow(self, until_s: float) -> bool:
        """Whether the machine was too slow for leases. What was slow just before may be felt when a lease ends."""
        return any(
            entry["began_s"] <= until_s
            and entry["began_s"] + entry["took_s"] >= self._began_s - self._lease_s
            and self._counts(entry)
            for entry in self._slow
        )

    def _counts(self, slow: Entry) -> bool:
        """An etcd that has lost its leader is slow to answer. That is no excuse, unless the witness was woken late or
        etcd itself took longer to elect another than any lease can bear.
        """
        if not self._is_etcd_hit:
            return True
        is_late = slow["late_s"] >= LONG_LEASE_SHARE * self._lease_s
        return bool(is_late or slow["took_s"] >= OUTAGE_LEASE_SHARE * self._lease_s)
