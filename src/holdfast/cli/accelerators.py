"""Count the processors of each kind that a job may use here, without the drivers' libraries.

The count is what the kernel shows, less what the environment hides. It serves `--nproc-per-node` and is not an
inventory: where it is wrong, give a number instead.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

AMD_VISIBLE = ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
"""The variables that hide AMD devices. The first that is set counts."""

INTEL_VENDOR = "0x8086"
INTEL_INTEGRATED = "0000:00:02."
"""The PCI address of every integrated Intel GPU: a display, not what a job means by an xpu."""

_UNIQUE_NAMES = ("GPU-", "MIG-")

_NUMBER_MAX_DIGITS = 9
"""A longer number is not a device."""


def cpu_count() -> int:
    """The number of CPUs that this process may run on."""
    return len(os.sched_getaffinity(0))


def gpu_count(environ: Mapping[str, str] = os.environ, root: str = "/") -> int:
    """The number of NVIDIA GPUs, or else of AMD GPUs."""
    if nvidia := _nvidia_devices(root):
        return _visible(nvidia, environ.get("CUDA_VISIBLE_DEVICES"))
    hidden_by = next((environ[name] for name in AMD_VISIBLE if name in environ), None)
    return _visible(_amd_devices(root), hidden_by)


def xpu_count(environ: Mapping[str, str] = os.environ, root: str = "/") -> int:
    """The number of discrete Intel GPUs."""
    return _visible(_intel_devices(root), environ.get("ZE_AFFINITY_MASK"))


def accelerator_count(environ: Mapping[str, str] = os.environ, root: str = "/") -> int:
    return gpu_count(environ, root) or xpu_count(environ, root)


def _nvidia_devices(root: str) -> int:
    # A container has device files only for its own share, while the driver's directory may show all devices. Outside a
    # container the files can be missing until the driver is first used.
    files = [name for name in _listed(root, "dev") if re.fullmatch(r"nvidia[0-9]+", name)]
    return len(files or _listed(root, "proc/driver/nvidia/gpus"))


def _amd_devices(root: str) -> int:
    if not os.path.exists(os.path.join(root, "dev/kfd")):
        return 0
    nodes = "sys/class/kfd/kfd/topology/nodes"
    # A CPU node has the id 0. A node of another container cannot be read.
    return sum(_content(root, nodes, node, "gpu_id") not in ("", "0") for node in _listed(root, nodes))


def _intel_devices(root: str) -> int:
    drm = "sys/class/drm"
    return sum(
        _content(root, drm, name, "device/vendor") == INTEL_VENDOR
        and not os.path.basename(os.path.realpath(os.path.join(root, drm, name, "device"))).startswith(INTEL_INTEGRATED)
        for name in _listed(root, drm)
        if name.startswith("renderD")
    )


def _visible(count: int, listed: str | None) -> int:
    """How many of `count` devices a list such as ``0,2`` or ``GPU-8932f937`` leaves visible.

    As in the drivers, the list ends at the first entry that is not a device, so ``-1`` hides all.
    """
    if listed is None or count == 0:
        return count
    visible = 0
    for entry in listed.split(","):
        name = entry.strip()
        number = name.partition(".")[0]  # 0.1 is a part of device 0
        is_device = (
            len(number) <= _NUMBER_MAX_DIGITS and int(number) < count
            if number.isdecimal()
            else name.startswith(_UNIQUE_NAMES)
        )
        if not is_device:
            break
        visible += 1
    return visible


def _listed(*path: str) -> list[str]:
    with suppress(OSError):
        return os.listdir(os.path.join(*path))
    return []


def _content(*path: str) -> str:
    with suppress(OSError), open(os.path.join(*path), encoding="ascii", errors="replace") as file:
        return file.read().strip()
    return ""
