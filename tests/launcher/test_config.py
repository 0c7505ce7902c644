"""The configuration in torch's shape, and the settings that it becomes."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys

import pytest

from holdfast.launcher import LaunchConfig
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
