"""Functions that another process cannot import: from notebooks or interactive sessions, lambdas, nested functions.

cloudpickle sends them as code, with their arguments.
"""

from __future__ import annotations

import pickle
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


_KNOWN = 4
"""The length of an entry of `linecache` with lines. The second item is None if they are in no file."""


def needs_value(function: Callable[..., Any]) -> bool:
    """Whether a fresh interpreter cannot find `function` by name."""
    # A partial, recognised without importing functools.
    while hasattr(function, "func") and hasattr(function, "keywords"):
        function = function.func
    named: Any = function if hasattr(function, "__qualname__") else type(function)
    if "<" in named.__qualname__:  # <lambda>, or <locals> of another function
        return True
    if named.__module__ != "__main__":
        return False
    main = sys.modules["__main__"]
    return getattr(main, "__file__", None) is None and getattr(main, "__spec__", None) is None


class ByValue:
    """When pickled, becomes a copy of the object that it holds."""

    def __init__(self, held: object) -> None:
        self._held = held

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[bytes, dict[str, list[str]]]]:
        data = dumps(self._held)
        return _loaded, (data, _sources(data))


def _sources(data: bytes) -> dict[str, list[str]]:
    """The lines of the cells that the code in `data` is from, for tracebacks. Only this process knows them."""
    linecache = sys.modules.get("linecache")  # what has registered a cell has imported it
    if linecache is None:
        return {}
    return {
        name: entry[2]
        for name, entry in list(linecache.cache.items())
        if len(entry) == _KNOWN and entry[1] is None and name.encode(errors="replace") in data
    }


def _loaded(data: bytes, sources: dict[str, list[str]]) -> object:
    if sources:
        import linecache

        for name, lines in sources.items():
            linecache.cache[name] = (sum(map(len, lines)), None, lines, name)
    return pickle.loads(data)  # noqa: S301 - our own parent wrote it


def dumps(held: object) -> bytes:
    """`held` as bytes for `pickle.loads`, which needs cloudpickle installed."""
    try:
        import cloudpickle
    except ImportError:
        from holdfast.errors.tree import InputError

        raise InputError(
            "another process cannot import the function, because it has no importable name; install holdfast with its "
            "extra notebook (cloudpickle), put it into a file, or use start_method='fork'"
        ) from None
    data: bytes = cloudpickle.dumps(held)
    return data
