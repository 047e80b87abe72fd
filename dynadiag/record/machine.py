"""What PyTorch's bug form asks of the machine (`torch/utils/collect_env.py`), as far as it is known without starting a program or CUDA."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from typing import Any

# The packages of collect_env that a compiled program meets, and the libraries whose trackers a report may belong in.
PACKAGES = (
    *("numpy", "optree", "triton", "pytorch-triton", "torchvision", "torchaudio", "torchao", "torchtune", "functorch"),
    *("transformers", "diffusers", "accelerate", "timm", "lightning", "pytorch-lightning", "torch-geometric", "flash-attn", "xformers"),
)


def machine_facts() -> dict[str, str]:
    """Facts by the names that collect_env gives them."""
    version, system = sys.modules.get("torch.version"), os.uname()
    libc = "-".join(text for text in platform.libc_ver() if text)
    # `platform.platform()` and `platform.architecture()` would start `uname` and `file` (Python 3.9 to 3.13).
    return {
        "Is debug build": _said(version, "debug"),
        "ROCm used to build PyTorch": _said(version, "hip"),
        "OS": "-".join((system.sysname, system.release, system.machine, *(("with", libc) if libc else ()))),
        "Libc version": libc or "not known",
        "Python version": f"{platform.python_version()} ({64 if sys.maxsize > 2**32 else 32}-bit runtime)",
        "Nvidia driver version": _driver(),
        "CPU": f"{cpu_name()}, {os.cpu_count()} cores",
        "Versions of relevant libraries": ", ".join(f"{name}=={found}" for name in PACKAGES if (found := installed(name)))
        or "none of them installed",
    }


def installed(package: str) -> str | None:
    """The version of an installed package; None where there is none."""
    try:
        return importlib.metadata.version(package)
    except Exception:  # noqa: BLE001 - border: somebody else's metadata, in the user's process
        return None


def cpu_name() -> str:
    """The model of the CPU as the system tells it."""
    return next((line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), platform.machine())


def _driver() -> str:
    """`NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar ...`."""
    words = next((line.split() for line in _lines("/proc/driver/nvidia/version") if line.startswith("NVRM version")), [])
    return next((word for word in words if word[:1].isdigit() and "." in word), "none")


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:  # noqa: PTH123
            return stream.read(100_000).splitlines()
    except OSError:
        return []


def _said(module: Any, name: str) -> str:
    value = getattr(module, name, None)
    return "none" if value is None else str(value)
