"""What inductor found out about the C++ compiler while the script ran, so that it is not found out again. No torch.

For each instruction set inductor compiles a small program and loads it: 7 to 9 CPU seconds with an empty cache (torch 2.15).
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

_MARKER = ".so.load_ok"
"""Stands beside a probe that was compiled and loaded (`torch/_inductor/cpu_vec_isa.py`, 2.15; 2.11 has none)."""
_MOST = 50


def users_cache(environment: Mapping[str, str] = os.environ) -> Path | None:
    """The folder of inductor's cache in the user's own processes (`torch/_inductor/runtime/cache_dir_utils.py`, 2.11 to 2.15)."""
    named = environment.get("TORCHINDUCTOR_CACHE_DIR")
    if named:
        return Path(named)
    try:
        user = getpass.getuser()
    except (KeyError, ImportError, OSError):
        return None
    return Path(tempfile.gettempdir()) / ("torchinductor_" + re.sub(r'[\\/:*?"<>|]', "_", user))


def take_over(cache: Path | None, to: Path) -> int:
    """Copy the probes of `cache`; gives how many. Only files of this user: a folder of that name may be anybody's. No graph is copied."""
    copied = 0
    if cache is None or cache.resolve() == to.resolve():
        return 0
    with contextlib.suppress(OSError):
        for marker in sorted(cache.glob(f"*/*{_MARKER}"))[:_MOST]:
            copied += _copy(marker, to / marker.parent.name)
    return copied


def _copy(marker: Path, folder: Path) -> bool:
    stem = marker.name.removesuffix(_MARKER)
    files = [marker.with_name(f"{stem}{ending}") for ending in (".cpp", ".so", _MARKER)]
    if not all(_is_ours(file) for file in files):
        return False
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        shutil.copy2(file, folder / file.name)
    return True


def _is_ours(file: Path) -> bool:
    return file.is_file() and not file.is_symlink() and (not hasattr(os, "getuid") or file.stat().st_uid == os.getuid())
