"""GPUs: what the kernel shows, what the environment hides, and whether torch was built for them."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from holdfast.doctor.finding import Finding, Topic, counted

if TYPE_CHECKING:
    from holdfast.doctor.context import Accelerators, Context

SMI_MAX_S = 5.0
"""How long nvidia-smi may take. Without persistence mode it wakes every GPU."""

HIDING = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")

_DRIVER = "proc/driver/nvidia/version"
_REASON_CHARS = 200

_topic = Topic("accelerators")


class Torch(NamedTuple):
    """What torch's version file says, read without importing torch."""

    version: str
    cuda: str = ""
    hip: str = ""


class Smi(NamedTuple):
    """What nvidia-smi reports: the number of GPUs, or why there is none."""

    gpus: int = 0
    error: str = ""


class Facts(NamedTuple):
    counts: Accelerators
    devices: tuple[str, ...] = ()
    """/dev/nvidia0 and so on."""

    unusable: tuple[str, ...] = ()
    """The devices that this user may not open."""

    driver: str = ""
    """The version of the NVIDIA driver in the kernel."""

    smi: Smi | None = None
    """None if there is no nvidia-smi."""

    torch: Torch | None = None
    hidden_by: str = ""
    """The variable that restricts the GPUs, and its value."""


def check(context: Context) -> list[Finding]:
    return judge(probe(context), context.workers)


def probe(context: Context, root: str = "/") -> Facts:
    device_directory = os.path.join(root, "dev")
    devices = sorted(
        os.path.join(device_directory, name) for name in _listed(device_directory) if re.fullmatch(r"nvidia\d+", name)
    )
    unusable = tuple(path for path in devices if not os.access(path, os.R_OK | os.W_OK))
    driver = re.search(r"Kernel Module\s+(?:for \S+\s+)?([\d.]+)", _read(os.path.join(root, _DRIVER)))
    hidden_by = next((f"{name}={context.environ[name]}" for name in HIDING if name in context.environ), "")
    return Facts(
        context.accelerators,
        tuple(devices),
        unusable,
        driver[1] if driver else "",
        _smi(shutil.which("nvidia-smi")),
        installed_torch(),
        hidden_by,
    )


def installed_torch() -> Torch | None:
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.origin:
        return None
    text = _read(os.path.join(os.path.dirname(spec.origin), "version.py"))
    said = dict(re.findall(r"^(\w+)\s*(?::[^=]+)?=\s*'([^']*)'", text, re.MULTILINE))
    return Torch(said.get("__version__", "?"), said.get("cuda", ""), said.get("hip", ""))


def _smi(program: str | None) -> Smi | None:
    if program is None:
        return None
    try:
        ran = subprocess.run(  # noqa: S603 - its own path and one option
            [program, "-L"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SMI_MAX_S, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        return Smi(error=f"no answer: {error}"[:_REASON_CHARS])
    gpus = len(re.findall(r"^GPU \d+:", ran.stdout, re.MULTILINE))
    if ran.returncode or not gpus:
        said = " ".join((ran.stdout + ran.stderr).split())
        return Smi(error=said[:_REASON_CHARS] or f"exit code {ran.returncode}")
    return Smi(gpus)


# Judgement


def judge(facts: Facts, workers: int) -> list[Finding]:
    findings = [_judge_counts(facts)]
    findings += _judge_driver(facts)
    findings += _judge_torch(facts)
    if facts.counts.gpus and workers > facts.counts.gpus:
        findings.append(
            _topic.warning(
                "workers",
                f"{workers} workers would share {counted(facts.counts.gpus, 'GPU')}",
                "NCCL refuses two ranks on one GPU: --nproc-per-node gpu starts one for each",
            )
        )
    return findings


def _judge_counts(facts: Facts) -> Finding:
    counts = facts.counts
    gives = f"--nproc-per-node auto gives {counted(counts.auto, 'worker')}"
    if not (counts.gpus or counts.xpus):
        if facts.devices and facts.hidden_by:
            return _topic.warning(
                "visible", f"{facts.hidden_by} hides every GPU: {gives}, one for each CPU", "unset it to use them"
            )
        return _topic.ok("visible", f"no GPU found: {gives}, one for each CPU")
    kind = counted(counts.gpus, "GPU") if counts.gpus else counted(counts.xpus, "GPU") + " of Intel"
    if facts.hidden_by and len(facts.devices) > counts.gpus > 0:
        return _topic.note(
            "visible",
            f"{kind} of {len(facts.devices)}, as {facts.hidden_by} says: {gives}",
            "unset it to use all",
        )
    return _topic.ok("visible", f"{kind}: {gives}")


def _judge_driver(facts: Facts) -> list[Finding]:
    if facts.unusable:
        return [
            _topic.problem(
                "devices",
                f"this user may not open {', '.join(facts.unusable)}",
                "add the user to the group that owns them (video, render), or check the udev rules",
            )
        ]
    if facts.smi is not None and facts.smi.error and (facts.devices or facts.driver):
        return [
            _topic.problem(
                "driver",
                f"nvidia-smi does not work: {facts.smi.error}",
                "after an update, driver and library differ until the machine is restarted; or reinstall the driver",
            )
        ]
    if facts.driver and not facts.devices:
        return [
            _topic.warning(
                "devices",
                f"NVIDIA's driver {facts.driver} is loaded, but /dev has no GPU",
                "in a container: docker run --gpus all; outside, run nvidia-modprobe, which creates the files",
            )
        ]
    if facts.driver:
        return [_topic.ok("driver", f"NVIDIA's driver is {facts.driver}")]
    return []


def _judge_torch(facts: Facts) -> list[Finding]:
    torch = facts.torch
    if torch is None:
        return []
    built_for = f"CUDA {torch.cuda}" if torch.cuda else f"ROCm {torch.hip}" if torch.hip else "CPUs only"
    what = f"torch {torch.version} is built for {built_for}"
    if facts.counts.gpus and not (torch.cuda or torch.hip):
        return [_topic.warning("torch", f"{what}, but there are GPUs", "install a build of torch for them")]
    if torch.hip and facts.devices:
        return [_topic.warning("torch", f"{what}, and the GPUs are NVIDIA's", "install a build of torch for CUDA")]
    return [_topic.ok("torch", what)]


def _listed(directory: str) -> list[str]:
    with suppress(OSError):
        return os.listdir(directory)
    return []


def _read(path: str) -> str:
    with suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        return file.read()
    return ""
