"""What vLLM's build for the CPU needs of a machine beside its packages."""

import os
import shutil
import sys
import sysconfig
from pathlib import Path

# Two test workers, each with a server (3.7 GB in three processes) and a training of 135 million weights (3 GB).
FREE_GB = 15.0
MEMINFO = Path("/proc/meminfo")
CGROUPS = Path("/sys/fs/cgroup")
# Most that a group of processes may hold, and what it holds, in bytes: version 2, and 1.
LIMITS = (
    ("memory.max", "memory.current"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
)


def why_vllm_cannot_run():
    """Why it cannot run on this machine; None if it can."""
    if not sys.platform.startswith("linux"):
        return None
    return _missing_tool() or _missing_headers() or _little_memory()


def _missing_tool():
    """It asks `lscpu` for the cores, and compiles the count of likelier tokens when it is first asked for one."""
    missing = [name for name in ("lscpu", os.environ.get("CXX", "g++")) if shutil.which(name) is None]
    return f"vLLM needs {' and '.join(missing)} when it runs" if missing else None


def _missing_headers():
    header = Path(sysconfig.get_path("include"), "Python.h")
    return None if header.exists() else f"vLLM compiles against {header}, which is not there"


def _little_memory():
    free_gb = min([_available_bytes(), *_left_in_group()]) / 1e9
    if free_gb >= FREE_GB:
        return None
    return f"tests with vLLM take {FREE_GB} GB of memory, {free_gb:.1f} GB are free"


def _available_bytes():
    told = dict(line.split(":") for line in MEMINFO.read_text().splitlines())
    return int(told["MemAvailable"].split()[0]) * 1024


def _left_in_group():
    """What is left below the limit of this container, as vLLM counts it: cached files are not free to it."""
    for limit, used in LIMITS:
        most, now = CGROUPS / limit, CGROUPS / used
        if most.exists() and most.read_text().strip() != "max":
            yield int(most.read_text()) - int(now.read_text())
