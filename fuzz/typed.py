"""Valid records with extreme values, as hypothesis strategies that are read from msgspec's types.

Mutations rarely make a record that is valid and strange; this makes nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec.inspect as kinds
from hypothesis import reject
from hypothesis import strategies as st

if TYPE_CHECKING:
    from typing import Any

ITEMS_MAX = 6
"""How many items a list has."""

TEXT_MAX_CHARS = 20
BYTES_MAX = 40
I64_MIN, I64_MAX = -(1 << 63), (1 << 63) - 1

NAMES = ("a", "b", "a/1", "a.1", "b.1", "runs/", "é")
"""Short texts of which several are often the same: keys that meet."""


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a type that msgspec knows."""
    return _values(kinds.type_info(kind))


def _values(info: kinds.Type) -> st.SearchStrategy[Any]:  # noqa: PLR0911 - one a kind
    if isinstance(info, kinds.StructType):
        return _records(info.cls, {field.name: _values(field.type) for field in info.fields})
    if isinstance(info, kinds.UnionType):
        return st.one_of([_values(each) for each in info.types])
    if isinstance(info, kinds.VarTupleType):
        least = info.min_length or 0
        most = ITEMS_MAX if info.max_length is None else min(ITEMS_MAX, info.max_length)
        return st.lists(_values(info.item_type), min_size=least, max_size=max(least, most)).map(tuple)
    if isinstance(info, kinds.TupleType):
        return st.tuples(*map(_values, info.item_types))
    if isinstance(info, kinds.DictType):
        return st.dictionaries(_values(info.key_type), _values(info.value_type), max_size=ITEMS_MAX)
    if isinstance(info, kinds.EnumType):
        return st.sampled_from(info.cls)
    return _plain(info)


@st.composite
def _records(draw: st.DrawFn, kind: type[Any], fields: dict[str, st.SearchStrategy[Any]]) -> Any:
    """Records whose values are right one by one; what the record itself refuses is not valid."""
    values = {name: draw(strategy) for name, strategy in fields.items()}
    try:
        return kind(**values)
    except ValueError:
        reject()


def _plain(info: kinds.Type) -> st.SearchStrategy[Any]:  # noqa: PLR0911 - likewise
    if isinstance(info, kinds.BytesType):
        return st.binary(min_size=info.min_length or 0, max_size=_least(info.max_length, info.min_length, BYTES_MAX))
    if isinstance(info, kinds.StrType):
        longest = _least(info.max_length, info.min_length, TEXT_MAX_CHARS)
        texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=info.min_length or 0, max_size=longest)
        return texts if info.max_length or info.min_length else st.sampled_from(NAMES) | texts
    if isinstance(info, kinds.IntType):
        least, most = _bounds(info, I64_MIN, I64_MAX)
        return st.integers(max(least, min(-2, most)), min(most, max(12, least))) | st.integers(least, most)
    if isinstance(info, kinds.FloatType):
        least, most = _bounds(info, None, None)
        usual = [
            value for value in (0.0, 0.1, 1.0, 3.0) if (least or 0.0) <= value <= (value if most is None else most)
        ]
        return st.sampled_from(usual or [least]) | st.floats(least, most)
    if isinstance(info, kinds.BoolType):
        return st.booleans()
    if isinstance(info, kinds.NoneType):
        return st.none()
    if isinstance(info, kinds.AnyType):
        return st.none() | st.booleans() | st.integers(-2, 12) | st.binary(max_size=TEXT_MAX_CHARS)
    raise TypeError(f"no strategy for {info!r}")


def _least(most: int | None, least: int | None, usual: int) -> int:
    return max(least or 0, usual if most is None else min(most, max(usual, least or 0)))


def _bounds(info: kinds.IntType | kinds.FloatType, least: Any, most: Any) -> tuple[Any, Any]:
    """The least and the most that a number may be, both included."""
    step = 1 if isinstance(info, kinds.IntType) else 1e-6
    if info.ge is not None:
        least = info.ge
    if info.gt is not None:
        least = info.gt + step
    if info.le is not None:
        most = info.le
    if info.lt is not None:
        most = info.lt - step
    return least, most
