"""What a bug report says of the machine, as `python -m torch.utils.collect_env` does, without starting CUDA in this process."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import torch

from dynadiag.reduce.core.isolation import run_forked

_COMPILER_LIMIT_S = 20
_GPU_LIMIT_S = 120


def machine_facts(*, with_gpu: bool) -> Mapping[str, str]:
    """Facts by name, in the order of a report; "not known" where nobody could say. `with_gpu` asks a child for the GPU's name."""
    build = torch.version
    return {
        "PyTorch version": torch.__version__,
        "PyTorch git version": build.git_version or "not known",
        "Is debug build": str(build.debug),
        "CUDA used to build PyTorch": build.cuda or "none",
        "ROCm used to build PyTorch": build.hip or "none",
        "OS": platform.platform(),
        "C++ compiler": _compiler(),
        "Libc version": "-".join(platform.libc_ver()) if platform.libc_ver()[0] else "not known",
        "Python version": f"{sys.version.split()[0]} ({platform.architecture()[0]} runtime)",
        "GPU": _gpu() if with_gpu else "none used by the reproducer",
        "Triton": _installed("triton"),
        "CPU": f"{_cpu()}, {os.cpu_count()} cores, {torch.backends.cpu.get_cpu_capability()}",
    }


def _compiler() -> str:
    """The first line of what inductor's C++ compiler says of itself: `CXX`, else g++, clang++ (torch/_inductor/cpp_builder.py, 2.11)."""
    found = next((path for name in (os.environ.get("CXX"), "g++", "clang++") if name and (path := shutil.which(name))), None)
    if found is None:
        return "none found"
    try:
        done = subprocess.run([found, "--version"], capture_output=True, text=True, errors="replace", timeout=_COMPILER_LIMIT_S)
    except (OSError, subprocess.TimeoutExpired):
        return f"{found} does not respond"
    return (done.stdout.strip().splitlines() or ["not known"])[0]


def _gpu() -> str:
    """Asked in a child: this process must never initialise CUDA while it forks."""
    report = run_forked(lambda tell: tell({"name": torch.cuda.get_device_name(0)}), timeout_s=_GPU_LIMIT_S)
    return str(next((message["name"] for message in report.messages if "name" in message), "not known"))


def _installed(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
