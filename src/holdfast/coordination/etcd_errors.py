"""The meaning of etcd's errors for a job."""

from __future__ import annotations

from holdfast.coordination.errors import (
    BadAnswerError,
    CompactedError,
    CoordinationError,
    LeaseLostError,
    StoreFullError,
    StoreRefusedError,
    StoreUnavailableError,
)
from holdfast.coordination.etcd_answers import ANSWER_MAX_BYTES
from holdfast.errors.text import visible_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

FROM_ETCD = "etcdserver: "
"""The prefix of the error texts that members send. All other errors are about the connection."""

NO_SPACE_ADVICE = (
    "run etcdctl compact and etcdctl defrag, then etcdctl alarm disarm; start etcd with a larger "
    "--quota-backend-bytes if it fills again"
)

TEXT_MAX_CHARS = 300
"""How much of a member's text a message quotes."""

_ANSWER_TOO_LARGE = "Received message larger than max"
"""gRPC's text if a member's message is too large. If ours is too large, etcd says so itself, with a lower-case
"received"."""

_TOO_LARGE = ("etcdserver: request is too large", "etcdserver: too many operations", "message larger than max")
_TLS_FAILED = ("handshake failed", "certificate", "ssl_error", "tls:")
_OTHER_NAME = "hostname verification check failed"
_TLS_HINTS = {
    "handshake read failed": "it may not speak TLS; if so, leave out https and the certificates",
    "unwrap failed": "it may require a client certificate: ssl_cert and ssl_cert_key in --rdzv-conf",
}
"""How a TLS connection breaks, and the likely cause. The network can be the cause as well."""

_PLAIN_HINT = "it may speak TLS: write https:// before the endpoint, or --rdzv-conf protocol=https"
_PLAIN_HINTS = {"socket closed": _PLAIN_HINT, "connection reset": _PLAIN_HINT}
"""The same for a plain-text connection: a TLS server closes it."""


class SilentError(StoreUnavailableError):
    """The member has not answered in time, which says no more than that."""


class NotDoneError(StoreUnavailableError):
    """The member cannot do anything right now. It has done nothing, so the request can be sent again."""


class NoLeaderError(NotDoneError):
    """The member has no leader."""


class OldTokenError(StoreRefusedError):
    """The member no longer accepts our token. It has done nothing."""


class NotPermittedError(StoreRefusedError):
    """The user is unknown, or lacks the permission."""


class TooLargeError(StoreRefusedError, ValueError):
    """The request is larger than the member accepts."""


class NoPasswordsError(StoreRefusedError):
    """The cluster does not ask for passwords."""


class InsecureError(StoreRefusedError):
    """TLS failed: the certificates of the two sides do not match."""


class OtherClusterError(StoreRefusedError):
    """The member does not belong to the cluster that the job began with."""


_MEANINGS: list[tuple[str, type[CoordinationError], str]] = [
    ("no leader", NoLeaderError, "has no leader"),
    ("rpc not supported for learner", NoLeaderError, "is a learner, which cannot serve jobs yet"),
    ("too many requests", NotDoneError, "is overloaded with requests"),
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
    ("invalid auth token", OldTokenError, "no longer accepts our login"),
    ("revision of auth store is old", OldTokenError, "has changed its passwords"),
    ("authentication is not enabled", NoPasswordsError, "does not use passwords"),
    ("authentication failed", StoreRefusedError, "refuses the login; check the user and the password"),
    ("user name is empty", NotPermittedError, "refuses the login; it needs a user and a password"),
    ("permission denied", NotPermittedError, "refuses access; the user may not use these keys"),
    ("requested lease not found", LeaseLostError, "no longer has this lease"),
    ("mvcc: required revision has been compacted", CompactedError, "no longer has these changes"),
]
"""etcd's errors are recognised by the text after `FROM_ETCD`: etcd uses one code for many errors."""


def as_ours(code: str, details: str, name: str, *, is_plain: bool = False) -> CoordinationError:
    """Our error for gRPC's error of the member `name`. `is_plain` if we used plain text and it never answered."""
    said = details.removeprefix(FROM_ETCD)
    if said != details:
        for text, error, meaning in _MEANINGS:
            if said.startswith(text):
                return error(f"etcd at {name} {meaning}")
    reason = in_short(details.rpartition("last error: ")[2])  # gRPC first names the address
    if _ANSWER_TOO_LARGE in details or any(text in details for text in _TOO_LARGE):
        return _about_size(details, name, reason)
    if code in ("PERMISSION_DENIED", "UNAUTHENTICATED"):
        return StoreRefusedError(f"etcd at {name} refuses access: {reason}")
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
    kind = SilentError if code == "DEADLINE_EXCEEDED" and not hint else StoreUnavailableError
    return kind(f"etcd at {name} does not answer: {reason}{hint}")


def _about_size(details: str, name: str, reason: str) -> CoordinationError:
    if _ANSWER_TOO_LARGE in details:
        limit = f"the {ANSWER_MAX_BYTES >> 20} MiB that an answer may have"
        return BadAnswerError(f"etcd at {name} is broken, or something else answers there: it sent more than {limit}")
    return TooLargeError(f"etcd at {name} refuses a request of this size: {reason}")


def in_short(text: str) -> str:
    """A member's text for a message: one line, shortened, without control characters."""
    line = visible_line(text[: TEXT_MAX_CHARS + 1].replace("\n", " "))
    return line if len(line) <= TEXT_MAX_CHARS else f"{line[:TEXT_MAX_CHARS]}..."


def most_telling(errors: Iterable[CoordinationError]) -> CoordinationError:
    """The error to raise when no member is usable.

    A member of another cluster counts only if there are no other errors: the right members may come back.
    """
    return min(errors, key=_how_little_it_says)


def _how_little_it_says(error: CoordinationError) -> int:
    """Sort key: first the errors that need a person, then those that pass by themselves."""
    if isinstance(error, OtherClusterError):
        return 3
    if isinstance(error, StoreRefusedError):
        return 0
    return 1 if isinstance(error, NotDoneError) else 2
