"""The program that the inspected interpreter runs: prints one JSON line about itself and its torch. Public torch names only."""

from __future__ import annotations

import importlib.util
import json
import platform
import sys
import sysconfig
from importlib import metadata
from pathlib import Path
from typing import Any

MARKER = "dynadiag-doctor: "


def version_of(distribution: str) -> str | None:
    """The installed version of a distribution, or None."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def devices_of(torch: Any) -> list[dict[str, Any]]:
    """Name, compute capability and memory of each GPU."""
    found = []
    for index in range(torch.cuda.device_count()):
        facts = torch.cuda.get_device_properties(index)
        found.append({"name": facts.name, "capability": f"{facts.major}.{facts.minor}", "memory_bytes": facts.total_memory})
    return found


def torch_facts() -> dict[str, Any]:
    """Versions and devices of the torch that is imported here."""
    import torch

    available = torch.cuda.is_available()
    return {
        "torch": torch.__version__,
        "torch_git": torch.version.git_version,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "cuda_available": available,
        "devices": devices_of(torch) if available else [],
        "triton": version_of("triton"),
        "keeps_bytecode": not sys.dont_write_bytecode or Path(importlib.util.cache_from_source(torch.__file__)).is_file(),
    }


def main() -> None:
    """Print the facts, or `problem`: why there is no torch to use."""
    facts: dict[str, Any] = {
        "python": platform.python_version(),
        "executable": sys.executable,
        "python_headers": Path(sysconfig.get_path("include"), "Python.h").is_file(),
    }
    try:
        facts.update(torch_facts())
    except ModuleNotFoundError as error:
        facts["problem"] = "torch is not installed" if error.name == "torch" else f"torch cannot be imported: {error}"
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        facts["problem"] = f"torch cannot be imported: {error}"
    print("\n" + MARKER + json.dumps(facts))


if __name__ == "__main__":
    main()
