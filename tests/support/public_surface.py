"""What a module offers to its callers, as JSON: a program of its own, because importing torch starts threads.

It reads a list of pairs from stdin: modules, and names. For each pair it says what the names are in the first of the
modules that has them. Without names, it takes those that the first module makes public.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import json
import sys

LITERALS = (str, int, float, tuple, type(None))
EMPTY = (None, "", {}, [], (), set(), frozenset())


def public_names(module):
    """`__all__`; without one, the names that were not imported from outside the package."""
    if hasattr(module, "__all__"):
        return sorted(module.__all__)
    package = module.__name__.partition(".")[0]
    return sorted(
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and not inspect.ismodule(value)
        and not isinstance(value, bool)
        and (isinstance(value, (str, int, float)) or str(getattr(value, "__module__", "")).partition(".")[0] == package)
    )


def described(thing):
    if inspect.isclass(thing):
        return of_class(thing)
    if inspect.isroutine(thing):
        return {"kind": "function", "parameters": parameters(thing)}
    if isinstance(thing, LITERALS):
        return {"kind": "constant", "value": repr(thing)}
    if callable(thing) or "typing" in type(thing).__module__ or type(thing).__name__ in ("UnionType", "GenericAlias"):
        return {"kind": "type alias"}
    return {"kind": "instance", "methods": of_class(type(thing))["methods"]}


def of_class(cls):
    found = {"kind": "class", "bases": bases(cls), "methods": methods(cls)}
    if issubclass(cls, enum.Enum):
        found["members"] = {name: repr(member.value) for name, member in cls.__members__.items()}
    elif issubclass(cls, tuple):
        found["fields"] = list(cls._fields)
    else:
        found["parameters"] = parameters(cls)
        found["fields"] = [field.name for field in dataclasses.fields(cls)] if dataclasses.is_dataclass(cls) else []
    return found


def bases(cls):
    return [base.__name__ for base in cls.__mro__[1:] if base.__name__ not in ("object", "Generic", "ABC")]


def methods(cls):
    """Public methods and properties, with those that are inherited from the same package."""
    found = {}
    package = cls.__module__.partition(".")[0]
    for base in reversed(cls.__mro__):
        if base.__module__.partition(".")[0] != package:
            continue
        for name, value in vars(base).items():
            if name.startswith("_") or inspect.isclass(value):
                continue
            if inspect.isdatadescriptor(value):
                found[name] = "attribute"
            elif inspect.isroutine(value) or isinstance(value, (classmethod, staticmethod)):
                found[name] = parameters(getattr(cls, name))
    return found


def parameters(thing):
    """Name, kind and default of each parameter; None if there are none to be told."""
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return None
    return [
        ["" if each.kind.name.startswith("VAR_") else each.name, each.kind.name, default(each)]
        for each in signature.parameters.values()
    ]


def default(parameter):
    value = parameter.default
    if value is parameter.empty:
        return "required"
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if type(value).__name__ == "_HAS_DEFAULT_FACTORY_CLASS" or value in EMPTY:
        return "empty"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"{value:g}"
    return repr(value) if isinstance(value, LITERALS) else type(value).__name__


def main():
    surfaces = {}
    for names_of in json.load(sys.stdin):
        where, names = names_of
        modules = [importlib.import_module(name) for name in where]
        found = {}
        for name in names or public_names(modules[0]):
            holder = next((module for module in modules if hasattr(module, name)), None)
            found[name] = None if holder is None else described(getattr(holder, name))
        surfaces[where[0]] = found
    json.dump(surfaces, sys.stdout)


if __name__ == "__main__":
    main()
