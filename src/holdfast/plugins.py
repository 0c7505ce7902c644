"""Plug-ins: entry points of installed packages, found by name."""

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
    """Load the entry point `name` from the first of `groups` that has it, and return what `make` makes of it.

    Raises:
        InputError: no package has that entry point, or it cannot be loaded. The message begins with `what` and the
            name. For an unknown name it lists the known ones, `built_in` included.
    """
    from importlib.metadata import entry_points

    found = {entry.name: entry for group in reversed(groups) for entry in entry_points(group=group)}
    if name not in found:
        there = ", ".join(sorted({*built_in, *found}))
        raise InputError(
            f"{what} {name!r}: unknown name; choose from {there} (others are entry points of {' and '.join(groups)})"
        )
    try:
        return make(found[name].load())
    except Exception as error:
        raise InputError(f"{what} {name!r} ({found[name].value}) cannot be loaded: {error!r}") from error
