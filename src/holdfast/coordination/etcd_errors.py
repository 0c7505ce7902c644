"""What etcd's errors mean to a job."""

from __future__ import annotations

from holdfast.coordination.errors import (
    CompactedError,
    CoordinationError,
    LeaseLostError,
    StoreFullError,
    StoreRefusedError,
    StoreUnavailableError,
)
from holdfast.coordination.etcd_answers import ANSWER_MAX_BYTES, BadAnswerError
from holdfast.errors.text import visible_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

FROM_ETCD = "etcdserver: "
"""What the text of an error begins with if a member sent it. All others are about the connection."""

NO_SPACE_ADVICE = (
    "run etcdctl compact and etcdctl defrag, then etcdctl alarm disarm; start etcd with a larger "
    "--quota-backend-bytes if it fills again"
)

TEXT_MAX_CHARS = 300
"""How much of what a member says a message quotes."""

_ANSWER_TOO_LARGE = "Received message larger than max"
"""What gRPC says of what a member sent. Of what we send, etcd says so itself, and writes "received"."""

_TOO_LARGE = ("etcdserver: request is too large", "etcdserver: too many operations", "message larger than max")
_TLS_FAILED = ("handshake failed", "certificate", "ssl_error", "tls:")
_OTHER_NAME = "hostname verification check failed"
_TLS_HINTS = {
    "handshake read failed": "perhaps it does not speak TLS; then leave out https and the certificates",
    "unwrap failed": "perhaps it wants to see a certificate that it trusts: ssl_cert and ssl_cert_key in --rdzv-conf",
}
"""How a connection breaks that TLS was begun on, and what may be behind it. It can be the network as well."""

_PLAIN_HINT = "it may speak TLS: write https:// before the endpoint, or --rdzv-conf protocol=https"
_PLAIN_HINTS = {"socket closed": _PLAIN_HINT, "connection reset": _PLAIN_HINT}
"""The same for one in plain text: a server of TLS hangs up on it."""


class NotDoneError(StoreUnavailableError):
    """The member cannot do anything right now. It has done nothing, so the request can be sent again."""


class NoLeaderError(NotDoneError):
    """The member knows no leader."""


class OldTokenError(StoreRefusedError):
    """The member has forgotten that we gave a password. It has done nothing."""


class NotPermittedError(StoreRefusedError):
    """We are not known, or may not do this."""


class TooLargeError(StoreRefusedError, ValueError):
    """The member does not take this much."""


class NoPasswordsError(StoreRefusedError):
    """The cluster does not ask for passwords."""


class InsecureError(StoreRefusedError):
    """There is no secure connection: the certificates of the two sides do not fit."""


class OtherClusterError(StoreRefusedError):
    """The member belongs to another cluster than the one that the job began with."""


_MEANINGS: list[tuple[str, type[CoordinationError], str]] = [
    ("no leader", NoLeaderError, "has no leader"),
    ("rpc not supported for learner", NoLeaderError, "is a learner, which cannot serve jobs yet"),
    ("too many requests", NotDoneError, "has too many requests to do"),
    ("not capable", StoreRefusedError, "is too old; holdfast needs etcd 3.4 or newer on every member"),
    (
        "corrupt cluster",
        StoreRefusedError,
        "has the alarm CORRUPT: its members hold different data; replace the bad one",
    ),
    (
        "mvcc: database space exceeded",
        StoreFullError,
        f"has the alarm NOSPACE: its database is full and takes no writes; {NO_SPACE_ADVICE}",
    ),
    ("invalid auth token", OldTokenError, "has forgotten our password"),
    ("revision of auth store is old", OldTokenError, "has new passwords"),
    ("authentication is not enabled", NoPasswordsError, "asks for no password"),
    ("authentication failed", StoreRefusedError, "refuses us; check the user and the password"),
    ("user name is empty", NotPermittedError, "refuses us; it needs a user and a password"),
    ("permission denied", NotPermittedError, "refuses us; the user may not use these keys"),
    ("requested lease not found", LeaseLostError, "has this lease no more"),
    ("mvcc: required revision has been compacted", CompactedError, "has forgotten these changes"),
]
"""etcd's errors are known by their text, which follows `FROM_ETCD`: it uses one code for many."""


def as_ours(code: str, details: str, name: str, *, is_plain: bool = False) -> CoordinationError:
    """Our error for gRPC's, of the member `name`. `is_plain` if it was spoken to in plain text and never answered."""
    said = details.removeprefix(FROM_ETCD)
    if said != details:
        for text, error, meaning in _MEANINGS:
            if said.startswith(text):
                return error(f"etcd at {name} {meaning}")
    reason = in_short(details.rpartition("last error: ")[2])  # gRPC says first where it comes from
    if _ANSWER_TOO_LARGE in details or any(text in details for text in _TOO_LARGE):
        return _about_size(details, name, reason)
    if code in ("PERMISSION_DENIED", "UNAUTHENTICATED"):
        return StoreRefusedError(f"etcd at {name} refuses us: {reason}")
    lower = details.lower()
    if _OTHER_NAME in lower:
        return InsecureError(
            f"etcd at {name}: its certificate does not name this host; write one of the names in the certificate as "
            "--rdzv-endpoint, or give etcd a certificate that names this one"
        )
    if said == details and any(text in lower for text in _TLS_FAILED):
        return InsecureError(
            f"etcd at {name}: no secure connection; check the certificates (ca_cert, ssl_cert, ssl_cert_key in "
            f"--rdzv-conf): {reason}"
        )
    hints = _PLAIN_HINTS if is_plain else _TLS_HINTS
    hint = next((f" ({hint})" for text, hint in hints.items() if text in lower), "")
    return StoreUnavailableError(f"etcd at {name} does not answer: {reason}{hint}")


def _about_size(details: str, name: str, reason: str) -> CoordinationError:
    if _ANSWER_TOO_LARGE in details:
        limit = f"the {ANSWER_MAX_BYTES >> 20} MiB that an answer may have"
        return BadAnswerError(f"etcd at {name} is broken, or something else is there: it sent more than {limit}")
    return TooLargeError(f"etcd at {name} does not take this much: {reason}")


def in_short(text: str) -> str:
    """What a member said, for a message: one line, cut, and with nothing in it that plays tricks with a terminal."""
    line = visible_line(text[: TEXT_MAX_CHARS + 1].replace("\n", " "))
    return line if len(line) <= TEXT_MAX_CHARS else f"{line[:TEXT_MAX_CHARS]}..."


def most_telling(errors: Iterable[CoordinationError]) -> CoordinationError:
    """The error to raise when no member can be used.

    A member of another cluster counts only if there is nothing but such: the right ones may come back.
    """
    return min(errors, key=_how_little_it_says)


def _how_little_it_says(error: CoordinationError) -> int:
    """What needs a person first, what time heals next."""
    if isinstance(error, OtherClusterError):
        return 3
    if isinstance(error, StoreRefusedError):
        return 0
    return 1 if isinstance(error, NotDoneError) else 2
