"""The elastic agent: starts the workers of one node, restarts them, and stops them."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.agent.environment import TORCHELASTIC_HEALTH_CHECK_PORT as TORCHELASTIC_HEALTH_CHECK_PORT
    from holdfast.agent.group import RunResult as RunResult
    from holdfast.agent.group import Worker as Worker
    from holdfast.agent.group import WorkerGroup as WorkerGroup
    from holdfast.agent.group import WorkerSpec as WorkerSpec
    from holdfast.agent.health import HealthCheckServer as HealthCheckServer
    from holdfast.agent.health import create_healthcheck_server as create_healthcheck_server
    from holdfast.agent.hooks import ElasticAgent as ElasticAgent
    from holdfast.agent.local import LocalElasticAgent as LocalElasticAgent
    from holdfast.agent.simple import SimpleElasticAgent as SimpleElasticAgent
    from holdfast.agent.state import WorkerState as WorkerState
    from holdfast.agent.timers import TORCHELASTIC_ENABLE_FILE_TIMER as TORCHELASTIC_ENABLE_FILE_TIMER
    from holdfast.agent.timers import TORCHELASTIC_TIMER_FILE as TORCHELASTIC_TIMER_FILE
    from holdfast.agent.uninterruptible import (
        TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT as TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT,
    )
else:
    from holdfast._lazy import exports

    __getattr__, __dir__, __all__ = exports(
        __name__,
        {
            "environment": ("TORCHELASTIC_HEALTH_CHECK_PORT",),
            "group": ("RunResult", "Worker", "WorkerGroup", "WorkerSpec"),
            "health": ("HealthCheckServer", "create_healthcheck_server"),
            "hooks": ("ElasticAgent",),
            "local": ("LocalElasticAgent",),
            "simple": ("SimpleElasticAgent",),
            "state": ("WorkerState",),
            "timers": ("TORCHELASTIC_ENABLE_FILE_TIMER", "TORCHELASTIC_TIMER_FILE"),
            "uninterruptible": ("TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT",),
        },
    )
