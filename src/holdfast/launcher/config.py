"""The configuration of a job, in the shape that torch has it. Unlike `JobSettings` it can change."""

from __future__ import annotations

from holdfast.errors.tree import InputError
from holdfast.processes.arguments import START_METHODS
from holdfast.settings import RESTART_POLICIES, STORE_HOSTS, JobSettings, SettingsFields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

RENDEZVOUS_TIMEOUT_S = 900
"""How long a static rendezvous waits for its store by default."""

UNSET_TIMEOUT_S = -1


class LaunchConfig(SettingsFields):
    def __post_init__(self) -> None:
        for name in ("rdzv_configs", "metrics_cfg"):
            _refuse(name, getattr(self, name), _mapping)
        super().__post_init__()
        # As in torch, the older argument still wins.
        self.rdzv_configs.setdefault("timeout", RENDEZVOUS_TIMEOUT_S)
        if self.rdzv_timeout != UNSET_TIMEOUT_S:
            self.rdzv_configs["timeout"] = self.rdzv_timeout

    def check(self) -> None:
        """Raise InputError for the first field with a value that no job can have."""
        for name, problem_of in _CHECKS.items():
            _refuse(name, getattr(self, name), problem_of)
        if self.max_nodes < self.min_nodes:
            raise InputError(f"LaunchConfig(max_nodes={self.max_nodes}): must be min_nodes or more: {self.min_nodes}")

    def settings(self) -> JobSettings:
        """The settings as they are now."""
        return JobSettings(**{name: getattr(self, name) for name in self.names()})


def _refuse(name: str, value: object, problem_of: Callable[[Any], str]) -> None:
    problem = problem_of(value)
    if problem:
        shown = "" if name == "rdzv_configs" else repr(value)  # it may hold a password
        raise InputError(f"LaunchConfig({name}={shown}): {problem}")


# A check returns what is wrong with a value, or "".


def _whole(least: int) -> Callable[[Any], str]:
    def problem_of(value: Any) -> str:
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            return f"must be a whole number, not {_type(value)}"
        return "" if value >= least else f"must be at least {least}"

    return problem_of


def _seconds(value: Any) -> str:
    """Anything that is not a finite number of seconds, 0 or more."""
    if isinstance(value, (str, bytes, bool)) or not hasattr(value, "__float__"):
        return f"must be a number of seconds, not {_type(value)}"
    return "" if 0 <= value < float("inf") else "must be a number of seconds, 0 or more"


def _seconds_or(special: object) -> Callable[[Any], str]:
    return lambda value: "" if value == special else _seconds(value)


def _interval(value: Any) -> str:
    return _seconds(value) or ("" if value > 0 else "must be a number of seconds above 0")


def _text(value: Any) -> str:
    return "" if isinstance(value, str) else f"must be a str, not {_type(value)}"


def _name(value: Any) -> str:
    return _text(value) or ("" if value else "must not be empty")


def _text_or_none(value: Any) -> str:
    return "" if value is None else _text(value)


def _flag(value: Any) -> str:
    return "" if isinstance(value, bool) else f"must be True or False, not {_type(value)}"


def _mapping(value: Any) -> str:
    if value is None:
        return ""
    if not hasattr(value, "keys"):
        return f"must be a dict, not {_type(value)}"
    return next((f"the names must be str, not {_type(key)}" for key in value if not isinstance(key, str)), "")


def _texts(value: Any) -> str:
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        return f"must be a list of str, not {_type(value)}"
    return next((f"must be a list of str, without {_type(item)}" for item in value if not isinstance(item, str)), "")


def _texts_or_none(value: Any) -> str:
    return "" if value is None else _texts(value)


def _one_of(*choices: str) -> Callable[[Any], str]:
    return lambda value: "" if value in choices else f"choose from {', '.join(choices)}"


def _warm(value: Any) -> str:
    return "" if isinstance(value, bool) else _texts(value)


def _logs_specs(value: Any) -> str:
    return "" if value is None or hasattr(value, "reify") else f"must be a LogsSpecs, not {_type(value)}"


def _signals(value: Any) -> str:
    if problem := _text(value):
        return problem
    from holdfast.processes.interruption import SIGNALS_VARIABLE, signals_to_handle

    try:
        signals_to_handle(value)
    except InputError as error:
        return str(error).removeprefix(f"{SIGNALS_VARIABLE}={value!r}: ")
    return ""


def _event_handler(value: Any) -> str:
    if problem := _name(value):
        return problem
    if value != "null":
        from holdfast.events import event_handler

        try:
            event_handler(value)
        except InputError as error:
            return str(error)
    return ""


def _type(value: object) -> str:
    return type(value).__name__


_CHECKS: dict[str, Callable[[Any], str]] = {
    "min_nodes": _whole(1),
    "max_nodes": _whole(1),
    "nproc_per_node": _whole(1),
    "logs_specs": _logs_specs,
    "run_id": _text_or_none,
    "role": _text,
    "rdzv_endpoint": _text,
    "rdzv_backend": _name,
    "rdzv_configs": _mapping,
    "rdzv_timeout": _seconds_or(UNSET_TIMEOUT_S),
    "max_restarts": _whole(0),
    "monitor_interval": _interval,
    "start_method": _one_of(*START_METHODS),
    "log_line_prefix_template": _text_or_none,
    "metrics_cfg": _mapping,
    "local_addr": _text_or_none,
    "event_log_handler": _event_handler,
    "numa_options": lambda _: "",
    "signals_to_handle": _signals,
    "duplicate_stdout_filters": _texts_or_none,
    "duplicate_stderr_filters": _texts_or_none,
    "virtual_local_rank": _flag,
    "shutdown_timeout": _seconds_or(None),
    "exit_barrier_timeout": _seconds,
    "stop_grace": _seconds,
    "store_host": _one_of(*STORE_HOSTS),
    "restart_window": _seconds,
    "restart_policy": _one_of(*RESTART_POLICIES),
    "hang_timeout": _seconds,
    "warm": _warm,
    "strict_exit": _flag,
}
"""What is wrong with a value of each field."""
