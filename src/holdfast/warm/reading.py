"""What a program imports when it begins, found by reading it. Nothing of it is run.

Imports are listed in the order in which the program does them, and so is what it does between them that an import may
notice: variables that it sets, directories that it puts before others in ``sys.path``. Where that cannot be told from
the text, the list ends: what a program imports after that is its own affair.
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
    """An import: how many packages up it begins, the module, and what is wanted of it."""

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
    """Something that a program does: `IMPORT` a module, with what is wanted of it; `SET`, `SET_DEFAULT` or `UNSET` a
    variable; have a `PLACE` before others in ``sys.path``.
    """

    __slots__ = ("kind", "name", "value")

    def __init__(self, kind: str, name: str, value: str | tuple[str, ...] = "") -> None:
        self.kind = kind
        self.name = name
        self.value = value


class Reading:
    """What was read, and in which files. `left` says where the program does what cannot be told, if it imports anything
    after that, and what it changes there; otherwise it is "".
    """

    __slots__ = ("files", "left", "steps")

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.files: list[str] = []
        self.left = ""

    @property
    def places(self) -> list[str]:
        """The directories that the program puts before others, the last one first."""
        return [step.name for step in reversed(self.steps) if step.kind == PLACE]

    def imports(self) -> dict[str, tuple[str, ...]]:
        """The modules, each with all that is wanted of it."""
        found: dict[str, dict[str, None]] = {}
        for step in self.steps:
            if step.kind == IMPORT:
                found.setdefault(step.name, {}).update(dict.fromkeys(step.value))
        return {module: tuple(names) for module, names in found.items()}

    def beside_imports(self) -> tuple[object, ...]:
        """All that imports may notice."""
        return self.left, *((step.kind, step.name, step.value) for step in self.steps if step.kind != IMPORT)


def read(files: Iterable[str], roots: Sequence[str], main: str = "") -> Reading:
    """What the files do before and with their imports, one after the other; `main` is the one whose ``__name__`` is
    ``__main__``.

    `roots` are the directories where modules of the project are. Those themselves are read, and left out: they are what
    people change between two attempts, and what may look at its rank when it is imported.
    """
    reading = Reading()
    unclear = ""
    seen: set[tuple[str, tuple[str, ...]]] = set()
    waiting = [*files]
    entered: list[tuple[str, Iterator[Step | Found | str]]] = []  # one in the middle of another, that imports it
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
    """One file of the program, from its first statement to its last."""

    def __init__(self, path: str, *, is_main: bool) -> None:
        self._path = path
        self._names: dict[str, object] = {"__file__": path, "__name__": "__main__" if is_main else ""}
        self._changing: dict[str, str] = {}  # functions of the file, and what they change when they are called

    def happenings(self) -> Iterator[Step | Found | str]:
        """What it does, in order: steps, imports, and of what cannot be told, where it is."""
        try:
            with open(self._path, "rb") as file:
                tree = ast.parse(file.read(FILE_MAX_BYTES))
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            return  # the worker will say what is wrong with it
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
        """Something of which nobody can tell whether it is done, or how."""
        if what := self._changed_by(node):
            yield f"{self._path}:{getattr(node, 'lineno', 0)} changes {what}"
        for each in ast.walk(node):
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
                self._names.pop(each.id, None)

    def _changed_by(self, node: ast.AST) -> str:
        """What it changes, if it is done, of all that imports depend on; or ""."""
        left = [node]
        while left:
            each = left.pop()
            if isinstance(each, _SCOPES):
                continue
            if what := self._changed(each):
                return what
            if isinstance(each, ast.AugAssign) and isinstance(each.op, ast.Add) and dotted(each.target) == "sys.path":
                continue  # what stands last hides nothing
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
        """What a simple statement does, if that can be told: nothing, as a rule."""
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


def _own_files(importer: str, found: Found, roots: Sequence[str]) -> list[str]:
    """The files of what is imported, if that is of the project; with those of the packages that it is in."""
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
    """The file of a module, if it is one, and of a package."""
    return filter(os.path.isfile, (f"{base}.py", os.path.join(base, "__init__.py")))
