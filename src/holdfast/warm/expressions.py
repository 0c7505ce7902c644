"""The value of an expression at the top level of a program, if it can be determined without running the program.

This covers what usually precedes imports: conditions on the version and the platform, and directories relative to the
file. A path is a string here, whether the program has it as a string or as a `Path`.
"""

from __future__ import annotations

import ast
import operator
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

_NAMES: dict[str, object] = {
    "sys.version_info": sys.version_info,
    "sys.platform": sys.platform,
    "os.name": os.name,
    "os.sep": os.sep,
    "os.pardir": os.pardir,
    "os.curdir": os.curdir,
    "TYPE_CHECKING": False,
    "typing.TYPE_CHECKING": False,
}

_FUNCTIONS: dict[str, Callable[..., object]] = {
    "os.getcwd": os.getcwd,
    "os.path.abspath": os.path.abspath,
    "os.path.dirname": os.path.dirname,
    "os.path.expanduser": os.path.expanduser,
    "os.path.join": os.path.join,
    "os.path.normpath": os.path.normpath,
    "os.path.realpath": os.path.realpath,
    "Path": os.path.join,
    "pathlib.Path": os.path.join,
    "Path.cwd": os.getcwd,
    "pathlib.Path.cwd": os.getcwd,
    "str": str,
    "os.fspath": str,
}

_METHODS: dict[str, Callable[..., str]] = {
    "resolve": os.path.realpath,
    "absolute": os.path.abspath,
    "expanduser": os.path.expanduser,
    "joinpath": os.path.join,
    "as_posix": str,
}

_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], object]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}

_OPERATIONS: dict[type[ast.operator], Callable[[Any, Any], object]] = {ast.Add: operator.add, ast.Div: os.path.join}


class UnknownError(Exception):
    """Only running the program would show the value."""


def value_of(expression: ast.expr, names: Mapping[str, object]) -> object:
    """The value of `expression`, given the values of `names`.

    Raises:
        UnknownError: the value cannot be determined.
    """
    try:
        return _value(expression, names)
    except (TypeError, ValueError, LookupError, AttributeError, OSError, RecursionError) as error:
        raise UnknownError from error


def dotted(expression: ast.expr) -> str:
    """A name as it is written, such as ``os.environ``; "" if the expression is not a name."""
    if isinstance(expression, ast.Name):
        return expression.id
    if isinstance(expression, ast.Attribute) and (owner := dotted(expression.value)):
        return f"{owner}.{expression.attr}"
    return ""


def _value(expression: ast.expr, names: Mapping[str, object]) -> Any:
    match expression:
        case ast.Constant(value=value):
            return value
        case ast.Tuple(elts=parts):
            return tuple(_value(part, names) for part in parts)
        case ast.Name(id=name) if name in names:
            return names[name]
        case ast.Name() | ast.Attribute() if (name := dotted(expression)) in _NAMES:
            return _NAMES[name]
        case ast.Call(func=function, args=args, keywords=[]):
            return _called(function, [_value(arg, names) for arg in args], names)
    return _operated(expression, names)


def _operated(expression: ast.expr, names: Mapping[str, object]) -> Any:
    match expression:
        case ast.Attribute(value=path, attr="parent"):
            return os.path.dirname(_value(path, names))
        case ast.Subscript(value=ast.Attribute(value=path, attr="parents"), slice=ast.Constant(value=int(levels))):
            place = _value(path, names)
            for _ in range(levels + 1):
                place = os.path.dirname(place)
            return place
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _value(operand, names)
        case ast.BinOp(left=left, op=operation, right=right):
            return _OPERATIONS[type(operation)](_value(left, names), _value(right, names))
        case ast.Compare(left=left, ops=[comparison], comparators=[right]):
            return _COMPARISONS[type(comparison)](_value(left, names), _value(right, names))
    raise UnknownError


def _called(function: ast.expr, args: list[Any], names: Mapping[str, object]) -> object:
    known = _FUNCTIONS.get(dotted(function))
    if known is not None:
        return known(*args)
    if isinstance(function, ast.Attribute) and function.attr in _METHODS:
        return _METHODS[function.attr](_value(function.value, names), *args)
    raise UnknownError
