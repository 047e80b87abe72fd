"""Looks at this machine: our own packages here, torch in a child process, the tools that CPU inductor calls, the drivers of the GPU."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from dynadiag import __version__
from dynadiag.doctor import probe
from dynadiag.errors import UsageError
from dynadiag.masking import masked_settings
from dynadiag.torch_compat import versions
from dynadiag.torch_compat.versions import OLDEST

TESTED_TORCH = ("2.6.0", "2.9.1", "2.11.0", "2.15.0")
_TORCH_TIMEOUT_S = 120.0
_TOOL_TIMEOUT_S = 60.0
# Only settings of torch and of the compiler; the rest of an environment does not belong in a pasted report.
_SETTINGS = re.compile(
    r"^(TORCH(DYNAMO|INDUCTOR|_COMPILE|_LOGS|_TRACE)\w*|TRITON_\w+|AOT_\w+|CUDA_VISIBLE_DEVICES|CUDA_HOME|OMP_NUM_THREADS|CXX|CC|CI)$"
)


SCHEMA_VERSION = 1
_MEBIBYTE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchFacts:
    """What the inspected interpreter says of itself and its torch; `problem` is why there is no torch to use.

    `keeps_bytecode` is False where torch's sources have none and Python may write none: each process then compiles them anew.
    """

    python: str | None = None
    executable: str | None = None
    python_headers: bool | None = None
    torch: str | None = None
    torch_git: str | None = None
    cuda: str | None = None
    hip: str | None = None
    cuda_available: bool | None = None
    devices: tuple[Mapping[str, Any], ...] = ()
    triton: str | None = None
    keeps_bytecode: bool | None = None
    problem: str | None = None

    @property
    def supported(self) -> bool:
        """Whether programs that use this torch can be recorded."""
        return re.match(r"\d+\.\d+", self.torch or "") is not None and versions.too_old("dynadiag", self.torch, versions.OLDEST) is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkup:
    """Everything `dynadiag doctor` shows. A tool that is None was not found; `missing` says in whole lines what will not work."""

    dynadiag: str
    python: str
    platform: str
    torch: TorchFacts
    driver: str | None
    compiler: str | None
    openssl: str | None
    settings: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()


def examine(python: str | None = None) -> Checkup:
    """A look at this machine, with the torch of the interpreter `python` (default: the one that runs us).

    Starts that interpreter once (at most two minutes) and asks a few programs for their versions. Raises `UsageError` if it cannot start.
    """
    torch = inspect_torch(python or sys.executable)
    compiler = _compiler()
    openssl = _first_line("openssl", "version")
    return Checkup(
        dynadiag=__version__,
        python=platform.python_version(),
        platform=platform.platform(),
        torch=torch,
        driver=_first_line("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
        compiler=compiler,
        openssl=openssl,
        settings=masked_settings({name: value for name, value in sorted(os.environ.items()) if _SETTINGS.match(name)}),
        missing=_missing(torch, compiler, openssl),
    )


def inspect_torch(python: str) -> TorchFacts:
    """What `python` says of its torch. A crash, a hang or no answer becomes `problem`; raises `UsageError` if it cannot be started."""
    source = Path(probe.__file__).read_text(encoding="utf-8")
    # Safe path: a file called torch.py in the current folder would be inspected otherwise.
    environment = {**os.environ, "PYTHONSAFEPATH": "1"}
    try:
        done = subprocess.run([python, "-c", source], capture_output=True, timeout=_TORCH_TIMEOUT_S, env=environment, check=False)
    except subprocess.TimeoutExpired:
        return TorchFacts(executable=python, problem=f"importing torch took more than {_TORCH_TIMEOUT_S:.0f} s")
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot start the interpreter {python}: {getattr(error, 'strerror', None) or error}") from error
    return _facts_in(done, python)


def _facts_in(done: subprocess.CompletedProcess[bytes], python: str) -> TorchFacts:
    for line in reversed(done.stdout.decode("utf-8", "replace").splitlines()):
        if line.startswith(probe.MARKER):
            known = {name: value for name, value in json.loads(line[len(probe.MARKER) :]).items() if name in TorchFacts.__slots__}
            return TorchFacts(**{**known, "devices": tuple(known.get("devices", ()))})
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit status {done.returncode}"
    return TorchFacts(
        executable=python, problem=f"the interpreter ended while importing torch ({how}): {said[-1] if said else 'no output'}"
    )


def _compiler() -> str | None:
    """The C++ compiler that inductor calls on Linux: `CXX` or g++ (`torch/_inductor/config.py`, `cpp.cxx`, 2.11 and 2.15)."""
    command = os.environ.get("CXX", "").split() or ["g++"]
    return _first_line(*command, "--version")


def _first_line(*command: str) -> str | None:
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(command, capture_output=True, timeout=_TOOL_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    said = (done.stdout or done.stderr).decode("utf-8", "replace").strip().splitlines()
    return said[0].strip() if said and done.returncode == 0 else None


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _missing(torch: TorchFacts, compiler: str | None, openssl: str | None) -> tuple[str, ...]:
    lines = []
    if torch.problem is not None:
        lines.append(f"{torch.problem} ({torch.executable}): scripts cannot be recorded with it, but logs can still be read")
    elif not torch.supported:
        lines.append(f"{versions.too_old('recording', torch.torch, versions.OLDEST)}, but logs can still be read")
    elif (why := versions.too_old("explain --parity, parity, minify and bench", torch.torch)) is not None:
        lines.append(why.replace(" needs ", " need ") + "; explain and graph work")
    if compiler is None:
        lines.append("no C++ compiler (g++, or what CXX names): the inductor backend cannot compile for the CPU")
    if torch.python_headers is False:
        lines.append(f"no Python.h for {torch.executable}: the inductor backend cannot compile for the CPU, nor Triton for a GPU")
    if openssl is None:
        # torch/_inductor/codecache.py, _precompile_header, hashes the preprocessed header with it (2.11 and 2.15).
        lines.append("no openssl program: the inductor backend cannot compile for the CPU")
    return tuple(lines)


def as_dict(checkup: Checkup) -> dict[str, Any]:
    """The checkup as JSON-able data: fields as in `Checkup`, with `schema_version`, `supported` and `tested_torch`."""
    return {
        "schema_version": SCHEMA_VERSION,
        **asdict(checkup),
        "supported": checkup.torch.supported,
        "tested_torch": list(TESTED_TORCH),
    }


def as_text(checkup: Checkup) -> str:
    """The checkup as a fenced Markdown block of one fact a line, then one line for each thing that is missing."""
    rows = [*_version_rows(checkup), *_device_rows(checkup), *_tool_rows(checkup)]
    rows += [(name, value) for name, value in checkup.settings.items()]
    width = max(len(name) for name, _ in rows)
    lines = [f"{_printable(name):<{width}}  {_printable(value)}" for name, value in rows]
    lines += [f"missing: {_printable(line)}" for line in checkup.missing]
    return "\n".join(["```text", *lines, "```"])


def _printable(text: str) -> str:
    """Nothing that ends the fence or moves a terminal's cursor."""
    return "".join(char if char.isprintable() and char != "`" else "?" for char in text)


def _version_rows(checkup: Checkup) -> list[tuple[str, str]]:
    torch = checkup.torch
    return [
        ("dynadiag", f"{checkup.dynadiag} on Python {checkup.python}"),
        ("platform", checkup.platform),
        ("script's Python", f"{torch.python or 'not known'} ({torch.executable or 'not known'})"),
        ("torch", _torch_version(checkup)),
        ("triton", torch.triton or "not installed"),
        *([("bytecode", _NO_BYTECODE)] if torch.keeps_bytecode is False else []),
    ]


_NO_BYTECODE = "torch has none and Python is told to write none: each process compiles torch's sources again"


def _torch_version(checkup: Checkup) -> str:
    torch = checkup.torch
    if torch.torch is None:
        return torch.problem or "not known"
    verdict = "supported" if torch.supported else f"NOT supported, {'.'.join(map(str, OLDEST))} or newer is needed"
    tested = "; tested with this version" if torch.torch.split("+")[0] in TESTED_TORCH else f"; tested with {' and '.join(TESTED_TORCH)}"
    return f"{torch.torch}, git {(torch.torch_git or 'not known')[:12]} ({verdict}{tested})"


def _device_rows(checkup: Checkup) -> list[tuple[str, str]]:
    torch = checkup.torch
    if torch.torch is None:
        return [("driver", checkup.driver or "no NVIDIA driver found")]
    built = f"CUDA {torch.cuda}" if torch.cuda else f"HIP {torch.hip}" if torch.hip else "none (a CPU build)"
    rows = [("torch built for", built), ("driver", checkup.driver or "no NVIDIA driver found")]
    for index, device in enumerate(torch.devices):
        memory = f"{int(device['memory_bytes']) // _MEBIBYTE} MiB"
        rows.append((f"GPU {index}", f"{device['name']}, compute capability {device['capability']}, {memory}"))
    return rows if torch.devices else [*rows, ("GPU", "none that torch can use")]


def _tool_rows(checkup: Checkup) -> list[tuple[str, str]]:
    headers = {True: "found", False: "not found", None: "not known"}[checkup.torch.python_headers]
    return [
        ("C++ compiler", checkup.compiler or "not found"),
        ("Python headers", headers),
        ("openssl", checkup.openssl or "not found"),
    ]
