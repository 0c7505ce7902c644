"""The public surface: what every package exports is what the design names, and each name is where it says."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast

PUBLIC = {
    "holdfast.agent": """
        ElasticAgent HealthCheckServer LocalElasticAgent RunResult SimpleElasticAgent TORCHELASTIC_ENABLE_FILE_TIMER
        TORCHELASTIC_HEALTH_CHECK_PORT TORCHELASTIC_TIMER_FILE TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT Worker
        WorkerGroup WorkerSpec WorkerState create_healthcheck_server
    """,
    "holdfast.cli": """
        check_env config_from_args determine_local_world_size env get_args_parser get_rdzv_endpoint get_use_env main
        parse_args parse_min_max_nnodes run run_script_path
    """,
    "holdfast.coordination": """
        BlockingStore CompactedError CoordinationError CoordinationStore EmbeddedServer EmbeddedStore EtcdStore
        LeaseLostError LoopThread MemoryStore StoreFullError StoreRefusedError StoreUnavailableError Watch
    """,
    "holdfast.errors": """
        Category ChildFailedError ErrorHandler HoldfastError InfrastructureError InputError PlatformError ProcessFailure
        UserError get_error_handler record
    """,
    "holdfast.events": """
        Event EventLog EventMetadataValue EventSource NodeState RdzvEvent construct_and_record_rdzv_event event_handler
        record record_rdzv_event set_event_handler
    """,
    "holdfast.launcher": "LaunchConfig elastic_launch launch_agent",
    "holdfast.metrics": """
        ConsoleMetricHandler MetricData MetricHandler MetricStream MetricsConfig NullMetricHandler configure getStream
        get_elapsed_time_ms initialize_metrics prof profile publish_metric put_metric
    """,
    "holdfast.processes": """
        DefaultLogsSpecs LogsDest LogsSpecs MultiprocessContext PContext RunProcsResult SignalException Std
        SubprocessContext TailLog redirect redirect_stderr redirect_stdout start_processes to_map
    """,
    "holdfast.rendezvous": """
        RendezvousClosedError RendezvousConnectionError RendezvousError RendezvousGracefulExitError RendezvousHandler
        RendezvousHandlerCreator RendezvousHandlerRegistry RendezvousInfo RendezvousParameters RendezvousStateError
        RendezvousStoreInfo RendezvousTimeoutError create_rdzv_handler get_rendezvous_handler parse_rendezvous_endpoint
        rendezvous_handler_registry
    """,
    "holdfast.report": "Node Run find_run read_node report_json report_page report_text",
    "holdfast.torchstore": "TorchStoreServer",
    "holdfast.watchdog": """
        FileTimerClient FileTimerRequest FileTimerServer LocalTimerClient LocalTimerServer MultiprocessingRequestQueue
        RequestQueue TimerClient TimerRequest TimerServer configure expires
    """,
    "holdfast.worker": """
        generation heartbeat local_rank local_world_size on_stop rank restart_count run_id stop_reason stop_requested
        time_left_s world_size
    """,
}

SHORT = {"LaunchConfig", "__version__", "elastic_launch", "record"}
"""The names at the top that are no packages."""


@pytest.mark.parametrize("package", PUBLIC)
def test_a_package_exports_its_names_and_no_others(package):
    module = importlib.import_module(package)
    assert module.__all__ == PUBLIC[package].split()
    assert sorted(module.__all__) == module.__all__
    assert set(module.__all__) <= set(dir(module))
    for name in module.__all__:
        assert getattr(module, name) is not None


@pytest.mark.parametrize("package", PUBLIC)
def test_types_and_run_time_agree_on_where_a_name_is(package):
    """The names stand twice in a package, once for type checkers and once for the lazy import."""
    module = importlib.import_module(package)
    source = Path(module.__file__).read_text()
    typed = {name: home for home, name in re.findall(r"from (\S+) import (?:\(\s+)?(\w+) as \2\b", source)}
    assert sorted(typed) == module.__all__
    for name, home in typed.items():
        assert getattr(importlib.import_module(home), name) is getattr(module, name)


def test_packages_are_reached_from_the_top():
    assert {f"holdfast.{name}" for name in holdfast.__all__ if name not in SHORT} == set(PUBLIC)
    assert holdfast.processes.Std.ALL == 3


def test_what_every_program_uses_is_at_the_top():
    from holdfast import LaunchConfig, elastic_launch, record

    assert LaunchConfig is holdfast.launcher.LaunchConfig
    assert elastic_launch is holdfast.launcher.elastic_launch
    assert record is holdfast.errors.record
    assert set(dir(holdfast)) >= SHORT


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"module 'holdfast\.errors' has no attribute 'nonsense'"):
        _ = holdfast.errors.nonsense
    with pytest.raises(ImportError):
        exec("from holdfast.processes import nonsense")


def imported_by(statement: str) -> set[str]:
    """The modules that a statement adds to a bare interpreter."""
    code = f"import sys; before = set(sys.modules); {statement}; print(*sorted(set(sys.modules) - before))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return set(ran.stdout.split())


def test_import_holdfast_imports_nothing_but_itself():
    """Less than 5 ms, said in a way that does not depend on the machine."""
    assert imported_by("import holdfast") == {"__future__", "holdfast", "holdfast._lazy"}


def test_importing_every_package_imports_nothing_else():
    packages = set(PUBLIC)
    assert imported_by(f"import {', '.join(packages)}") == {"__future__", "holdfast", "holdfast._lazy", *packages}
