"""What the source says of itself: limits, events, kinds of failures. It is read and not run, but for plain tables."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from markup import code, from_docstring, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.events.schema import RunEvent

SOURCE = Path(__file__).parents[2] / "src" / "holdfast"

UNITS = {
    "_S": "s",
    "_MS": "ms",
    "_BYTES": "bytes",
    "_CHARS": "characters",
    "_CHARACTERS": "characters",
    "_LINES": "lines",
    "_COLUMNS": "columns",
}
"""How a name ends that has a unit."""

_LIMIT = re.compile(r"(?!_)[A-Z0-9_]*?(MAX|MIN|BACKLOG|SPARE|ATTEMPTS|SHARE|_AT|LOOKS|PORT)[A-Z0-9_]*|[A-Z0-9_]+")
_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30


class Limit(NamedTuple):
    """A named constant with what it is good for."""

    module: str
    name: str
    value: float
    meaning: str

    @property
    def text(self) -> str:
        """The value with its unit, as people say it."""
        unit = next((word for ending, word in UNITS.items() if self.name.endswith(ending)), "")
        number = self.value
        if unit == "bytes":
            for size, word in ((_GIB, "GiB"), (_MIB, "MiB"), (_KIB, "KiB")):
                if number >= size and number % (size / 4) == 0:
                    return f"{number / size:g} {word}"
        return f"{number:,} {unit}".strip() if isinstance(number, int) else f"{number:g} {unit}".strip()


def all_limits() -> Iterator[Limit]:
    """Every constant that limits something and says why it is what it is, module by module."""
    for path in sorted(SOURCE.rglob("*.py")):
        module = ".".join(["holdfast", *path.relative_to(SOURCE).with_suffix("").parts])
        for name, value, meaning in _constants(ast.parse(path.read_text(encoding="utf-8"))):
            number = _number(value)
            if number is not None and meaning and _limits(name):
                yield Limit(module, name, number, from_docstring(meaning))


def limits() -> str:
    """The limits, a table for each package."""
    by_package: dict[str, list[Limit]] = {}
    for limit in all_limits():
        by_package.setdefault(".".join(limit.module.split(".")[:2]), []).append(limit)
    parts = []
    for package, found in by_package.items():
        rows = ([code(f"{_within(limit.module)}{limit.name}"), limit.text, limit.meaning] for limit in found)
        parts.append(f"## {package}\n\n{table(['name', 'value', 'what it limits, and why'], rows)}")
    return "\n\n".join(parts)


def _within(module: str) -> str:
    """The module's name within its package, as a prefix."""
    return "".join(f"{part}." for part in module.split(".")[2:] if part != "__init__")


def _limits(name: str) -> bool:
    found = _LIMIT.fullmatch(name)
    return found is not None and (found[1] is not None or name.endswith(tuple(UNITS)))


def _constants(tree: ast.Module) -> Iterator[tuple[str, ast.expr, str]]:
    """Assignments at the top of a module: the name, the value, and the text below."""
    for statement, below in zip(tree.body, [*tree.body[1:], None], strict=True):
        target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
        value = getattr(statement, "value", None)
        if isinstance(target, ast.Name) and isinstance(value, ast.expr):
            yield target.id, value, _text(below)


def _text(statement: ast.stmt | None) -> str:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""


def _number(expression: ast.expr) -> float | None:
    """The value of a number that is written down, or of an expression of such numbers."""
    allowed = (ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.Constant)
    if not all(isinstance(node, allowed) for node in ast.walk(expression)):
        return None
    value = eval(compile(ast.Expression(expression), "<constant>", "eval"), {"__builtins__": {}})  # noqa: S307 - numbers
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def events() -> str:
    """Our own events: their names and fields, from their schema."""
    from holdfast.events.schema import EVENTS, PREFIX

    rows = (
        [
            code(f"{PREFIX}{event.NAME}"),
            from_docstring(inspect.getdoc(event) or ""),
            ", ".join(map(code, _fields(event))),
        ]
        for event in EVENTS
    )
    return table(["event", "when", "`details`"], rows)


def _fields(event: type[RunEvent]) -> Iterator[str]:
    """The fields of an event, as they are written."""
    from holdfast.errors.failure import Failure
    from holdfast.events.schema import field_types

    for name in field_types(event):
        yield from Failure.FACTS if name == event.INLINE else (name,)


def failure_kinds() -> str:
    """The ways in which a worker can fail."""
    tree = ast.parse((SOURCE / "errors" / "kind.py").read_text(encoding="utf-8"))
    kinds = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "FailureKind")
    members = zip(kinds.body, [*kinds.body[1:], None], strict=True)
    rows = (
        [code(str(ast.literal_eval(statement.value))), from_docstring(_text(below))]
        for statement, below in members
        if isinstance(statement, ast.Assign)
    )
    return table(["kind", "meaning"], rows)


def exit_codes() -> str:
    """The table that the module about exit codes begins with."""
    from holdfast.cli import exits

    lines = inspect.getdoc(exits) or ""
    return "\n".join(line for line in lines.splitlines() if line.startswith("|"))


def rendezvous_settings() -> str:
    """Which settings each backend knows."""
    from holdfast.rendezvous.known_settings import KEYS

    rows = ([code(key), *(_yes(key in keys) for keys in KEYS.values())] for key in sorted(set().union(*KEYS.values())))
    return table(["setting", *map(code, KEYS)], rows)


def transitions() -> str:
    """The phases of an agent: everything that leads from one to another."""
    from holdfast.agent.core import RULES

    rows = (
        [code(phase.value), in_words(event), " or ".join(code(to.value) for to in leads_to)]
        for (phase, event), (_, leads_to) in RULES.items()
    )
    return table(["from", "when", "to"], rows)


def in_words(event: type) -> str:
    """The name of an event's class, as words."""
    return re.sub(r"(?<!^)([A-Z])", r" \1", event.__name__).lower()


def _yes(is_so: bool) -> str:
    return "yes" if is_so else ""
