"""Who may use the workers' store: ``store_users`` and ``store_peers`` of ``--rdzv-conf``."""

from __future__ import annotations

from holdfast.errors.tree import InputError
from holdfast.torchstore.access import ANY, Access

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.rendezvous.parameters import RendezvousParameters
    from holdfast.torchstore.access import Network

SEPARATOR = "+"
"""Separates the values of one setting: a comma separates settings."""

LISTED_MAX = 256
"""The number of users or networks that may be listed."""

USER_MAX = (1 << 32) - 2
"""The highest user id."""


def access_from(params: RendezvousParameters) -> Access:
    """The access that the settings grant; by default the user of this process, root, and the machines of the job.

    Raises:
        InputError: a setting is malformed.
    """
    users, peers = params.get("store_users"), params.get("store_peers")
    return Access(
        frozenset() if users is None else _users(str(users)),
        () if peers is None else _networks(str(peers)),
    )


def packed(addresses: Iterable[str]) -> frozenset[bytes]:
    """The IP addresses among `addresses`, in network byte order. Names and malformed addresses are left out."""
    from holdfast.socket_owners import end_of

    found = set()
    for address in addresses:
        try:
            found.add(end_of((address, 0))[0])
        except (OSError, ValueError):
            continue
    return frozenset(found)


def _users(text: str) -> frozenset[int] | None:
    if text == ANY:
        return None
    return frozenset(_user(word, text) for word in _words("store_users", text))


def _user(word: str, text: str) -> int:
    if word.isdecimal() and len(word) <= len(str(USER_MAX)) and int(word) <= USER_MAX:
        return int(word)
    import pwd

    try:
        return pwd.getpwnam(word).pw_uid
    except (KeyError, ValueError):
        raise InputError(
            f"--rdzv-conf store_users={text}: unknown user {word!r}; write user names or numbers separated by "
            f"{SEPARATOR}, or {ANY}"
        ) from None


def _networks(text: str) -> tuple[Network, ...] | None:
    if text == ANY:
        return None
    return tuple(_network(word, text) for word in _words("store_peers", text))


def _network(word: str, text: str) -> Network:
    import ipaddress

    try:
        network = ipaddress.ip_network(word, strict=False)
    except ValueError:
        raise InputError(
            f"--rdzv-conf store_peers={text}: {word!r} is neither an address nor a network; write addresses or "
            f"networks, such as 10.1.0.0/16, separated by {SEPARATOR}, or {ANY}"
        ) from None
    return network.max_prefixlen // 8, int(network.network_address), int(network.netmask)


def _words(setting: str, text: str) -> list[str]:
    words = [word.strip() for word in text.split(SEPARATOR)]
    if len(words) > LISTED_MAX:
        raise InputError(f"--rdzv-conf {setting}=...: {len(words)} entries; the limit is {LISTED_MAX}")
    return words
