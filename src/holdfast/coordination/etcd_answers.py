"""Validation of etcd's answers. Everything that a broken or false member sends is checked here.

A response that cannot answer the request counts as no answer: the caller asks another member, or the same one later.
"""

from __future__ import annotations

from holdfast.coordination.errors import BadAnswerError
from holdfast.coordination.keyspace import TTL_MAX_S

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, TypeVar

    from holdfast.coordination import etcd_messages as messages

    Answer = TypeVar("Answer")

ANSWER_MAX_BYTES = 64 << 20
"""The size limit of a message, as in the embedded engine. etcd accepts requests of 1.5 MiB, but the answer to a read
holds the result of many requests: the records of 1,000 nodes with some KiB each, and those of generations."""

FIELDS_MAX = 1 << 17
"""The limit of top-level fields in a message, such as entries or changes. An entry can be two bytes long, and take a
hundred times as much in memory. A job has at most 65,536 nodes, and a record for each."""

REVISION_MAX = 1 << 62
"""The highest revision. The next one has to fit into 63 bits, too."""

LEAST_TTL_MAX_S = 75
"""etcd grants leases of at least 1.5 times its election timeout, which is at most 50 s."""

TOKEN_MAX_CHARS = 4_096
"""The length limit of an etcd token. Every request carries it, and gRPC allows 8 KiB in all."""

_WITHOUT_HEADER = frozenset(("AlarmResponse",))
"""The answers that etcd sends without a header."""

_VARINT_MAX_BYTES = 10
_FIELD_MIN_BYTES = 2
_MORE = 0x80
"""The bit of a byte that says that the number continues in the next byte."""


def reader(parse: Callable[[bytes], Answer]) -> Callable[[bytes | None], Answer | None]:
    """A function that parses bytes into a message, or returns None if they are not one.

    It raises nothing: gRPC would log the traceback, and then return None anyway.
    """

    def read(data: bytes | None) -> Answer | None:
        from google.protobuf.message import DecodeError

        if data is None or not _has_few_fields(data):
            return None
        try:
            return parse(data)
        except DecodeError:
            return None

    return read


def checked(request: Any, answer: Answer | None, name: str) -> Answer:
    """The answer of the member `name` to a request.

    Raises:
        BadAnswerError: it cannot be an answer to the request.
    """
    fault = _fault(request, answer)
    if fault or answer is None:
        raise BadAnswerError(f"etcd at {name} is broken, or something else answers there: {fault}")
    return answer


def _fault(request: Any, answer: Any) -> str:
    """The fault in an answer; "" if there is none."""
    if answer is None:
        return "its answer cannot be read"
    kind = answer.DESCRIPTOR.name
    if kind not in _WITHOUT_HEADER and not answer.HasField("header"):
        return "its answer has no header"
    if not 0 <= answer.header.revision <= REVISION_MAX:
        return f"its answer has the revision {answer.header.revision}"
    check = _CHECKS.get(kind)
    return "" if check is None else check(request, answer)


def _fault_of_range(request: messages.RangeRequest, answer: messages.RangeResponse) -> str:
    return _fault_of_entries(answer.kvs, request.key, request.range_end)


def _fault_of_watch(request: messages.WatchRequest, answer: messages.WatchResponse) -> str:
    if not 0 <= answer.compact_revision <= REVISION_MAX:
        return f"it no longer has revisions before {answer.compact_revision}"
    create = request.create_request
    return _fault_of_entries((event.kv for event in answer.events), create.key, create.range_end)


def _fault_of_entries(entries: Iterable[messages.KeyValue], first: bytes, end: bytes) -> str:
    """The fault in the entries; "" if there is none.

    `end` is the first key after the requested range. If empty, only the key `first` was requested; a zero byte means
    all keys from `first` on.
    """
    for entry in entries:
        if entry.key != first and (entry.key < first or (end != b"\0" and entry.key >= end)):
            return "it sent a key that was not asked for"
        lowest = min(entry.create_revision, entry.mod_revision, entry.lease)
        if lowest < 0 or max(entry.create_revision, entry.mod_revision) > REVISION_MAX:
            return "it sent a key with an impossible revision or lease"
    return ""


def _fault_of_grant(request: messages.LeaseGrantRequest, answer: messages.LeaseGrantResponse) -> str:
    if answer.ID <= 0:
        return f"it granted the lease {answer.ID}"
    if not request.TTL <= answer.TTL <= max(request.TTL, LEAST_TTL_MAX_S):
        return f"it granted a lease of {answer.TTL} s instead of {request.TTL} s"
    return ""


def _fault_of_renewal(_: messages.LeaseKeepAliveRequest, answer: messages.LeaseKeepAliveResponse) -> str:
    return "" if 0 <= answer.TTL <= TTL_MAX_S else f"it renewed a lease for {answer.TTL} s"


def _fault_of_token(_: messages.AuthenticateRequest, answer: messages.AuthenticateResponse) -> str:
    token = answer.token
    is_sendable = token.isascii() and token.isprintable() and len(token) <= TOKEN_MAX_CHARS
    return "" if is_sendable else "it sent an unusable token"


_CHECKS: dict[str, Callable[[Any, Any], str]] = {
    "RangeResponse": _fault_of_range,
    "WatchResponse": _fault_of_watch,
    "LeaseGrantResponse": _fault_of_grant,
    "LeaseKeepAliveResponse": _fault_of_renewal,
    "AuthenticateResponse": _fault_of_token,
}
"""The checks beyond the header, by the name of the message."""


def _has_few_fields(data: bytes) -> bool:
    """Whether a message has at most `FIELDS_MAX` top-level fields, and they fill it exactly."""
    if len(data) <= FIELDS_MAX * _FIELD_MIN_BYTES:
        return True
    at = fields = 0
    while at < len(data) and fields < FIELDS_MAX:
        at = _behind_field(data, at)
        fields += 1
    return at == len(data)


def _behind_field(data: bytes, at: int) -> int:
    """The end of the field at `at`; past the end of the data if there is no valid field."""
    tag, at = _varint(data, at)
    match tag & 7:
        case 0:
            return _varint(data, at)[1]
        case 1:
            return at + 8
        case 2:
            length, at = _varint(data, at)
            return at + length
        case 5:
            return at + 4
    return len(data) + 1  # etcd uses no other wire types


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at `at`, and the position after it."""
    value = 0
    for place, byte in enumerate(data[at : at + _VARINT_MAX_BYTES]):
        value |= (byte & ~_MORE) << 7 * place
        if not byte & _MORE:
            return value, at + place + 1
    return 0, len(data) + 1
