"""Deadlines that workers set for themselves, and the servers that end a worker which misses one."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.watchdog.fifo_client import FileTimerClient as FileTimerClient
    from holdfast.watchdog.fifo_server import FileTimerServer as FileTimerServer
    from holdfast.watchdog.local import LocalTimerClient as LocalTimerClient
    from holdfast.watchdog.local import LocalTimerServer as LocalTimerServer
    from holdfast.watchdog.local import MultiprocessingRequestQueue as MultiprocessingRequestQueue
    from holdfast.watchdog.queue_server import RequestQueue as RequestQueue
    from holdfast.watchdog.queue_server import TimerServer as TimerServer
    from holdfast.watchdog.request import FileTimerRequest as FileTimerRequest
    from holdfast.watchdog.request import TimerRequest as TimerRequest
    from holdfast.watchdog.section import TimerClient as TimerClient
    from holdfast.watchdog.section import configure as configure
    from holdfast.watchdog.section import expires as expires
else:
    from holdfast._lazy import exports

    __getattr__, __dir__, __all__ = exports(
        __name__,
        {
            "fifo_client": ("FileTimerClient",),
            "fifo_server": ("FileTimerServer",),
            "local": ("LocalTimerClient", "LocalTimerServer", "MultiprocessingRequestQueue"),
            "queue_server": ("RequestQueue", "TimerServer"),
            "request": ("FileTimerRequest", "TimerRequest"),
            "section": ("TimerClient", "configure", "expires"),
        },
    )
