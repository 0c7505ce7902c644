"""Launch a job from its configuration."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.launcher.config import LaunchConfig as LaunchConfig
    from holdfast.launcher.launching import elastic_launch as elastic_launch
    from holdfast.launcher.launching import launch_agent as launch_agent
else:
    from holdfast._lazy import exports

    __getattr__, __dir__, __all__ = exports(
        __name__,
        {
            "config": ("LaunchConfig",),
            "launching": ("elastic_launch", "launch_agent"),
        },
    )
