"""Records that behave like dataclasses and cost nothing to import.

Importing `dataclasses` takes longer than starting a worker with holdfast, and it compiles code for each class. A
`Record` needs neither. `dataclasses.replace`, `asdict` and `fields` still work on it: their callers have imported the
module already.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

    _T = TypeVar("_T")
else:

    def dataclass_transform(**_: bool) -> Callable[[type], type]:
        """For type checkers only."""
        return lambda cls: cls


class _Protocol:
    """An attribute that marks a dataclass for `dataclasses`, built on first access."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, record: object, cls: type) -> Any:
        import dataclasses

        names, defaults = _fields_of(cls)
        made = [(name, "Any", dataclasses.field(default=defaults.get(name, dataclasses.MISSING))) for name in names]
        made += [(name, "Any", dataclasses.field(init=False)) for name in getattr(cls, "DERIVED_FIELDS", ())]
        # Build a dataclass with the same fields: the module has no other way to make them.
        twin = dataclasses.make_dataclass(
            cls.__name__,
            made,
            eq=False,
            init=False,
            kw_only=True,
            repr=False,
        )
        return getattr(twin, self._name)


class _Signature:
    """The signature of a record's constructor for `inspect` and `help`, built on first access."""

    def __get__(self, record: object, cls: type[_Fielded]) -> Any:
        from inspect import Parameter, Signature

        kinds: dict[str, Any] = {}
        for base in reversed(cls.__mro__):
            kinds.update(vars(base).get("__annotations__", {}))
        return Signature(
            [
                Parameter(
                    name,
                    Parameter.POSITIONAL_OR_KEYWORD,
                    default=cls._defaults.get(name, Parameter.empty),
                    annotation=kinds.get(name, Parameter.empty),
                )
                for name in cls._names
            ]
        )


def like_dataclass(cls: type[_T]) -> type[_T]:
    """Make a class with its own `__init__` pass for a dataclass: each parameter is a field of the same name.

    Keyword-only parameters are no fields. A class may name fields that are no parameters in `DERIVED_FIELDS`.
    """
    for name in ("__dataclass_fields__", "__dataclass_params__"):
        protocol = _Protocol()
        protocol.__set_name__(cls, name)
        setattr(cls, name, protocol)
    return cls


def _fields_of(cls: Any) -> tuple[tuple[str, ...], Mapping[str, Any]]:
    """The names of a class's fields, and the defaults of those that have an immutable one."""
    if issubclass(cls, _Fielded):
        return cls._names, cls._defaults
    code = cls.__init__.__code__
    names = code.co_varnames[1 : code.co_argcount]
    given = cls.__init__.__defaults__ or ()
    return names, dict(zip(names[len(names) - len(given) :], given, strict=True))


class _Fielded:
    """A class whose annotated attributes are its fields, in their order."""

    _names: ClassVar[tuple[str, ...]] = ()
    _defaults: ClassVar[Mapping[str, Any]] = {}
    if not TYPE_CHECKING:
        __dataclass_fields__ = _Protocol()
        __dataclass_params__ = _Protocol()
        __signature__ = _Signature()
        __hash__ = None

    def __init_subclass__(cls, **others: Any) -> None:
        super().__init_subclass__(**others)
        kinds = cls.__dict__.get("__annotations__", {})  # noqa: RUF063 - `inspect` takes longer to import than holdfast
        named = {name: None for name, kind in kinds.items() if not _is_shared(kind)}
        cls._names = (*cls._names, *(name for name in named if name not in cls._names))
        if not TYPE_CHECKING:  # type checkers get it from the decorator
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
            self.__post_init__()

    def __post_init__(self) -> None:
        """Called once the fields are set, as in a dataclass."""

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The names of the fields, in their order."""
        return cls._names

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._names)
        return f"{type(self).__qualname__}({shown})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self._names)


@dataclass_transform()
class Record(_Fielded):
    """A mutable record, like a dataclass."""


class Immutable(_Fielded):
    """Makes the record that it is mixed into immutable. `replace` makes a changed copy."""

    def replace(self, **changes: Any) -> Self:
        """A copy with other values for some fields."""
        return type(self)(**{**{name: getattr(self, name) for name in self._names}, **changes})

    def __hash__(self) -> int:
        return hash((type(self), *(getattr(self, name) for name in self._names)))

    if not TYPE_CHECKING:

        def __setattr__(self, name: str, value: object) -> None:
            raise AttributeError(f"{type(self).__name__} does not change; {name} cannot be set")

        def __delattr__(self, name: str) -> None:
            raise AttributeError(f"{type(self).__name__} does not change; {name} cannot be deleted")


@dataclass_transform(frozen_default=True)
class Frozen(Immutable):
    """An immutable record."""


def _is_shared(kind: object) -> bool:
    """Whether an annotation marks a class variable, which is not a field."""
    return isinstance(kind, str) and kind.startswith("ClassVar")
