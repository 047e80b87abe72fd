"""What a bug report says of the machine, as `python -m torch.utils.collect_env` does, without starting CUDA in this process."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping

import torch

from dynadiag.children.forked import run_forked
from dynadiag.record import machine

_COMPILER_LIMIT_S = 20
_GPU_LIMIT_S = 120


def machine_facts(*, with_gpu: bool) -> Mapping[str, str]:
    """Facts by name, in the order of a report; "not known" where nobody could say. `with_gpu` asks a child for the GPU's name."""
    build = torch.version
    return {
        "PyTorch version": torch.__version__,
        "PyTorch git version": build.git_version or "not known",
        "CUDA used to build PyTorch": build.cuda or "none",
        **machine.machine_facts(),
        "C++ compiler": _compiler(),
        "GPU": _gpu() if with_gpu else "none used by the reproducer",
        "CPU": f"{machine.cpu_name()}, {os.cpu_count()} cores, {torch.backends.cpu.get_cpu_capability()}",
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
