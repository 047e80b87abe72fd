"""A checkup as text that can be pasted into an issue, and as plain data for JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from dynadiag.doctor.checkup import TESTED_TORCH, Checkup
from dynadiag.torch_compat.versions import OLDEST

SCHEMA_VERSION = 1
_MEBIBYTE = 1 << 20


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
    lines = [f"{_plain(name):<{width}}  {_plain(value)}" for name, value in rows]
    lines += [f"missing: {_plain(line)}" for line in checkup.missing]
    return "\n".join(["```text", *lines, "```"])


def _plain(text: str) -> str:
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
    ]


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
        *((f"pictures: {name}", version or "not available") for name, version in checkup.picture_renderers.items()),
    ]
