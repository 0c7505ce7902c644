"""Start a training program on any number of workers and machines, and keep it running."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast import (
        agent,
        cli,
        coordination,
        errors,
        events,
        launcher,
        metrics,
        processes,
        rendezvous,
        report,
        torchstore,
        watchdog,
        worker,
    )
else:
    from holdfast._lazy import exports

    __getattr__, __dir__ = exports(
        __name__,
        {
            "agent": (),
            "cli": (),
            "coordination": (),
            "errors": (),
            "events": (),
            "launcher": (),
            "metrics": (),
            "processes": (),
            "rendezvous": (),
            "report": (),
            "torchstore": (),
            "watchdog": (),
            "worker": (),
        },
    )

__version__ = "0.1.0"

__all__ = [
    "__version__",
    "agent",
    "cli",
    "coordination",
    "errors",
    "events",
    "launcher",
    "metrics",
    "processes",
    "rendezvous",
    "report",
    "torchstore",
    "watchdog",
    "worker",
]
