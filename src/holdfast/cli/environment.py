"""Options whose defaults come from the environment: ``PET_`` and the option's name in capitals.

`env` and `check_env` are argparse actions that work in any parser.
"""

from __future__ import annotations

import os
from argparse import Action

from holdfast.errors.secret import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from typing import Any


def variable(dest: str) -> str:
    """The environment variable for the option stored in `dest`."""
    return f"PET_{dest.upper()}"


def as_given(message: str) -> str:
    """Put the variable's name in place of the flag's in `message`, if the value came from the variable.

    Messages begin with a flag and its value, in this package and below: ``--nnodes 'x': ...``. A user who wrote
    ``PET_NNODES=x`` should not have to search for a flag.
    """
    flag, _, rest = message.partition(" ")
    name = variable(flag.removeprefix("--").replace("-", "_"))
    text = os.environ.get(name)
    if flag.startswith("--") and text is not None and rest.startswith((shown(text), f"{text!r}", f"{text}:")):
        return f"{name}={rest}"
    return message


class env(Action):  # noqa: N801 - the name is part of the contract
    """Stores a value: from the command line, or else from the variable, or else `default`.

    The option's `type` is applied to the variable's text only if it is used: the command line may override it.
    """

    def __init__(self, dest: str, default: Any = None, required: bool = False, **options: Any) -> None:
        default = os.environ.get(variable(dest), default)
        # A value from the variable satisfies `required`, too.
        super().__init__(dest=dest, default=default, required=required and not default, **options)

    def __call__(
        self,
        parser: ArgumentParser,  # noqa: ARG002 - argparse's signature
        namespace: Namespace,
        values: Any,
        option_string: str | None = None,  # noqa: ARG002 - likewise
    ) -> None:
        setattr(namespace, self.dest, values)


class check_env(Action):  # noqa: N801 - the name is part of the contract
    """A flag. It is on if the command line has it, or if the variable holds a whole number other than 0.

    Raises:
        InputError: the variable holds something else. Raised when the parser is made.
    """

    def __init__(self, dest: str, default: bool = False, **options: Any) -> None:
        text = os.environ.get(variable(dest))
        if text is not None:
            try:
                default = bool(int(text))
            except ValueError:
                from holdfast.errors.tree import InputError

                raise InputError(f"{variable(dest)}={text!r}: write 1 for on or 0 for off") from None
        super().__init__(dest=dest, nargs=0, const=True, default=default, **options)

    def __call__(
        self,
        parser: ArgumentParser,  # noqa: ARG002 - argparse's signature
        namespace: Namespace,
        values: Any,  # noqa: ARG002 - likewise
        option_string: str | None = None,  # noqa: ARG002 - likewise
    ) -> None:
        setattr(namespace, self.dest, self.const)
