from __future__ import annotations

import os

import pytest

from holdfast.doctor.accelerators import Facts, Smi, Torch, installed_torch, judge, probe
from holdfast.doctor.context import Accelerators
from holdfast.doctor.finding import State

NO_GPU, ONE, TWO = Accelerators(4, 0, 0), Accelerators(4, 1, 0), Accelerators(4, 2, 0)
FILES = ("/dev/nvidia0", "/dev/nvidia1")
CUDA, CPU, ROCM = Torch("2.13.0", cuda="12.6"), Torch("2.13.0+cpu"), Torch("2.13.0", hip="6.4")


@pytest.mark.parametrize(
    ("facts", "workers", "check", "state", "words"),
    [
        (Facts(NO_GPU), 4, "visible", State.OK, "auto gives 4 workers, one for each CPU"),
        (Facts(TWO, FILES), 2, "visible", State.OK, "2 GPUs: --nproc-per-node auto gives 2 workers"),
        (Facts(Accelerators(4, 0, 3)), 2, "visible", State.OK, "3 GPUs of Intel"),
        (Facts(ONE, FILES, hidden_by="CUDA_VISIBLE_DEVICES=1"), 1, "visible", State.NOTE, "1 GPU of 2"),
        (Facts(NO_GPU, FILES, hidden_by="CUDA_VISIBLE_DEVICES="), 1, "visible", State.WARNING, "hides every GPU"),
        (Facts(TWO, FILES), 4, "workers", State.WARNING, "4 workers would share 2 GPUs"),
        (Facts(TWO, FILES, driver="550.54.14"), 2, "driver", State.OK, "550.54.14"),
        (Facts(TWO, FILES, unusable=FILES[1:]), 2, "devices", State.PROBLEM, "may not open /dev/nvidia1"),
        (Facts(TWO, FILES, smi=Smi(error="mismatch")), 2, "driver", State.PROBLEM, "restarted"),
        (Facts(NO_GPU, driver="550.54.14"), 2, "devices", State.WARNING, "--gpus all"),
        (Facts(TWO, FILES, torch=CUDA), 2, "torch", State.OK, "built for CUDA 12.6"),
        (Facts(TWO, FILES, torch=CPU), 2, "torch", State.WARNING, "built for CPUs only, but there are GPUs"),
        (Facts(TWO, FILES, torch=ROCM), 2, "torch", State.WARNING, "NVIDIA's"),
        (Facts(NO_GPU, torch=CUDA), 2, "torch", State.OK, "CUDA 12.6"),
    ],
)
def test_what_is_said_of_gpus(facts, workers, check, state, words):
    found = {finding.check: finding for finding in judge(facts, workers)}[check]
    assert found.state is state
    assert words in f"{found.what} {found.advice}"


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """The root of a machine with two GPUs, one of which was given away, and its nvidia-smi."""
    (tmp_path / "dev").mkdir()
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / "dev" / name).touch()
    driver = tmp_path / "proc/driver/nvidia"
    driver.mkdir(parents=True)
    (driver / "version").write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22 2024\n")
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    return tmp_path


def smi(machine, code):
    program = machine / "bin/nvidia-smi"
    program.write_text(f"#!/bin/sh\n{code}\n")
    program.chmod(0o755)


def test_a_machine_with_gpus_is_read(machine, make_context):
    smi(machine, 'echo "GPU 0: NVIDIA H100 (UUID: GPU-1)"; echo "GPU 1: NVIDIA H100 (UUID: GPU-2)"')
    context = make_context(accelerators=ONE, environ={"CUDA_VISIBLE_DEVICES": "1"})
    facts = probe(context, str(machine))
    assert [os.path.basename(path) for path in facts.devices] == ["nvidia0", "nvidia1"]
    assert (facts.driver, facts.smi, facts.hidden_by) == ("550.54.14", Smi(2), "CUDA_VISIBLE_DEVICES=1")
    assert facts.unusable == ()


def test_a_driver_that_does_not_work_is_quoted(machine, make_context):
    smi(machine, 'echo "Failed to initialize NVML: Driver/library version mismatch" >&2; exit 18')
    facts = probe(make_context(), str(machine))
    assert facts.smi.error == "Failed to initialize NVML: Driver/library version mismatch"


@pytest.mark.torch
def test_torch_is_not_imported_for_its_version():
    import sys
    from importlib.metadata import version

    was_there = "torch" in sys.modules
    assert installed_torch().version == version("torch")
    assert ("torch" in sys.modules) == was_there
