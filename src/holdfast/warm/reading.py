"""What a program imports when it begins, found by reading it. Nothing of it is run."""

from __future__ import annotations

import ast
import os
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import TypeAlias

    Statement: TypeAlias = tuple[int, str, tuple[str, ...]]
    """How many packages up it begins, the module, and what is wanted of it."""

FILES_MAX = 500
"""How many files of a project are read."""

FILE_MAX_BYTES = 4 * 1024 * 1024
"""The largest file that is read."""


def imports_of(files: Iterable[str], roots: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The modules that the files import at their top level, in order, each with what is imported from it; also those
    that their own project's modules do.

    `roots` are the directories where modules of the project are. Those themselves are read, and left out: they are what
    people change between two attempts, and what may look at its rank when it is imported.
    """
    found: dict[str, dict[str, None]] = {}
    seen: set[str] = set()
    waiting = deque(files)
    while waiting and len(seen) < FILES_MAX:
        file = waiting.popleft()
        if file in seen:
            continue
        seen.add(file)
        for level, module, names in _imports(file):
            if level:
                waiting.extend(_relative_files(file, level, module, names))
                continue
            own = [path for name in (module, *_inside(module, names)) for path in _own_files(name, roots)]
            waiting.extend(own)
            if not own:
                found.setdefault(module, {}).update(dict.fromkeys(names))
    return {module: tuple(names) for module, names in found.items()}


def files_of_module(name: str, roots: Sequence[str]) -> list[str]:
    """The files that ``python -m name`` would run, as far as it can be told without importing anything: those of the
    packages that it is in, and its own.
    """
    parts = name.split(".")
    for root in roots:
        base = os.path.join(root, *parts)
        own = next((path for path in (os.path.join(base, "__main__.py"), f"{base}.py") if os.path.isfile(path)), None)
        if own is not None:
            packages = (os.path.join(root, *parts[:length], "__init__.py") for length in range(1, len(parts) + 1))
            return [*filter(os.path.isfile, packages), own]
    return []


def _inside(module: str, names: Iterable[str]) -> list[str]:
    return [f"{module}.{name}" for name in names]


def _own_files(name: str, roots: Sequence[str]) -> Iterator[str]:
    """The files of a module of the project, with those of the packages that it is in."""
    parts = name.split(".")
    for root in roots:
        first = os.path.join(root, parts[0])
        if not os.path.isfile(f"{first}.py") and not os.path.isdir(first):
            continue
        for length in range(1, len(parts) + 1):
            yield from _files(os.path.join(root, *parts[:length]))
        return


def _relative_files(file: str, level: int, module: str, names: Iterable[str]) -> Iterator[str]:
    package = os.path.dirname(file)
    for _ in range(level - 1):
        package = os.path.dirname(package)
    parts = module.split(".") if module else []
    for length in range(len(parts) + 1):
        yield from _files(os.path.join(package, *parts[:length]))
    for name in names:
        yield from _files(os.path.join(package, *parts, name))


def _files(base: str) -> Iterator[str]:
    """The file of a module, if it is one, and of a package."""
    return filter(os.path.isfile, (f"{base}.py", os.path.join(base, "__init__.py")))


def _imports(path: str) -> list[Statement]:
    try:
        with open(path, "rb") as file:
            source = file.read(FILE_MAX_BYTES)
        tree = ast.parse(source)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return []  # the worker will say what is wrong with it
    return list(_at_top_level(tree.body))


def _at_top_level(body: Iterable[ast.stmt]) -> Iterator[Statement]:
    """What statements import when they run, not what stands inside functions and classes."""
    for statement in body:
        match statement:
            case ast.Import(names=names):
                yield from ((0, alias.name, ()) for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                yield level, module or "", tuple(alias.name for alias in names if alias.name != "*")
            case ast.If(test=test, body=inner, orelse=other):
                if not _is_for_types(test):
                    yield from _at_top_level(inner)
                yield from _at_top_level(other)
            case (
                ast.Try(body=inner, handlers=handlers, orelse=other, finalbody=final)
                | ast.TryStar(body=inner, handlers=handlers, orelse=other, finalbody=final)
            ):
                for part in (inner, *(handler.body for handler in handlers), other, final):
                    yield from _at_top_level(part)
            case ast.With(body=inner):
                yield from _at_top_level(inner)


def _is_for_types(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )
