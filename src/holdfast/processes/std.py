"""A choice of a process's two standard streams, for all ranks or rank by rank."""

from __future__ import annotations

import re
from enum import IntFlag

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

GRAMMAR = (
    "write 0 (none), 1 (stdout), 2 (stderr) or 3 (both) for every rank, or LOCAL_RANK:N for some, such as 0:1,10:3"
)

_FOR_ALL = re.compile(r"\s*([0-3])\s*")
_FOR_ONE = re.compile(r"\s*([0-9]{1,9})\s*:\s*([0-3])\s*")


class Std(IntFlag):
    """A set of standard streams."""

    NONE = 0
    OUT = 1
    ERR = 2
    ALL = OUT | ERR

    @classmethod
    def from_str(cls, vm: str) -> Std | dict[int, Std]:
        """Parse the text `vm` by the rules of `GRAMMAR`.

        Space around ranks and streams is ignored.

        Raises:
            ValueError: the text does not have that form, or names a rank twice.
        """
        text = vm
        if for_all := _FOR_ALL.fullmatch(text):
            return cls(int(for_all[1]))
        by_rank: dict[int, Std] = {}
        for item in text.split(","):
            for_one = _FOR_ONE.fullmatch(item)
            if for_one is None:
                unread = "" if item == text else f"cannot read {item!r}; "
                raise ValueError(f"{text!r}: {unread}{GRAMMAR}")
            rank = int(for_one[1])
            if rank in by_rank:
                raise ValueError(f"{text!r}: local rank {rank} is given twice; {GRAMMAR}")
            by_rank[rank] = cls(int(for_one[2]))
        return by_rank


def to_map(val_or_map: Std | Mapping[int, Std], local_world_size: int) -> dict[int, Std]:
    """The streams of each local rank from 0 to `local_world_size` - 1.

    A rank that the mapping leaves out gets `Std.NONE`. A key that is no rank of this machine is ignored silently: one
    command line serves machines with different numbers of processes.
    """
    ranks = range(local_world_size)
    if isinstance(val_or_map, int):  # also accepts torch's Std, in code that is partly migrated
        return dict.fromkeys(ranks, Std(val_or_map))
    return {rank: Std(val_or_map.get(rank, Std.NONE)) for rank in ranks}
