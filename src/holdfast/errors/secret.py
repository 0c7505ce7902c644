"""Settings that are secrets: the job's token, and etcd's password. They are in no message, and workers have neither."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

KEYS = frozenset(("token", "password"))
"""What settings are called that are secrets."""

_VARIABLES = ("HOLDFAST_TOKEN", "HOLDFAST_TOKEN_FILE")
_SETTINGS = "PET_RDZV_CONF"

_WORDS = (*KEYS, "secret", "passwd")
_QUOTES = "'\""
HIDDEN = "(not shown: it may hold a secret)"


def shown(text: str) -> str:
    """`text`, which somebody gave as settings, as a message quotes it. What cannot be read as settings may be a secret
    with a comma in it, or one with a colon before it: if it only mentions one, nothing of it is shown.
    """
    lower = text.lower()
    return HIDDEN if any(word in lower for word in _WORDS) else repr(text)


def hidden(text: str) -> str:
    """A message about words that nobody could understand, without what stands after the name of a secret."""
    lower = text.lower()
    begins = [at for word in _WORDS for end in "=: " if (at := lower.find(word + end)) >= 0]
    return f"{text[: min(begins)]}... {HIDDEN}" if begins else text


def split_settings(text: str) -> list[tuple[str, str, str]]:
    """``a=1,b=2`` as ``("a", "=", "1")`` and so on, also in quotes that a shell or a template left around it. Without a
    ``=``, the last two are empty. No white space is left around any of them.
    """
    bare = text.strip()
    if len(bare) > 1 and bare[0] == bare[-1] and bare[0] in _QUOTES:
        bare = bare[1:-1].strip()
    if not bare:
        return []
    found = (item.partition("=") for item in bare.split(","))
    return [(key.strip(), equals, value.strip()) for key, equals, value in found]


def without_secrets(settings: str) -> str:
    """``a=1,token=x,b=2`` without the secrets. What is no pair belongs to the one before it."""
    items = split_settings(settings)
    kept: list[str] = []
    is_secret = False
    for key, equals, value in items:
        if equals:
            is_secret = _may_be_secret(key)
        if not is_secret:
            kept.append(f"{key}{equals}{value}")
    return settings if len(kept) == len(items) else ",".join(kept)


def _may_be_secret(key: str) -> bool:
    """Whether a setting is a secret, or would be one without a slip of the pen."""
    return "".join(char for char in key.lower() if not char.isspace() and char not in _QUOTES) in KEYS


def public_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of `environ` that hold or lead to a secret, as a process may have them that has no use for it."""
    public = {name: "" for name in _VARIABLES if name in environ}
    if _SETTINGS in environ:
        public[_SETTINGS] = without_secrets(environ[_SETTINGS])
    return public


def hiding_secrets(settings: Mapping[str, Any]) -> dict[str, Any]:
    """`settings` for people to read."""
    return {key: HIDDEN if key in KEYS else value for key, value in settings.items()}
