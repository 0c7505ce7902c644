"""How many processors of each kind a job may use here, found out without the libraries that drive them.

What the kernel shows is counted, less what the environment hides. It is an answer for `--nproc-per-node`, not an
inventory: where it is wrong, a number says it better.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

AMD_VISIBLE = ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
"""What hides AMD devices; the first that is set counts."""

INTEL_VENDOR = "0x8086"
INTEL_INTEGRATED = "0000:00:02."
"""The PCI address at which every integrated graphics of Intel sits: a display, not what a job means by an xpu."""

_UNIQUE_NAMES = ("GPU-", "MIG-")

_NUMBER_MAX_DIGITS = 9
"""A longer number is no device."""


def cpu_count() -> int:
    """The CPUs that this process may run on."""
    return len(os.sched_getaffinity(0))


def gpu_count(environ: Mapping[str, str] = os.environ, root: str = "/") -> int:
    """The GPUs of NVIDIA, or else of AMD."""
    if nvidia := _nvidia_devices(root):
        return _visible(nvidia, environ.get("CUDA_VISIBLE_DEVICES"))
    hidden_by = next((environ[name] for name in AMD_VISIBLE if name in environ), None)
    return _visible(_amd_devices(root), hidden_by)


def xpu_count(environ: Mapping[str, str] = os.environ, root: str = "/") -> int:
    """The discrete GPUs of Intel."""
    return _visible(_intel_devices(root), environ.get("ZE_AFFINITY_MASK"))


def accelerator_count(environ: Mapping[str, str] = os.environ, root: str = "/") -> int:
    return gpu_count(environ, root) or xpu_count(environ, root)


def _nvidia_devices(root: str) -> int:
    # A container has the device files of its own share only, while the driver's directory may show all. Without
    # a container the files can be missing until somebody uses the driver.
    files = [name for name in _listed(root, "dev") if re.fullmatch(r"nvidia[0-9]+", name)]
    return len(files or _listed(root, "proc/driver/nvidia/gpus"))


def _amd_devices(root: str) -> int:
    if not os.path.exists(os.path.join(root, "dev/kfd")):
        return 0
    nodes = "sys/class/kfd/kfd/topology/nodes"
    # A node that is a CPU has the id 0; one that belongs to another container cannot be read.
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
    """How many of `count` devices a list such as ``0,2`` or ``GPU-8932f937`` leaves.

    As the drivers read it: the list ends at the first entry that is no device, so ``-1`` hides all.
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
