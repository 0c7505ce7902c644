"""The settings of a job as one record."""

from __future__ import annotations

import pickle

import pytest

from holdfast.launcher import LaunchConfig
from holdfast.processes.interruption import DEFAULT_SIGNALS
from holdfast.settings import JobSettings, RestartLimits


def test_they_do_not_change():
    settings = JobSettings(1, 2, 3)
    with pytest.raises(AttributeError, match="JobSettings does not change; hang_timeout cannot be set"):
        settings.hang_timeout = 1.0
    assert settings.replace(hang_timeout=1.0).hang_timeout == 1.0
    assert settings.hang_timeout == 0.0


def test_an_unknown_setting_is_refused():
    with pytest.raises(TypeError, match="has no argument 'hang_time'"):
        JobSettings(1, 2, 3, hang_time=1.0)


def test_the_same_fields_as_the_configuration():
    assert JobSettings.names() == LaunchConfig.names()
    assert JobSettings(1, 2, 3) != LaunchConfig(1, 2, 3)


def test_secrets_are_not_shown():
    settings = JobSettings(1, 1, 1, rdzv_configs={"token": "very-secret", "join_timeout": 5})
    assert "very-secret" not in repr(settings)
    assert "'join_timeout': 5" in repr(settings)
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_the_limits_of_restarts():
    settings = JobSettings(1, 1, 1, max_restarts=4, restart_window=60.0, restart_policy="always")
    assert settings.restart_limits == RestartLimits(4, 60.0, "always")
    assert JobSettings(1, 1, 1).restart_limits == RestartLimits(3)


def test_the_default_signals_are_those_of_a_set_of_processes():
    assert JobSettings.signals_to_handle == DEFAULT_SIGNALS
