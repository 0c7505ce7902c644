"""Public names that cost nothing until they are used.

A package's ``__init__`` maps each public name to the module that holds it. The module is imported when the name is
first accessed, so ``import holdfast.processes`` pays for the table alone.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def exports(
    package: str, names_by_module: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return the ``__getattr__``, ``__dir__`` and ``__all__`` of `package`.

    `names_by_module` maps a submodule to the public names it holds. A submodule without names is itself public.
    """
    home = {name: module for module, names in names_by_module.items() for name in (names or (module,))}

    def get(name: str) -> object:
        module = home.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        full_name = f"{package}.{module}"
        __import__(full_name)
        found = sys.modules[full_name]
        value: object = found if name == module else getattr(found, name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home})

    return get, names, sorted(home)
