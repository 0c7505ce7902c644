"""Clocks. holdfast never compares clocks of different machines, but logs and certificates depend on them."""

from __future__ import annotations

import ctypes
import time
from typing import TYPE_CHECKING, NamedTuple

from holdfast.background import all_at_once
from holdfast.doctor.finding import Finding, Topic
from holdfast.doctor.gateway import ask
from holdfast.errors.tree import InputError
from holdfast.rendezvous.addresses import bracketed

if TYPE_CHECKING:
    from holdfast.doctor.context import Context, Meeting


AHEAD_MAX_S = 2.0
"""A larger difference is worth a note: log lines of two machines can no longer be ordered."""

AHEAD_WITH_TLS_MAX_S = 300.0
"""With a larger difference, a certificate may seem expired or not yet valid."""

RELEASED_AT = 1_735_689_600
"""The beginning of 2025. A clock that shows an earlier time was never set."""

_TIME_ERROR = 5
_TIMEX_BYTES = 256
"""Larger than the kernel's structure on any platform."""

_topic = Topic("clock")


class Difference(NamedTuple):
    """The clock of an etcd member, seen from here."""

    place: str
    ahead_s: float | None
    doubt_s: float = 0.0


class Facts(NamedTuple):
    now: float
    is_synchronised: bool | None
    """Whether the kernel's clock is synchronised; None if the kernel does not say."""

    differences: tuple[Difference, ...] = ()


def check(context: Context) -> list[Finding]:
    meeting = context.meeting
    facts = Facts(time.time(), kernel_synchronised(), tuple(_differences(meeting)))
    return judge(facts, meeting)


def kernel_synchronised() -> bool | None:
    """Whether a time service keeps the kernel's clock right."""
    timex = ctypes.create_string_buffer(_TIMEX_BYTES)  # no mode is set, so this only reads
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(timex)
    except (AttributeError, OSError):
        return None
    return None if state < 0 else state != _TIME_ERROR


def _differences(meeting: Meeting | None) -> list[Difference]:
    if meeting is None or not meeting.is_topic(_topic.name):
        return []
    try:
        tls = meeting.tls.client_context()
    except InputError:
        return []
    answers = all_at_once(lambda endpoint: ask(*endpoint, "/version", tls), meeting.endpoints)
    return [
        Difference(bracketed(*endpoint), answer.ahead_s, answer.doubt_s)
        for endpoint, answer in zip(meeting.endpoints, answers, strict=True)
    ]


def judge(facts: Facts, meeting: Meeting | None) -> list[Finding]:
    return [_judge_kernel(facts), *_judge_differences(facts, meeting)]


def _judge_kernel(facts: Facts) -> Finding:
    shown = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(facts.now))
    if facts.now < RELEASED_AT:
        return _topic.warning(
            "own",
            f"the clock was never set: it shows {shown}",
            "set it (chronyd, ntpd); otherwise certificates are rejected",
        )
    if facts.is_synchronised is None:
        return _topic.skipped("own", f"the clock shows {shown}; the kernel does not say whether it is synchronized")
    if not facts.is_synchronised:
        return _topic.note(
            "own",
            f"the clock shows {shown}, and no time service synchronizes it",
            "holdfast does not need one; to compare logs of several machines, run chronyd or another time service, "
            "unless the host of this container or virtual machine does",
        )
    return _topic.ok("own", f"the clock is synchronized and shows {shown}")


def _judge_differences(facts: Facts, meeting: Meeting | None) -> list[Finding]:
    if meeting is None:
        return []
    if not meeting.is_topic(_topic.name):
        return [
            _topic.skipped(
                "difference", "not measured: the store does not tell the time, and holdfast does not compare clocks"
            )
        ]
    known = [one for one in facts.differences if one.ahead_s is not None]
    if not known:
        return [_topic.skipped("difference", "not measured: no member of etcd told the time")]
    return [_judge_difference(one, has_tls=bool(meeting.tls)) for one in known]


def _judge_difference(one: Difference, *, has_tls: bool) -> Finding:
    ahead_s = one.ahead_s or 0.0
    distance_s = max(0.0, abs(ahead_s) - one.doubt_s)
    direction = "ahead of" if ahead_s > 0 else "behind"
    what = f"the clock of {one.place} is {abs(ahead_s):.0f} s {direction} this machine's"
    if has_tls and distance_s > AHEAD_WITH_TLS_MAX_S:
        return _topic.warning("difference", what, "set the wrong clock; otherwise certificates are rejected")
    if distance_s > AHEAD_MAX_S:
        return _topic.note("difference", what, "holdfast still works, but logs of several machines are hard to compare")
    return _topic.ok(
        "difference", f"the clock of {one.place} differs by less than {distance_s + 2 * one.doubt_s:.1f} s"
    )
