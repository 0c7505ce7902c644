"""Records that behave like dataclasses and cost nothing to import.

`dataclasses` takes longer to import than holdfast takes to start a worker, and it compiles code for each class. A
`Record` needs neither. `dataclasses.replace`, `asdict` and `fields` work on it all the same: whoever calls them has
imported the module anyway.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, ClassVar, Self, dataclass_transform
else:

    def dataclass_transform(**_: bool) -> Callable[[type], type]:
        """Only for those who check types."""
        return lambda cls: cls


class _Fields:
    """The attribute by which `dataclasses` knows a dataclass, made when somebody looks."""

    def __get__(self, record: object, cls: type[_Fielded]) -> dict[str, Any]:
        import dataclasses

        defaults = cls._defaults
        # Through a dataclass of the same fields: the module has no other way to make them.
        twin = dataclasses.make_dataclass(
            cls.__name__,
            [
                (name, "Any", dataclasses.field(default=defaults[name]) if name in defaults else dataclasses.field())
                for name in cls._names
            ],
            eq=False,
            kw_only=True,
            init=False,
        )
        return {field.name: field for field in dataclasses.fields(twin)}


class _Fielded:
    """A class whose annotated attributes are its fields, in their order."""

    _names: ClassVar[tuple[str, ...]] = ()
    _defaults: ClassVar[Mapping[str, Any]] = {}
    if not TYPE_CHECKING:
        __dataclass_fields__ = _Fields()
        __hash__ = None

    def __init_subclass__(cls, **others: Any) -> None:
        super().__init_subclass__(**others)
        kinds = cls.__dict__.get("__annotations__", {})  # noqa: RUF063 - `inspect` takes longer to import than we do
        named = {name: None for name, kind in kinds.items() if not _is_shared(kind)}
        cls._names = (*cls._names, *(name for name in named if name not in cls._names))
        if not TYPE_CHECKING:  # checkers know it by the decorator
            cls.__match_args__ = cls._names
        cls._defaults = {**cls._defaults, **{name: cls.__dict__[name] for name in named if name in cls.__dict__}}

    if not TYPE_CHECKING:

        def __init__(self, *values: Any, **named: Any) -> None:
            names = self._names
            if len(values) > len(names):
                raise TypeError(f"{type(self).__name__}() takes {len(names)} arguments, not {len(values)}")
            given = dict(zip(names, values, strict=False))
            for name, value in named.items():
                if name in given or name not in names:
                    wrong = "got several values for" if name in given else "has no"
                    raise TypeError(f"{type(self).__name__}() {wrong} argument {name!r}")
                given[name] = value
            fields = {**self._defaults, **given}
            if len(fields) < len(names):
                missing = ", ".join(name for name in names if name not in fields)
                raise TypeError(f"{type(self).__name__}() needs {missing}")
            self.__dict__.update((name, fields[name]) for name in names)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._names)
        return f"{type(self).__qualname__}({shown})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self._names)


@dataclass_transform()
class Record(_Fielded):
    """A record that can change, like a dataclass."""


@dataclass_transform(frozen_default=True)
class Frozen(_Fielded):
    """A record that does not change. `replace` makes another one."""

    def replace(self, **changes: Any) -> Self:
        """The same with other values for some fields."""
        return type(self)(**{**{name: getattr(self, name) for name in self._names}, **changes})

    def __hash__(self) -> int:
        return hash((type(self), *(getattr(self, name) for name in self._names)))

    if not TYPE_CHECKING:

        def __setattr__(self, name: str, value: object) -> None:
            raise AttributeError(f"{type(self).__name__} does not change; {name} cannot be set")

        def __delattr__(self, name: str) -> None:
            raise AttributeError(f"{type(self).__name__} does not change; {name} cannot be deleted")


def _is_shared(kind: object) -> bool:
    """Whether an annotation says that the attribute is the class's and no field."""
    return isinstance(kind, str) and kind.startswith("ClassVar")
