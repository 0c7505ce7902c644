"""Warn about directories of other users."""

from __future__ import annotations

from holdfast.errors.notice import say
from holdfast.files import other_owner

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def warn_of_other_owners(prog: str, directories: Iterable[str]) -> None:
    """Warn on stderr, in one line, if a directory belongs to neither us nor root: its owner can forge the content."""
    owners = {directory: owner for directory in directories if (owner := other_owner(directory)) is not None}
    if not owners:
        return
    directory, owner = next(iter(owners.items()))
    more = f" (and {len(owners) - 1} more)" if len(owners) > 1 else ""
    say(f"{prog}: {directory!r}{more} belongs to {_name(owner)}, not to you: its content may be forged")


def _name(uid: int) -> str:
    import pwd

    try:
        return f"the user {pwd.getpwuid(uid).pw_name!r}"
    except KeyError:
        return f"the user with the id {uid}"
