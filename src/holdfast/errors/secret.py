"""Secret settings: the job's token, and etcd's password. They appear in no message, and workers get neither."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

KEYS = frozenset(("token", "password"))
"""The names of the secret settings."""

_VARIABLES = ("HOLDFAST_TOKEN", "HOLDFAST_TOKEN_FILE")
_SETTINGS = "PET_RDZV_CONF"

_WORDS = (*KEYS, "secret", "passwd")
_QUOTES = "'\""
HIDDEN = "(not shown: it may hold a secret)"


def shown(text: str) -> str:
    """Quote `text`, the user's settings, for a message; hide all of it if it mentions a secret.

    Settings that cannot be parsed may contain a secret with a comma in it, or with a colon before it.
    """
    lower = text.lower()
    return HIDDEN if any(word in lower for word in _WORDS) else repr(text)


def hidden(text: str) -> str:
    """A message about arguments that could not be parsed, cut before the name of a secret."""
    lower = text.lower()
    begins = [at for word in _WORDS for end in "=: " if (at := lower.find(word + end)) >= 0]
    return f"{text[: min(begins)]}... {HIDDEN}" if begins else text


def split_settings(text: str) -> list[tuple[str, str, str]]:
    """Split ``a=1,b=2`` into ``("a", "=", "1")`` and so on, without surrounding white space.

    Quotes that a shell or a template left around `text` are removed. Without a ``=``, the last two parts are empty.
    """
    bare = text.strip()
    if len(bare) > 1 and bare[0] == bare[-1] and bare[0] in _QUOTES:
        bare = bare[1:-1].strip()
    if not bare:
        return []
    found = (item.partition("=") for item in bare.split(","))
    return [(key.strip(), equals, value.strip()) for key, equals, value in found]


def without_secrets(settings: str) -> str:
    """``a=1,token=x,b=2`` without the secrets. An item without ``=`` belongs to the pair before it."""
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
    """Whether a setting is a secret, also if its name has stray quotes, spaces or capitals."""
    return "".join(char for char in key.lower() if not char.isspace() and char not in _QUOTES) in KEYS


def public_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Replacements for the variables of `environ` that hold or lead to a secret, for processes that do not need it."""
    public = {name: "" for name in _VARIABLES if name in environ}
    if _SETTINGS in environ:
        public[_SETTINGS] = without_secrets(environ[_SETTINGS])
    return public


def hiding_secrets(settings: Mapping[str, Any]) -> dict[str, Any]:
    """`settings` with the secrets hidden, for people to read."""
    return {key: HIDDEN if key in KEYS else value for key, value in settings.items()}
