"""The public names of a package, for autodoc: from the table in its ``__init__``."""

from __future__ import annotations

import importlib
import inspect
from abc import ABC

HOOKS = {
    "SimpleElasticAgent": (
        *("_start_workers", "_stop_workers", "_monitor_workers", "_shutdown", "_wait_for_change"),
        *("_ask_to_stop", "_failures_at_the_end", "_look_before_stop"),
    ),
}
"""Methods with an underscore that are there to be overridden: torch named them so."""


def package(name: str) -> str:
    """The reference of a package: each public name with its signature and docstring."""
    module = importlib.import_module(name)
    blocks = [_directive(name, public) for public in module.__all__]
    return "\n".join(["```{eval-rst}", f".. currentmodule:: {name}", "", *blocks, "```"])


def packages() -> list[str]:
    """The packages that have public names."""
    import holdfast

    names: list[str] = getattr(holdfast, "__all__")  # noqa: B009 - it is made at run time
    return [f"holdfast.{name}" for name in names if inspect.ismodule(getattr(holdfast, name))]


def _directive(package_name: str, name: str) -> str:
    value = getattr(importlib.import_module(package_name), name)
    if inspect.isclass(value):
        options = [":members:"]
        if set(value.__bases__) - {object, ABC}:
            options.append(":show-inheritance:")
        if hooks := HOOKS.get(name):
            options += [":inherited-members:", f":private-members: {', '.join(hooks)}"]
        return _block("autoclass", name, options)
    is_function = callable(value) and not hasattr(value, "__origin__")  # the type of a function can be called, too
    return _block("autofunction" if is_function else "autodata", name, [])


def _block(directive: str, name: str, options: list[str]) -> str:
    return "\n".join([f".. {directive}:: {name}", *(f"   {option}" for option in options), ""])
