"""What every program writes outside of its own folder: temporary files, devices, and caches that hold nothing of a run's data."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_DEVICES: Final = ("/dev", "/proc", "/sys", "/run/nscd", "/run/nvidia", "/run/systemd", "/run/dbus", "/run/user", "/run/lock")
_CACHES: Final = (
    "XDG_CACHE_HOME",
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "TRITON_HOME",
    "TORCH_HOME",
    "TORCH_EXTENSIONS_DIR",
    "HF_HOME",
    "HF_HUB_CACHE",
    "HUGGINGFACE_HUB_CACHE",
    "HF_DATASETS_CACHE",
    "TRANSFORMERS_CACHE",
    "CUDA_CACHE_PATH",
    "NUMBA_CACHE_DIR",
    "MPLCONFIGDIR",
    "PYTHONPYCACHEPREFIX",
    "KERAS_HOME",
    "NLTK_DATA",
)
_IN_HOME: Final = (".cache", ".triton", ".nv", ".config/matplotlib", ".keras", "nltk_data")


def ordinary_folders(environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Folders (real paths) in which writing says nothing of what a program leaves."""
    folders = [*_DEVICES, tempfile.gettempdir(), environment.get("TMPDIR", "")]
    folders += [environment.get(name, "") for name in _CACHES]
    home = environment.get("HOME") or str(Path("~").expanduser())
    folders += [f"{home}/{name}" for name in _IN_HOME]
    return tuple(dict.fromkeys(os.path.realpath(folder) for folder in folders if folder.startswith("/") and folder != "/"))


def is_ordinary(path: str, folders: tuple[str, ...]) -> bool:
    """Whether a path lies in one of them, or is compiled Python code."""
    return "__pycache__" in path.split("/") or any(path == folder or path.startswith(folder + "/") for folder in folders)
