"""Whether and when a failed job is restarted. Pure, and the same for one node and for many.

- A failure that cannot go away by itself is not retried: a syntax error, a missing module, arguments that the program
  refuses, and an exception that came twice at the same line within seconds.
- The budget is `max_restarts`. With a window, workers that ran that long before a failure get the whole budget again.
- After the second fault in a row that a machine or a network may have caused, there is a pause, which doubles.
- A node that was the cause again and again is left out, as long as the others suffice. So is a node that alone fails
  twice at the same line, or lacks a module: such a fault need not end a job that can do without the node.

With the policy ``always`` there is only the budget, as under torchrun.
"""

from __future__ import annotations

from holdfast.errors.diagnosis import is_usage_error
from holdfast.errors.kind import INFRASTRUCTURE, FailureKind
from holdfast.settings import ALWAYS, AUTO

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

    from holdfast.errors import ProcessFailure
    from holdfast.settings import RestartLimits

FAST_S = 10.0
"""A worker that fails within this time fails at once. If that happens twice at the same line, it will happen again."""

STEADY_S = 60.0
"""Workers that ran this long were healthy: earlier failures are forgotten."""

PAUSE_MIN_S = 0.5
"""The first pause, after the second fault in a row."""

PAUSE_MAX_S = 30.0
"""The longest pause."""

NODE_FAULTS_MAX = 3
"""A node that was the cause this many times in a row is left out while others suffice."""

NEVER_GOES_AWAY = {
    "SyntaxError": "a syntax error does not go away by itself",
    "IndentationError": "a syntax error does not go away by itself",
    "TabError": "a syntax error does not go away by itself",
    "ModuleNotFoundError": "a missing module will be missing again",
    "NoMainGuardError": "every worker would import the launch again",
}

MAY_GO_AWAY = frozenset(
    {
        *(
            "OSError",
            "TimeoutError",
            "ConnectionError",
            "ConnectionRefusedError",
            "BlockingIOError",
            "InterruptedError",
        ),
        *("HTTPError", "URLError", "SSLError", "gaierror", "OutOfMemoryError", "AcceleratorError", "KeyboardInterrupt"),
    }
)
"""Exceptions that come from outside the program: two at the same line prove nothing."""

MAY_GO_AWAY_ENDINGS = ("Timeout", "TimeoutError", "ConnectionError", "ConnectError", "HTTPError")
"""The endings of libraries' names for such exceptions: ReadTimeout, EndpointConnectionError, HfHubHTTPError."""


def hopeless(failure: ProcessFailure) -> str:
    """Why no restart can help after this failure; "" if one may help."""
    name = failure.exception.rpartition(".")[2]
    if name in NEVER_GOES_AWAY and not _is_of_no_file(failure.message):
        return NEVER_GOES_AWAY[name]
    if failure.kind is FailureKind.EXIT and is_usage_error(failure.exitcode, failure.stderr):
        return "the program refused its arguments, and will refuse them again"
    return ""


def _is_of_no_file(traceback: str) -> bool:
    """Whether the last quoted line is not from a file: a syntax error in `eval`'s data may affect one batch only."""
    return traceback[traceback.rfind('File "') :].startswith('File "<')


def failure_signature(kind: FailureKind, exception: str, where: str, ran_s: float) -> str:
    """An identifier that recognises a repeated failure: for an exception within seconds, its class and its line."""
    name = exception.rpartition(".")[2]
    is_outside = name in MAY_GO_AWAY or name.endswith(MAY_GO_AWAY_ENDINGS)
    is_known = kind is FailureKind.EXCEPTION and where and not is_outside
    return f"{name} at {where}" if is_known and ran_s < FAST_S else ""


class Fault:
    """The facts that a restart decision needs: how a worker failed, where in the program, and on which node.

    `is_of_machine` if the fault is hopeless here, but another machine may not have it.
    """

    __slots__ = ("hopeless", "is_of_machine", "kind", "node", "ran_s", "signature")

    def __init__(
        self,
        kind: FailureKind,
        ran_s: float,
        signature: str = "",
        hopeless: str = "",
        node: str = "",
        *,
        is_of_machine: bool = False,
    ) -> None:
        self.kind = kind
        self.ran_s = ran_s
        self.signature = signature
        self.hopeless = hopeless
        self.node = node
        self.is_of_machine = is_of_machine


class Past:
    """The memory of earlier failures.

    Attributes:
        spent: restarts that the budget has paid for.
        faults: faults in a row that a machine or a network may have caused.
        signature: the signature of the last failure, if it came within seconds.
        node: the node that caused the last failures, and `blames` of them in a row.
        left_out: the nodes that are left out while others suffice.
    """

    __slots__ = ("blames", "faults", "left_out", "node", "signature", "spent")

    def __init__(
        self,
        spent: int = 0,
        faults: int = 0,
        signature: str = "",
        node: str = "",
        blames: int = 0,
        left_out: Collection[str] = (),
    ) -> None:
        self.spent = spent
        self.faults = faults
        self.signature = signature
        self.node = node
        self.blames = blames
        self.left_out = tuple(left_out)

    def __repr__(self) -> str:
        return f"Past({', '.join(f'{name}={getattr(self, name)!r}' for name in self.__slots__)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Past) and repr(self) == repr(other)

    __hash__ = None  # type: ignore[assignment]  # the fields can change


class Ruling:
    """The consequence of a failure: whether there is a restart, after which pause, why not, and what to remember.

    `is_early` if the job ends although the budget has restarts left.
    """

    __slots__ = ("is_early", "past", "pause_s", "reason", "restarts")

    def __init__(self, past: Past, reason: str = "", pause_s: float = 0.0, *, is_early: bool = False) -> None:
        self.past = past
        self.reason = reason
        self.pause_s = pause_s
        self.is_early = is_early
        self.restarts = not reason


def rule(past: Past, fault: Fault, limits: RestartLimits, *, others_suffice: bool = False) -> Ruling:
    """The ruling on `fault`, given the failures before it. Without a restart, the reason says why.

    `others_suffice` if the job can go on without the node of the fault, and no other node failed in the same way.
    """
    is_auto = limits.policy == AUTO
    refills = 0 < limits.window_s <= fault.ran_s
    spent = 0 if refills else past.spent
    if spent >= limits.max_restarts:
        return Ruling(past, f"restarts: {spent} of {limits.max_restarts}")
    is_again = fault.signature != "" and fault.signature == past.signature
    # The same line on another node than before: the fault is in the program, not the machine.
    is_spared = others_suffice and fault.node != "" and (not is_again or fault.node == past.node)
    if is_auto and fault.hopeless and not (is_spared and fault.is_of_machine):
        return Ruling(past, f"not restarted: {fault.hopeless}", is_early=True)
    if is_auto and is_again and not is_spared:
        reason = f"not restarted: {fault.signature} twice within seconds; --restart-policy {ALWAYS} ignores this"
        return Ruling(past, reason, is_early=True)
    steady = fault.ran_s >= STEADY_S
    faults = 0
    if is_auto and fault.kind in INFRASTRUCTURE:
        faults = 1 if steady else past.faults + 1
    blames = past.blames + 1 if fault.node == past.node and not steady else 1
    left_out = past.left_out
    is_bad = is_again or fault.hopeless != "" or blames >= NODE_FAULTS_MAX
    if is_auto and fault.node and is_bad and fault.node not in left_out:
        left_out = (*left_out, fault.node)
    remembered = Past(spent + 1, faults, fault.signature, fault.node, blames, left_out)
    return Ruling(remembered, pause_s=_pause_s(faults))


def _pause_s(faults: int) -> float:
    """The pause before the next attempt. The first fault costs no time: machines fail once and recover."""
    return 0.0 if faults < 2 else min(PAUSE_MIN_S * 2.0 ** (faults - 2), PAUSE_MAX_S)  # noqa: PLR2004 - the second
