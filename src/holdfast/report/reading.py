"""From the fields of a line to the event that `holdfast.events.schema` has for it. Reading never fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.errors.failure import Failure
from holdfast.events.schema import EVENTS, PREFIX, field_types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from holdfast.events.schema import RunEvent
    from holdfast.report.entries import Facts

_BY_NAME = {f"{PREFIX}{event.NAME}": event for event in EVENTS}

_READERS: dict[str, Callable[[Facts, str, Any], Any]] = {
    "str": lambda facts, name, _: facts.text(name),
    "int": lambda facts, name, default: facts.integer(name, default),
    "float": lambda facts, name, default: facts.number(name, default),
    "int | None": lambda facts, name, _: facts.integer_or_none(name),
    "float | None": lambda facts, name, _: facts.number_or_none(name),
    "tuple[int, ...]": lambda facts, name, _: tuple(facts.integers(name)),
    "tuple[str, ...]": lambda facts, name, _: tuple(facts.texts(name)),
    "Failure": lambda facts, name, _: failure_in(facts.facts(name)),
}
"""How a value of each type in the schema is read. A value of another type counts as missing."""

_FAILURE_TYPES = {name: str(Failure.__annotations__[name]) for name in Failure.FACTS}


def event_in(name: str, details: Facts) -> RunEvent | None:
    """The event of this name with these details; None if this version does not know it."""
    kind = _BY_NAME.get(name)
    if kind is None:
        return None
    types = field_types(kind)
    fields = _read(kind, types, (field for field in types if field != kind.INLINE), details)
    if kind.INLINE:
        fields[kind.INLINE] = failure_in(details)
    return kind(**fields)


def failure_in(facts: Facts) -> Failure:
    """The failure with these facts."""
    return Failure(**_read(Failure, _FAILURE_TYPES, Failure.FACTS, facts))


def _read(kind: type, types: dict[str, str], names: Iterable[str], facts: Facts) -> dict[str, Any]:
    return {name: _READERS[types[name]](facts, name, getattr(kind, name, None)) for name in names}
