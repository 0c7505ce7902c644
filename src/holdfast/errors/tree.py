"""The exception tree: every error says whose it is.

```
HoldfastError
├── UserError               the input, or the program that was run
│   ├── InputError          a value we were given; also a ValueError
│   └── ChildFailedError    a worker failed (in child_failed.py)
├── PlatformError           a bug of ours
└── InfrastructureError     a host or the network
```
"""

from __future__ import annotations

from enum import StrEnum


class Category(StrEnum):
    """Whose failure it is, and therefore who has to act."""

    USER = "user"
    """Bad input, or the user's program failed: change the program or the command."""

    PLATFORM = "platform"
    """holdfast itself failed: report it."""

    INFRASTRUCTURE = "infrastructure"
    """A machine or the network failed: the same job may work elsewhere."""


class HoldfastError(Exception):
    """The base of all errors that holdfast raises on purpose.

    `category` is the platform unless a subclass sets it: an unclassified error is our bug.
    """

    category: Category = Category.PLATFORM


class UserError(HoldfastError):
    category = Category.USER


class InputError(UserError, ValueError):
    """A value that we were given cannot be used. The message shows the value and what is accepted."""


class PlatformError(HoldfastError):
    category = Category.PLATFORM


class InfrastructureError(HoldfastError):
    category = Category.INFRASTRUCTURE
