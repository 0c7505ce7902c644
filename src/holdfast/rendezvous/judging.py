"""The verdict on a generation that is over: the cause of its failure, and what follows. Pure.

The leader judges once every node of the generation has stopped and reported on its workers. The cause is the first
failure, in the store's order, that is not the victim of another one. If a node was lost, the loss is the cause of
failures that a lost peer can bring about; then no restart is charged. A node that stopped its workers because of the
failure and disappeared only later was not the cause, and its report still counts.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

from msgspec import Struct

from holdfast.errors.kind import FailureKind, cause_of
from holdfast.rendezvous.records import BreakKind, Verdict
from holdfast.rendezvous.restarts import Fault, Past, Ruling, failure_signature, rule

if TYPE_CHECKING:
    from holdfast.rendezvous.decision import Settings
    from holdfast.rendezvous.records import Failure
    from holdfast.rendezvous.view import View

FOLLOWS_FROM_A_LOSS = frozenset(
    {FailureKind.COMMUNICATION, FailureKind.CRASH, FailureKind.EXIT, FailureKind.HANG, FailureKind.TIMEOUT}
)
"""How a worker fails that has lost its peers: its library raises or aborts, its program exits, or it waits too long.
Killed workers, workers that ran out of memory, and exceptions of the program's own have other causes."""


class Judged(Struct, frozen=True):
    """The verdict on the last generation, and what follows from it."""

    verdict: Verdict
    ruling: Ruling


def judge(view: View, settings: Settings) -> Judged | None:
    """The verdict on the last generation. None if it did not fail, or failed only because a node was lost."""
    last, broken = view.generation, view.broken
    if last is None or broken is None or broken.failure is None or broken.kind is not BreakKind.FAILED:
        return None
    if is_loss(view):
        return None
    failures = _failures(view, broken.failure, last.number)
    cause = failures[cause_of(failure.kind for failure in failures)]
    verdict = Verdict(cause, sum(1 + failure.others for failure in failures) - 1, generation=last.number)
    fault = Fault(
        cause.kind, cause.ran_s, _place(cause), cause.hopeless, cause.node, is_of_machine=_is_of_machine(cause)
    )
    past = last.past
    limits = settings.restarts.replace(max_restarts=last.max_restarts)
    remembered = Past(past.spent, past.faults, past.signature, past.node, past.blames, past.left_out)
    return Judged(verdict, rule(remembered, fault, limits, others_suffice=_others_suffice(view, cause, settings)))


def is_loss(view: View) -> bool:
    """Whether the last generation ended because a node was lost: reported, or concluded from its peers' failures."""
    broken = view.broken
    if broken is None or broken.failure is None or view.generation is None:
        return broken is not None and broken.kind is BreakKind.LOST
    failures = _failures(view, broken.failure, view.generation.number)
    # A node that reported its own failure before it was lost is no bystander. A node that stopped its workers and left
    # later was not the cause.
    lost = view.lost.keys() - view.parted.keys() - {failure.node for failure in failures}
    return bool(lost) and all(each.kind in FOLLOWS_FROM_A_LOSS and not each.hopeless for each in failures)


def _others_suffice(view: View, cause: Failure, settings: Settings) -> bool:
    """Whether the job could go on without the node of the cause: enough others are present, and none failed like it."""
    assert view.generation is not None
    left_out = view.generation.past.left_out
    others = [node for name, node in view.nodes.items() if name != cause.node and name not in left_out]
    told = [node.failure for node in others if node.failure is not None and node.stopped == view.generation.number]
    alike = any(each.kind is not FailureKind.COMMUNICATION and _place(each) == _place(cause) for each in told)
    return len(others) >= settings.min_nodes and not alike


def _place(failure: Failure) -> str:
    return failure_signature(failure.kind, failure.exception, failure.where, failure.ran_s)


def _is_of_machine(failure: Failure) -> bool:
    """Whether a hopeless failure may affect one machine only: a module is missing there."""
    return failure.exception.rpartition(".")[2] == "ModuleNotFoundError"


def _failures(view: View, first: Failure, generation: int) -> list[Failure]:
    """All failures of the generation in the order in which the store received them; clocks are never compared.

    The latest report of a node counts: it knows most.
    """
    there = [(view.said[name], name, node) for name, node in view.nodes.items() if node.failure is not None]
    there += [(said, name, node) for name, (node, said) in view.parted.items() if node.failure is not None]
    told = {
        name: node.failure
        for _, name, node in sorted(there, key=itemgetter(0))
        if node.failure is not None and node.stopped == generation
    }
    again = next((name for name, failure in told.items() if failure.rank == first.rank), "")
    if not again and first.kind is FailureKind.COMMUNICATION:
        again = first.node  # the node has found the cause since, and counts the first failure among the others
    return [told.pop(again, first), *told.values()]
