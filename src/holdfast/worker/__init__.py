"""The API for training programs: rank and world size, heartbeats, and the request to stop.

Its use is optional. It needs only the standard library. In a program that holdfast did not start, the world size is 1
and no stop is ever requested.

```python
from holdfast import worker

for step in range(first_step, last_step):
    train(step)
    worker.heartbeat(step)
    if worker.stop_requested():
        save_checkpoint(step)
        break
```
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.worker.heartbeats import heartbeat as heartbeat
    from holdfast.worker.heartbeats import on_stop as on_stop
    from holdfast.worker.heartbeats import stop_reason as stop_reason
    from holdfast.worker.heartbeats import stop_requested as stop_requested
    from holdfast.worker.heartbeats import time_left_s as time_left_s
    from holdfast.worker.identity import generation as generation
    from holdfast.worker.identity import local_rank as local_rank
    from holdfast.worker.identity import local_world_size as local_world_size
    from holdfast.worker.identity import rank as rank
    from holdfast.worker.identity import restart_count as restart_count
    from holdfast.worker.identity import run_id as run_id
    from holdfast.worker.identity import world_size as world_size
else:
    from holdfast._lazy import exports

    __getattr__, __dir__, __all__ = exports(
        __name__,
        {
            "identity": (
                "generation",
                "local_rank",
                "local_world_size",
                "rank",
                "restart_count",
                "run_id",
                "world_size",
            ),
            "heartbeats": ("heartbeat", "on_stop", "stop_reason", "stop_requested", "time_left_s"),
        },
    )
