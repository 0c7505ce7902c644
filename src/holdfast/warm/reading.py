"""Finds the imports that a program does at its start by reading its source. Nothing of it is run.

The result lists the imports in order, together with the statements between them that an import may notice: environment
variables, and directories inserted into ``sys.path``. The list ends at the first such statement that cannot be
evaluated: each worker does the later imports itself.
"""

from __future__ import annotations

import ast
import os
import sys

from holdfast.warm.expressions import UnknownError, dotted, value_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import TypeAlias

    Found: TypeAlias = tuple[int, str, tuple[str, ...]]
    """An import: how many packages up it starts, the module, and the names imported from it."""

FILES_MAX = 500
"""How many files of a project are read."""

FILE_MAX_BYTES = 4 * 1024 * 1024
"""The largest file that is read."""

IMPORT, SET, SET_DEFAULT, UNSET, PLACE = "import", "set", "set default", "unset", "place"

_ENVIRON = ("os.environ", "environ")
_WATCHED = (*_ENVIRON, "sys.path", "sys.modules", "sys.meta_path", "sys.path_hooks")
_CHANGING = ("__setitem__", "clear", "insert", "pop", "popitem", "remove", "reverse", "setdefault", "sort", "update")
_FUNCTIONS = ("os.putenv", "os.unsetenv", "putenv", "unsetenv")
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class Step:
    """One step of a program: `IMPORT` a module, with the names from it; `SET`, `SET_DEFAULT` or `UNSET` a variable; put
    a `PLACE` before others in ``sys.path``.
    """

    __slots__ = ("kind", "name", "value")

    def __init__(self, kind: str, name: str, value: str | tuple[str, ...] = "") -> None:
        self.kind = kind
        self.name = name
        self.value = value


class Reading:
    """The steps of a program, and the files that were read. If a step could not be evaluated and imports follow it,
    `left` says where that step is and what it changes; otherwise it is "".
    """

    __slots__ = ("files", "left", "steps")

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.files: list[str] = []
        self.left = ""

    @property
    def places(self) -> list[str]:
        """The directories that the program inserts into ``sys.path``, the last one first."""
        return [step.name for step in reversed(self.steps) if step.kind == PLACE]

    def imports(self) -> dict[str, tuple[str, ...]]:
        """The modules, each with all names imported from it."""
        found: dict[str, dict[str, None]] = {}
        for step in self.steps:
            if step.kind == IMPORT:
                found.setdefault(step.name, {}).update(dict.fromkeys(step.value))
        return {module: tuple(names) for module, names in found.items()}

    def beside_imports(self) -> tuple[object, ...]:
        """Everything else that imports may notice."""
        return self.left, *((step.kind, step.name, step.value) for step in self.steps if step.kind != IMPORT)


def read(files: Iterable[str], roots: Sequence[str], main: str = "") -> Reading:
    """Read the files, one after the other. `main` is the one whose ``__name__`` is ``__main__``.

    `roots` are the directories with the project's own modules. These are read but not listed: people change them
    between two attempts, and they may look at their rank when they are imported.
    """
    reading = Reading()
    unclear = ""
    seen: set[tuple[str, tuple[str, ...]]] = set()
    waiting = [*files]
    entered: list[tuple[str, Iterator[Step | Found | str]]] = []  # a stack: each was imported by the one before
    while entered or waiting:
        if not entered:
            _enter(waiting[:1], reading, entered, main)
            del waiting[:1]
            continue
        path, happenings = entered[-1]
        happened = next(happenings, None)
        if happened is None:
            entered.pop()
        elif isinstance(happened, str):
            unclear = unclear or happened
        elif isinstance(happened, Step):
            reading.steps += [] if unclear else [happened]
        elif own := _own_files(path, happened, [*reading.places, *roots]):
            _enter(own, reading, entered, main)
        else:
            level, module, names = happened
            top = module.partition(".")[0]
            if level or (module, names) in seen or top == "holdfast":
                continue
            seen.add((module, names))
            if not unclear:
                reading.steps.append(Step(IMPORT, module, names))
            elif top not in sys.stdlib_module_names:
                reading.left = unclear
    return reading


def _enter(
    paths: list[str], reading: Reading, entered: list[tuple[str, Iterator[Step | Found | str]]], main: str
) -> None:
    for path in reversed(paths):
        if path not in reading.files and len(reading.files) < FILES_MAX:
            reading.files.append(path)
            entered.append((path, _File(path, is_main=path == main).happenings()))


class _File:
    """One file of the program."""

    def __init__(self, path: str, *, is_main: bool) -> None:
        self._path = path
        self._names: dict[str, object] = {"__file__": path, "__name__": "__main__" if is_main else ""}
        self._changing: dict[str, str] = {}  # functions of this file, and what a call to them changes

    def happenings(self) -> Iterator[Step | Found | str]:
        """What the file does, in order: steps, imports, and the places of statements that cannot be evaluated."""
        try:
            with open(self._path, "rb") as file:
                tree = ast.parse(file.read(FILE_MAX_BYTES))
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            return  # the worker will report the error
        yield from self._all(tree.body)

    def _all(self, body: Iterable[ast.stmt]) -> Iterator[Step | Found | str]:
        for statement in body:
            match statement:
                case ast.Import(names=names):
                    yield from ((0, alias.name, ()) for alias in names)
                case ast.ImportFrom(module=module, names=names, level=level):
                    yield level, module or "", tuple(alias.name for alias in names if alias.name != "*")
                case ast.If(test=test, body=inner, orelse=other):
                    is_true = self._truth(test)
                    yield from self._unclear(statement) if is_true is None else self._all(inner if is_true else other)
                case ast.Try() | ast.TryStar():
                    yield from self._tried(statement)
                case ast.With(body=inner):
                    yield from self._all(inner)
                case ast.FunctionDef(name=name, body=inner) | ast.AsyncFunctionDef(name=name, body=inner):
                    self._changing[name] = next(filter(None, map(self._changed_by, inner)), "")
                case ast.ClassDef():
                    pass
                case _:
                    steps = self._told(statement)
                    yield from self._unclear(statement) if steps is None else steps

    def _tried(self, statement: ast.Try | ast.TryStar) -> Iterator[Step | Found | str]:
        yield from self._all(statement.body)
        for handler in statement.handlers:
            yield from self._unclear(handler)
        yield from self._all((*statement.orelse, *statement.finalbody))

    def _truth(self, test: ast.expr) -> bool | None:
        try:
            return bool(value_of(test, self._names))
        except UnknownError:
            return None

    def _unclear(self, node: ast.AST) -> Iterator[str]:
        """Handle a node that may or may not run, or whose effect is unknown."""
        if what := self._changed_by(node):
            yield f"{self._path}:{getattr(node, 'lineno', 0)} changes {what}"
        for each in ast.walk(node):
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
                self._names.pop(each.id, None)

    def _changed_by(self, node: ast.AST) -> str:
        """Which of the objects that imports depend on the node would change; "" for none."""
        left = [node]
        while left:
            each = left.pop()
            if isinstance(each, _SCOPES):
                continue
            if what := self._changed(each):
                return what
            if isinstance(each, ast.AugAssign) and isinstance(each.op, ast.Add) and dotted(each.target) == "sys.path":
                continue  # appending hides no module
            left.extend(ast.iter_child_nodes(each))
        return ""

    def _changed(self, node: ast.AST) -> str:
        match node:
            case ast.Subscript(value=owner, ctx=ast.Store() | ast.Del()) if (name := dotted(owner)) in _WATCHED:
                return name
            case ast.Attribute(ctx=ast.Store() | ast.Del()) if (name := dotted(node)) in _WATCHED:
                return name
            case ast.Call(func=ast.Attribute(value=owner, attr=attr)) if attr in _CHANGING:
                return name if (name := dotted(owner)) in _WATCHED else ""
            case ast.Call(func=function) if dotted(function) in _FUNCTIONS:
                return "os.environ"
            case ast.Call(func=ast.Name(id=name)) if name in self._changing:
                return self._changing[name]
        return ""

    def _told(self, statement: ast.stmt) -> list[Step] | None:
        """The steps of a simple statement, usually none; None if it cannot be evaluated."""
        try:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self._names[name] = value_of(value, self._names)
                    return []
                case ast.Assign(targets=[ast.Subscript(value=owner, slice=key)], value=value):
                    if dotted(owner) in _ENVIRON:
                        return [Step(SET, self._name(key), self._text(value))]
                case ast.Delete(targets=[ast.Subscript(value=owner, slice=key)]):
                    if dotted(owner) in _ENVIRON:
                        return [Step(UNSET, self._name(key))]
                case ast.Expr(value=ast.Call(func=ast.Attribute(value=owner, attr=attr)) as call):
                    return self._called(dotted(owner), attr, call)
        except UnknownError:
            pass
        return None

    def _called(self, owner: str, method: str, call: ast.Call) -> list[Step] | None:
        match owner, method, call.args, call.keywords:
            case (("os.environ" | "environ"), "setdefault", [key, value], []):
                return [Step(SET_DEFAULT, self._name(key), self._text(value))]
            case (("os.environ" | "environ"), "pop", [key, *_], []):
                return [Step(UNSET, self._name(key))]
            case (("os.environ" | "environ"), "update", [ast.Dict(keys=keys, values=values)], []):
                return [Step(SET, self._name(key), self._text(value)) for key, value in zip(keys, values, strict=True)]
            case (("os.environ" | "environ"), "update", [], keywords) if all(keyword.arg for keyword in keywords):
                return [Step(SET, keyword.arg, self._text(keyword.value)) for keyword in keywords if keyword.arg]
            case "sys.path", "insert", [_, place], []:
                return [Step(PLACE, os.path.abspath(self._text(place)))]
        return None

    def _name(self, expression: ast.expr | None) -> str:
        if expression is None or not (name := self._text(expression)) or "=" in name:
            raise UnknownError
        return name

    def _text(self, expression: ast.expr) -> str:
        text = value_of(expression, self._names)
        if not isinstance(text, str) or "\0" in text:
            raise UnknownError
        return text


def files_of_module(name: str, roots: Sequence[str]) -> list[str]:
    """The files that ``python -m name`` would run, as far as can be determined without an import: the module's own, and
    those of its packages.
    """
    parts = name.split(".")
    for root in roots:
        base = os.path.join(root, *parts)
        own = next((path for path in (os.path.join(base, "__main__.py"), f"{base}.py") if os.path.isfile(path)), None)
        if own is not None:
            packages = (os.path.join(root, *parts[:length], "__init__.py") for length in range(1, len(parts) + 1))
            return [*filter(os.path.isfile, packages), own]
    return []


def _own_files(importer: str, found: Found, roots: Sequence[str]) -> list[str]:
    """The files of an imported module, if it belongs to the project, with those of its packages."""
    level, module, names = found
    if level:
        return list(dict.fromkeys(_relative_files(importer, level, module, names)))
    inside = [f"{module}.{name}" for name in names]
    return list(dict.fromkeys(path for name in (module, *inside) for path in _absolute_files(name, roots)))


def _absolute_files(name: str, roots: Sequence[str]) -> Iterator[str]:
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
    """The files that exist for this module name: a module's, a package's."""
    return filter(os.path.isfile, (f"{base}.py", os.path.join(base, "__init__.py")))
