"""How many processor cores this process may use: affinity and the control group's quota, not what the machine has."""

import math
import os
from pathlib import Path

_CPU_MAX = Path("/sys/fs/cgroup/cpu.max")


def quota_cores(cpu_max: str) -> float | None:
    """Cores granted by a cgroup v2 `cpu.max` line ("200000 100000" is 2.0); None when it sets no limit."""
    quota, _, period = cpu_max.strip().partition(" ")
    if quota == "max" or not quota.isdigit() or not period.isdigit() or int(period) == 0:
        return None
    return int(quota) / int(period)


def usable_cores() -> int:
    """At least 1. Spinning threads beyond the quota would only throttle each other."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota = quota_cores(_CPU_MAX.read_text(encoding="ascii"))
    except (OSError, ValueError):
        quota = None
    return max(1, min(cores, math.ceil(quota)) if quota else cores)
