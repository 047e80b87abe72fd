"""Who this process is, and on which machine: the first record of every log."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
import sysconfig
from datetime import datetime, timezone
from typing import Any

from dynadiag.masking import masked_arguments, masked_settings, secret_values
from dynadiag.record import packages
from dynadiag.record.project_root import describe_project

_PREFIXES = ("TORCH", "PYTORCH", "CUDA", "OMP_")
# torch reads CI: under it an alias that an operator does not declare is an error (torch/_functorch/config.py, 2.11 to 2.15).
_NAMES = frozenset({"CI", "RANK", "LOCAL_RANK", "WORLD_SIZE", "MKL_NUM_THREADS", "TRITON_CACHE_DIR", "TRITON_INTERPRET"})
_SECRET = ("TOKEN", "SECRET", "PASSWORD", "KEY", "CREDENTIAL")


def describe_process(dynadiag: str, rank: int | None, started_by: str, project: str | None = None) -> dict[str, Any]:
    """The payload of `dynadiag_environment`: versions, command line, device, directories, chosen environment variables.

    `project` is the root of its project where the supervisor says which.
    """
    version = sys.modules.get("torch.version")
    return {
        "format": 1,
        "dynadiag": dynadiag,
        "pid": os.getpid(),
        "ppid": os.getppid(),
        "rank": rank,
        "argv": list(masked_arguments(map(str, getattr(sys, "argv", [])), secret_values(os.environ))),
        "executable": sys.executable,
        "python": platform.python_version(),
        "torch": _text(getattr(version, "__version__", None)),
        "git": _text(getattr(version, "git_version", None)),
        "cuda": _text(getattr(version, "cuda", None)),
        "device": device_name(),
        "cwd": working_directory(),
        "started_at": utc_now(),
        "platform": f"{platform.system()}-{platform.machine()}",
        "env": _chosen_variables(),
        "site_prefixes": site_prefixes(),
        "libraries": libraries(),
        **describe_project(project, site_prefixes()),
        "started_by": started_by,
        "machine": machine_facts(),
    }


def utc_now() -> str:
    """The time as recordings have it, to the millisecond."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")  # noqa: UP017 - runs on Python 3.9


def device_name() -> str | None:
    """The name of the current CUDA device; None while CUDA is not initialised (asking would initialise it and break a later fork)."""
    cuda = sys.modules.get("torch.cuda")
    try:
        if cuda is not None and cuda.is_initialized():
            return str(cuda.get_device_name())
    except Exception:  # noqa: BLE001 - border: a broken driver must not stop the user's program
        return None
    return None


def site_prefixes() -> list[str]:
    """Folders whose code is not the user's: the standard library, site-packages and torch itself."""
    found = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    torch = getattr(sys.modules.get("torch"), "__file__", None)
    if torch:
        found += [os.path.dirname(torch), os.path.dirname(os.path.dirname(torch))]  # noqa: PTH120
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    return list(dict.fromkeys(path for path in [*found, package] if path))


def libraries() -> list[str]:
    """What is installed outside of these folders: into a folder of the search path (`pip install --target`), or editable elsewhere."""
    prefixes = [f"{prefix}{os.sep}" for prefix in site_prefixes()]
    searched = [os.path.abspath(entry or ".") for entry in sys.path if isinstance(entry, str)]  # noqa: PTH100
    targets = [path for entry in searched if not f"{entry}{os.sep}".startswith(tuple(prefixes)) for path in packages.packages_in(entry)]
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    here = [script] if isinstance(script, str) else []
    editable = packages.editable_packages(searched, [*here, working_directory() or ""])
    return list(dict.fromkeys([*packages.apart_from(here, targets), *editable]))


def _chosen_variables() -> dict[str, str]:
    chosen = {name: value for name, value in os.environ.items() if name.startswith(_PREFIXES) or name in _NAMES}
    return masked_settings(
        {name: value for name, value in sorted(chosen.items()) if not any(word in name for word in _SECRET)}, secret_values(os.environ)
    )


def working_directory() -> str | None:
    """The current folder; None when somebody deleted it."""
    try:
        return os.getcwd()  # noqa: PTH109
    except OSError:
        return None


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


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
        "Is debug build": _setting_text(version, "debug"),
        "ROCm used to build PyTorch": _setting_text(version, "hip"),
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


def _setting_text(module: Any, name: str) -> str:
    value = getattr(module, name, None)
    return "none" if value is None else str(value)
