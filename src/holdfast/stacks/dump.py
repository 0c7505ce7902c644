"""The stacks of all ranks together, and the files they are kept in."""

from __future__ import annotations

import errno

import msgspec
from msgspec import Struct

from holdfast.decoding import Timestamp, decoded
from holdfast.errors.text import all_encodable, visible
from holdfast.files import is_name, read_regular, write_whole
from holdfast.run_directory import stacks_file
from holdfast.stacks.grouping import Group, group
from holdfast.stacks.judgement import judge
from holdfast.stacks.parse import parse
from holdfast.stacks.wire import RankStacks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from holdfast.run_directory import RunDirectory

TEXTS_MAX_CHARS = 16 << 20
"""How much of all ranks' stacks is kept. Outliers come first."""

FILE_MAX_BYTES = 8 * TEXTS_MAX_CHARS
"""How much of a dump file is read: a character takes up to six bytes there."""

NAME_SHOWN_CHARS = 100
"""How much of an invalid name is shown."""

LEFT_OUT = "# state: left out: there are too many\n"


class Dump(Struct, frozen=True):
    """The stacks of all ranks at one moment.

    Attributes:
        run_id: the run's name.
        reason: why the dump was made.
        timestamp: when it was made, in Unix seconds.
        outliers: the ranks that the others wait for or that are not where most are, the most suspicious first.
        groups: the ranks by place, the smallest group first.
        ranks: the stacks of each rank.
        missing: ranks, or nodes, that sent nothing, and why.
        verdict: which ranks stand out, and why, in one sentence.
        ended: the ranks that have no stacks because their process has ended.
    """

    run_id: str
    reason: str
    timestamp: Timestamp
    outliers: tuple[int, ...]
    groups: tuple[Group, ...]
    ranks: dict[int, RankStacks]
    missing: dict[str, str]
    verdict: str = ""
    ended: tuple[int, ...] = ()


def gather(
    run_id: str,
    reason: str,
    timestamp: float,
    ranks: Mapping[int, RankStacks],
    missing: Mapping[str, str] | None = None,
    ended: Collection[int] = (),
) -> Dump:
    """Combine the stacks of all ranks, of this node and others, into a dump. `ended` are the ranks without stacks
    because their process has ended. Pure.
    """
    parsed = {rank: parse(stacks.text) for rank, stacks in sorted(ranks.items())}
    groups = group(parsed)
    found = judge(parsed, groups, ended, missing or ())
    few = found.blamed
    return Dump(
        *(run_id, reason, timestamp, few, tuple(groups), _bounded(ranks, few), dict(missing or {})),
        verdict=found.sentence,
        ended=tuple(sorted(ended)),
    )


def _bounded(ranks: Mapping[int, RankStacks], few: Sequence[int]) -> dict[int, RankStacks]:
    room = TEXTS_MAX_CHARS
    kept: dict[int, RankStacks] = {}
    for rank in [*few, *sorted(set(ranks) - set(few))]:
        stacks = ranks[rank]
        room -= len(stacks.text)
        kept[rank] = stacks if room >= 0 else RankStacks(stacks.host, stacks.pid, LEFT_OUT)
    return {rank: kept[rank] for rank in sorted(kept)}


def keep(dump: Dump, run: RunDirectory, name: str) -> str:
    """Write a dump to the run's directory, as text for people and as JSON for programs.

    Each file appears complete, the text last. Returns the text's path, relative to the run's directory.

    Raises:
        OSError: it cannot be written, or `name` is not a valid file name.
    """
    from holdfast.stacks.render import render

    if not is_name(name):  # another node may have sent it
        raise OSError(errno.EINVAL, "not a file name", visible(name[:NAME_SHOWN_CHARS]))
    run.make_stacks()
    # Durable: after a hang, an operator may well reboot the machine.
    write_whole(run.stacks(name, "json"), f"{dump_json(dump)}\n".encode(), durable=True)
    write_whole(run.stacks(name, "txt"), render(dump).encode("utf-8", "backslashreplace"), durable=True)
    return stacks_file(name, "txt")


def dump_json(dump: Dump) -> str:
    """A dump as JSON. It is ASCII only, so that it is safe to print on a terminal."""
    import json

    return json.dumps(all_encodable(msgspec.to_builtins(dump, str_keys=True)))


def read(path: str) -> Dump:
    """Read a dump from its JSON file.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not a dump.
    """
    dump = decoded(msgspec.json.Decoder(Dump), read_regular(path, FILE_MAX_BYTES))
    if not all(group.ranks and dump.ranks.keys() >= set(group.ranks) for group in dump.groups):
        raise ValueError("it has groups of unknown ranks")
    return dump
