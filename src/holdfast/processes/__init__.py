"""Starts, watches and stops a set of processes on this machine, keeps their logs, and leaves no orphans."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.processes.command import SubprocessContext as SubprocessContext
    from holdfast.processes.context import PContext as PContext
    from holdfast.processes.function import MultiprocessContext as MultiprocessContext
    from holdfast.processes.interruption import SignalException as SignalException
    from holdfast.processes.logs import DefaultLogsSpecs as DefaultLogsSpecs
    from holdfast.processes.logs import LogsDest as LogsDest
    from holdfast.processes.logs import LogsSpecs as LogsSpecs
    from holdfast.processes.redirects import redirect as redirect
    from holdfast.processes.redirects import redirect_stderr as redirect_stderr
    from holdfast.processes.redirects import redirect_stdout as redirect_stdout
    from holdfast.processes.result import RunProcsResult as RunProcsResult
    from holdfast.processes.starting import start_processes as start_processes
    from holdfast.processes.std import Std as Std
    from holdfast.processes.std import to_map as to_map
    from holdfast.processes.tail import TailLog as TailLog
else:
    from holdfast._lazy import exports

    __getattr__, __dir__, __all__ = exports(
        __name__,
        {
            "command": ("SubprocessContext",),
            "context": ("PContext",),
            "function": ("MultiprocessContext",),
            "interruption": ("SignalException",),
            "logs": ("DefaultLogsSpecs", "LogsDest", "LogsSpecs"),
            "redirects": ("redirect", "redirect_stderr", "redirect_stdout"),
            "result": ("RunProcsResult",),
            "starting": ("start_processes",),
            "std": ("Std", "to_map"),
            "tail": ("TailLog",),
        },
    )
