"""Start a training program on any number of workers and machines, and keep it running."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast import agent as agent
    from holdfast import cli as cli
    from holdfast import coordination as coordination
    from holdfast import errors as errors
    from holdfast import events as events
    from holdfast import launcher as launcher
    from holdfast import metrics as metrics
    from holdfast import processes as processes
    from holdfast import rendezvous as rendezvous
    from holdfast import report as report
    from holdfast import torchstore as torchstore
    from holdfast import watchdog as watchdog
    from holdfast import worker as worker
    from holdfast.errors.recording import record as record
    from holdfast.launcher.config import LaunchConfig as LaunchConfig
    from holdfast.launcher.launching import elastic_launch as elastic_launch
else:
    from holdfast._lazy import exports

    __getattr__, __dir__, __all__ = exports(
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
            "errors.recording": ("record",),
            "launcher.config": ("LaunchConfig",),
            "launcher.launching": ("elastic_launch",),
        },
    )
    __all__ += ["__version__"]

__version__ = "0.1.0"
