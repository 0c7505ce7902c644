"""What installed packages offer by name, as entry points."""

from __future__ import annotations

from holdfast.errors.tree import InputError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any, TypeVar

    Made = TypeVar("Made")


def load_plugin(
    what: str, name: str, groups: Sequence[str], built_in: Iterable[str], make: Callable[[Any], Made]
) -> Made:
    """What `make` makes of the entry point `name`, looked for in `groups`, of which the first that has it wins.

    Raises:
        InputError: nobody offers that name, or it cannot be loaded. The message begins with `what` and the name, and
            lists what there is, `built_in` included.
    """
    from importlib.metadata import entry_points

    found = {entry.name: entry for group in reversed(groups) for entry in entry_points(group=group)}
    if name not in found:
        there = ", ".join(sorted({*built_in, *found}))
        raise InputError(
            f"{what} {name!r}: there is none of that name; there are {there} "
            f"(others are entry points of {' and '.join(groups)})"
        )
    try:
        return make(found[name].load())
    except Exception as error:
        raise InputError(f"{what} {name!r} ({found[name].value}) cannot be loaded: {error!r}") from error
