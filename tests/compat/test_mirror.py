"""Modules with torch's names: importing them, their names, and what is not there."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import holdfast.compat
from holdfast.compat.homes import HOMES, PROGRAMS
from holdfast.compat.mirror import Mirror


@pytest.mark.parametrize("name", HOMES)
def test_every_module_can_be_imported(name):
    module = importlib.import_module(f"holdfast.compat.{name}")
    assert module.__name__ == f"holdfast.compat.{name}"
    assert set(module.__all__) <= set(dir(module))
    for each in module.__all__:
        assert getattr(module, each) is not None


def test_an_import_of_a_module_deep_down():
    import holdfast.compat.elastic.multiprocessing

    assert holdfast.compat.elastic.multiprocessing.Std is holdfast.processes.Std


def test_names_are_our_own():
    from holdfast.compat.elastic.agent.server.api import record as of_events
    from holdfast.compat.elastic.multiprocessing.errors import record as of_errors
    from holdfast.compat.launcher import LaunchConfig
    from holdfast.compat.run import main

    assert of_events is holdfast.events.record
    assert of_errors is holdfast.errors.record
    assert LaunchConfig is holdfast.launcher.LaunchConfig
    assert main is holdfast.cli.main


def test_a_package_has_its_modules_without_an_import():
    code = "import holdfast.compat.elastic.multiprocessing as m; print(m.errors.error_handler.ErrorHandler)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout == "<class 'holdfast.errors.handler.ErrorHandler'>\n"


def test_all_names_at_once():
    names: dict[str, object] = {}
    exec("from holdfast.compat.elastic.timer import *", names)
    assert names["expires"] is holdfast.watchdog.expires


def test_a_missing_name_says_what_is_missing():
    module = importlib.import_module("holdfast.compat.elastic.rendezvous.dynamic_rendezvous")
    missing = r"holdfast has no counterpart of torch\.distributed\.elastic\.rendezvous\.dynamic_rendezvous\.NoName"
    with pytest.raises(AttributeError, match=missing) as raised:
        _ = module.NoName
    assert raised.value.name == "NoName"
    with pytest.raises(ImportError, match=r"'NoName' from 'holdfast\.compat.*homes\.py"):
        exec("from holdfast.compat.elastic.rendezvous.dynamic_rendezvous import NoName")


def test_a_missing_module_is_an_import_error():
    with pytest.raises(ModuleNotFoundError, match=r"holdfast\.compat\.elastic\.nonsense"):
        importlib.import_module("holdfast.compat.elastic.nonsense")


def test_an_import_imports_nothing_that_is_not_used():
    code = "import sys, holdfast.compat.elastic.agent.server.api; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    ours = {name for name in ran.stdout.split() if name.startswith("holdfast.") and ".compat" not in name}
    assert ours == {"holdfast._lazy"}


def test_other_names_and_modules_left_out_are_not_found():
    mirror = Mirror("torch.distributed", without={"elastic.rendezvous.utils"})
    assert mirror.find_spec("torch.distributed") is None
    assert mirror.find_spec("torch.distributed.runs") is None
    assert mirror.find_spec("torch.distributed.elastic.rendezvous.utils") is None
    assert mirror.find_spec("torch.distributed.elastic.rendezvous.api") is not None
    package = mirror.find_spec("torch.distributed.elastic", ["/a/torch/distributed"])
    assert package.submodule_search_locations == ["/a/torch/distributed/elastic"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_has_the_file_of_ours_that_it_is(name):
    module = importlib.import_module(f"holdfast.compat.{name}")
    assert module.__file__ == importlib.import_module(PROGRAMS[name]).__file__


def test_a_program_runs_by_its_name_and_another_module_says_that_it_is_none():
    words = [sys.executable, "-m", "holdfast.compat.run", "--version"]
    ran = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout == f"holdfast {holdfast.__version__}\n"
    words[2] = "holdfast.compat.elastic.timer.api"
    ran = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 1
    assert "No code object available for holdfast.compat.elastic.timer.api" in ran.stderr
