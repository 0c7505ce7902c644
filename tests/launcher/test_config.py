"""The configuration in torch's shape, and the settings that it becomes."""

from __future__ import annotations

import inspect
import json
import math
import subprocess
import sys
from fractions import Fraction

import pytest

from holdfast.errors import InputError
from holdfast.launcher import LaunchConfig, launch_agent
from holdfast.settings import JobSettings


def test_the_configuration_has_torchs_defaults():
    config = LaunchConfig(1, 2, 3)
    assert config.rdzv_configs == {"timeout": 900}
    assert LaunchConfig(1, 1, 1, rdzv_timeout=5).rdzv_configs == {"timeout": 5}
    assert LaunchConfig(1, 1, 1, rdzv_configs={"timeout": 7}).rdzv_configs == {"timeout": 7}
    assert LaunchConfig(1, 2, 3) == config
    assert "nproc_per_node=3" in repr(config)


@pytest.mark.torch
def test_the_configuration_has_torchs_fields():
    script = (
        "import dataclasses, json; from torch.distributed.launcher.api import LaunchConfig\n"
        "print(json.dumps({f.name: getattr(LaunchConfig(1, 2, 3), f.name) for f in dataclasses.fields(LaunchConfig)}"
        ", default=str))"
    )
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, check=True, timeout=120
    )
    theirs = json.loads(ran.stdout.splitlines()[-1])
    ours = vars(LaunchConfig(1, 2, 3))
    # Torch decides on these at once; ours are decided when the job starts.
    theirs.pop("logs_specs")
    assert theirs.pop("shutdown_timeout") == 30
    assert {name: ours[name] for name in theirs} == theirs


def test_it_can_change_and_its_settings_are_those_of_that_moment():
    config = LaunchConfig(1, 2, 3)
    config.hang_timeout = 5.0
    config.not_a_setting = 1
    settings = config.settings()
    config.hang_timeout = 6.0
    config.rdzv_configs["token"] = "later"
    assert type(settings) is JobSettings
    assert settings.hang_timeout == 5.0
    assert settings.rdzv_configs == {"timeout": 900}


def test_a_callers_dict_is_copied():
    given = {"a": 1}
    LaunchConfig(1, 2, 3, rdzv_configs=given)
    assert given == {"a": 1}


def test_help_shows_the_parameters():
    parameters = inspect.signature(LaunchConfig).parameters
    assert list(parameters)[:3] == ["min_nodes", "max_nodes", "nproc_per_node"]
    assert (parameters["max_restarts"].default, parameters["max_restarts"].annotation) == (3, "int")
    assert "hang_timeout: after this many seconds" in inspect.getdoc(LaunchConfig)


WRONG = {
    "min_nodes": ["1", 1.0, None, 0, True],
    "max_nodes": ["1", 1.0, None, 0],
    "nproc_per_node": ["2", 2.0, "gpu", None, 0, -1, True],
    "logs_specs": ["/logs"],
    "run_id": [7],
    "role": [None, 1],
    "rdzv_endpoint": [None, ("host", 1)],
    "rdzv_backend": ["", None],
    "rdzv_configs": ["a=1", {1: 2}],
    "rdzv_timeout": ["5", -2, math.nan, math.inf],
    "max_restarts": ["3", 3.0, -1, None],
    "monitor_interval": ["1", 0, -1, math.nan, math.inf, None],
    "start_method": ["thread", None],
    "log_line_prefix_template": [1],
    "metrics_cfg": [["console"]],
    "local_addr": [1],
    "event_log_handler": ["", None, "nonsense"],
    "signals_to_handle": [["SIGTERM"], "SIGNONE", "SIGKILL"],
    "duplicate_stdout_filters": ["text", [1], 5],
    "duplicate_stderr_filters": ["text", [1], 5],
    "virtual_local_rank": [1, "yes", None],
    "shutdown_timeout": ["3", -1, math.nan, math.inf],
    "exit_barrier_timeout": ["3", -1, math.nan, math.inf, None],
    "stop_grace": ["3", -1, math.nan, math.inf, None],
    "store_host": ["me", None],
    "restart_window": ["3", -1, math.nan, math.inf, None],
    "restart_policy": ["never", None],
    "hang_timeout": ["5", -5, math.nan, math.inf, None],
    "warm": ["torch", [1], None],
    "strict_exit": [1, None],
}


def test_every_field_is_checked():
    """But `numa_options`, which belong to torch and have no effect here."""
    assert {*WRONG, "numa_options"} == set(LaunchConfig.names())


@pytest.mark.parametrize(("field", "value"), [(field, value) for field in WRONG for value in WRONG[field]])
def test_a_wrong_value_is_named_before_anything_starts(field, value):
    with pytest.raises(InputError, match=rf"^LaunchConfig\({field}="):
        launch_agent(LaunchConfig(**{"min_nodes": 1, "max_nodes": 1, "nproc_per_node": 1, field: value}), "true", [])


def test_fewer_nodes_at_most_than_at_least_are_refused():
    with pytest.raises(InputError, match=r"LaunchConfig\(max_nodes=1\): must be min_nodes or more: 2"):
        LaunchConfig(2, 1, 1).check()


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"rdzv_timeout": 5, "shutdown_timeout": 0, "monitor_interval": Fraction(1, 2)},
        {"warm": ["json"], "hang_timeout": 0, "duplicate_stdout_filters": ("a", "b"), "event_log_handler": "console"},
    ],
)
def test_a_right_value_passes(fields):
    LaunchConfig(1, 1, 1, **fields).check()


def test_a_setting_that_may_be_a_password_is_not_shown():
    with pytest.raises(InputError) as raised:
        LaunchConfig(1, 1, 1, rdzv_configs="password=secret")
    assert "secret" not in str(raised.value)


def test_every_field_is_documented():
    text = inspect.getdoc(LaunchConfig)
    assert [name for name in LaunchConfig.names() if f"    {name}: " not in text] == []
