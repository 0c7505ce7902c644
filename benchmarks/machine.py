"""What a measurement was made on."""

from __future__ import annotations

import os
import platform
import time
from importlib.metadata import version


def machine() -> dict[str, str]:
    return {
        "holdfast": version("holdfast"),
        "torch": version("torch"),
        "Python": platform.python_version(),
        "kernel": f"{platform.system()} {platform.release().partition('-')[0]}",
        "processors": f"{len(os.sched_getaffinity(0))} of {_processor()}",
        "memory": f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB",
        "on": time.strftime("%Y-%m-%d"),
        "load before": f"{os.getloadavg()[0]:.1f}",
    }


def _processor() -> str:
    with open("/proc/cpuinfo") as file:
        names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    return names[0] if names else platform.machine()
