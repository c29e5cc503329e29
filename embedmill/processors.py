"""What this machine's processors are, and how many of them this process may use."""

from __future__ import annotations

import math
import os
from functools import lru_cache
from pathlib import Path

# Flags of /proc/cpuinfo: AVX-512 and AMX on x86, the BF16 extension on ARM.
_BFLOAT16_FLAGS = {"avx512_bf16", "amx_bf16", "bf16"}
_NVIDIA_DRIVER = Path("/dev/nvidiactl")
_CPU_INFO = Path("/proc/cpuinfo")
_CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def usable_cores() -> int:
    """Cores that this process may keep busy: its affinity, within the container's quota."""
    cores = len(os.sched_getaffinity(0))
    try:
        quota, period = _CPU_QUOTA.read_text().split()
    except (OSError, ValueError):
        return cores
    return cores if quota == "max" else max(1, min(cores, math.ceil(int(quota) / int(period))))


def given_threads() -> int:
    """Threads that computing may use here: ``OMP_NUM_THREADS``, which Ray sets, else all cores."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    return int(given) if given.isdigit() and int(given) > 0 else usable_cores()


def multiplies_bfloat16(flags: frozenset[str]) -> bool:
    """Whether a processor with these flags multiplies bfloat16 in hardware."""
    return not _BFLOAT16_FLAGS.isdisjoint(flags)


def has_nvidia_driver() -> bool:
    """Whether there may be a GPU that CUDA can use; asked without torch."""
    return _NVIDIA_DRIVER.exists()


@lru_cache
def cpu_flags() -> frozenset[str]:
    """Flags of the first processor; none where the system does not tell."""
    # "flags" on x86, "Features" on ARM.
    return frozenset(_first_line("flags", "Features").split())


@lru_cache
def cpu_name() -> str:
    """Model of the first processor; empty where the system does not tell."""
    return _first_line("model name", "CPU implementer").strip()


def _first_line(*names: str) -> str:
    try:
        lines = _CPU_INFO.read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    found = (line for line in lines if line.startswith(names))
    return next(found, "").partition(":")[2]
