"""Where the names of torch's modules are here. The modules are named as below ``torch.distributed``."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_AGENT = "holdfast.agent"
_CLI = "holdfast.cli"
_ERRORS = "holdfast.errors"
_EVENTS = "holdfast.events"
_INTERNALS = "holdfast.compat.internals"
_LAUNCHER = "holdfast.launcher"
_METRICS = "holdfast.metrics"
_PROCESSES = "holdfast.processes"
_RENDEZVOUS = "holdfast.rendezvous"
_WATCHDOG = "holdfast.watchdog"

HOMES: Mapping[str, tuple[str, ...]] = {
    "run": (_CLI, _LAUNCHER, _PROCESSES, _ERRORS),
    "launch": ("holdfast.cli.legacy", _CLI),
    "launcher": (_LAUNCHER,),
    "launcher.api": (_LAUNCHER, _AGENT, _PROCESSES, _ERRORS, _RENDEZVOUS),
    "elastic": (),
    "elastic.agent": (),
    "elastic.agent.server": (_AGENT,),
    "elastic.agent.server.api": (_AGENT, _EVENTS, _METRICS, _PROCESSES, _ERRORS, _RENDEZVOUS, _INTERNALS),
    "elastic.agent.server.local_elastic_agent": (_AGENT, _EVENTS, _METRICS, _PROCESSES),
    "elastic.agent.server.health_check_server": (_AGENT,),
    "elastic.multiprocessing": (_PROCESSES, _ERRORS),
    "elastic.multiprocessing.api": (_PROCESSES, _ERRORS),
    "elastic.multiprocessing.errors": (_ERRORS,),
    "elastic.multiprocessing.errors.error_handler": (_ERRORS,),
    "elastic.multiprocessing.errors.handlers": (_ERRORS,),
    "elastic.multiprocessing.redirects": (_PROCESSES,),
    "elastic.multiprocessing.tail_log": (_PROCESSES,),
    "elastic.rendezvous": (_RENDEZVOUS, "holdfast.rendezvous.registry"),
    "elastic.rendezvous.api": (_RENDEZVOUS, "holdfast.rendezvous.registry"),
    "elastic.rendezvous.registry": (_RENDEZVOUS, "holdfast.rendezvous.registry"),
    "elastic.rendezvous.static_tcp_rendezvous": (_RENDEZVOUS, "holdfast.rendezvous.static"),
    "elastic.rendezvous.dynamic_rendezvous": (_RENDEZVOUS, _EVENTS),
    "elastic.rendezvous.c10d_rendezvous_backend": (_RENDEZVOUS, _EVENTS),
    "elastic.rendezvous.utils": (_RENDEZVOUS,),
    "elastic.timer": (_WATCHDOG,),
    "elastic.timer.api": (_WATCHDOG,),
    "elastic.timer.file_based_local_timer": (_WATCHDOG,),
    "elastic.timer.local_timer": (_WATCHDOG,),
    "elastic.events": (_EVENTS,),
    "elastic.events.api": (_EVENTS,),
    "elastic.events.handlers": (_EVENTS,),
    "elastic.metrics": (_METRICS,),
    "elastic.metrics.api": (_METRICS,),
}
"""For each module, where its names are looked for. The first one that has a name counts."""

PARTIAL = frozenset(
    (
        "elastic.rendezvous.dynamic_rendezvous",
        "elastic.rendezvous.c10d_rendezvous_backend",
        "elastic.rendezvous.utils",
    )
)
"""The modules whose purpose is served differently here, so that only a few of their names have a counterpart.

In their place, `holdfast exec` keeps torch's own: a rendezvous that a program builds from them works with our agents.
"""

PROGRAMS: Mapping[str, str] = {"run": "holdfast.run", "launch": "holdfast.launch"}
"""The modules that ``python -m`` can run, and the module of ours that runs then."""
