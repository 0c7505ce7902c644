"""Valid records with extreme values, as hypothesis strategies that are read from msgspec's types.

Mutations rarely make a record that is valid and strange; this makes nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec.inspect as kinds
from hypothesis import strategies as st

if TYPE_CHECKING:
    from typing import Any

ITEMS_MAX = 6
"""How many items a list has."""

I64_MIN, I64_MAX = -(1 << 63), (1 << 63) - 1

NAMES = ("a", "b", "a/1", "a.1", "b.1", "runs/", "é")
"""Short texts of which several are often the same: keys that meet."""


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a type that msgspec knows."""
    return _values(kinds.type_info(kind))


def _values(info: kinds.Type) -> st.SearchStrategy[Any]:  # noqa: PLR0911 - one a kind
    if isinstance(info, kinds.StructType):
        fields = {field.name: _values(field.type) for field in info.fields}
        return st.builds(info.cls, **fields)
    if isinstance(info, kinds.UnionType):
        return st.one_of([_values(each) for each in info.types])
    if isinstance(info, kinds.VarTupleType):
        return st.lists(_values(info.item_type), max_size=ITEMS_MAX).map(tuple)
    if isinstance(info, kinds.TupleType):
        return st.tuples(*map(_values, info.item_types))
    if isinstance(info, kinds.DictType):
        return st.dictionaries(_values(info.key_type), _values(info.value_type), max_size=ITEMS_MAX)
    if isinstance(info, kinds.EnumType):
        return st.sampled_from(info.cls)
    return _plain(info)


def _plain(info: kinds.Type) -> st.SearchStrategy[Any]:  # noqa: PLR0911 - likewise
    if isinstance(info, kinds.BytesType):
        return st.binary(min_size=info.min_length or 0, max_size=40 if info.max_length is None else info.max_length)
    if isinstance(info, kinds.StrType):
        return st.sampled_from(NAMES) | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
    if isinstance(info, kinds.IntType):
        return st.integers(-2, 12) | st.integers(I64_MIN, I64_MAX)
    if isinstance(info, kinds.FloatType):
        return st.sampled_from((0.0, 0.1, 1.0, 3.0)) | st.floats()
    if isinstance(info, kinds.BoolType):
        return st.booleans()
    if isinstance(info, kinds.NoneType):
        return st.none()
    if isinstance(info, kinds.AnyType):
        return st.none() | st.booleans() | st.integers(-2, 12) | st.binary(max_size=20)
    raise TypeError(f"no strategy for {info!r}")
