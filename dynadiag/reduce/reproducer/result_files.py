"""What the results of a graph and of a script have in common: how files are written, the common part of `minify.json`, the machine."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import subprocess
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

import dynadiag
from dynadiag.children.forked import run_forked
from dynadiag.errors import OutputError
from dynadiag.files import write_inside
from dynadiag.record import environment
from dynadiag.reduce.core.failure import Failure
from dynadiag.reduce.core.reduction import Found
from dynadiag.reduce.core.verdict import WRONG_VERDICT, repeats_for
from dynadiag.reduce.reproducer.minify_keys import CommonKeys, FlakyKeys
from dynadiag.reduce.reproducer.proving import Proof
from dynadiag.render import document_json, finite_json, markdown_text
from dynadiag.render.document import Document
from dynadiag.render.html import result_page

WARM = "compile-cache"
"""The folder of the worker's own compile cache in its directory."""


def common_json(found: Found[Any], failure: Failure, proof: Proof, *, wall_s: float) -> CommonKeys:
    """The keys of `minify.json` (docs/minify.schema.json) that do not depend on what was reduced; they are a contract."""
    confirmed = found.confirmed
    return {
        "schema_version": 1,
        "dynadiag": dynadiag.__version__,
        "kind": failure.kind,
        "signature": {name: value for name, value in failure.to_json().items() if name != "detail"},
        "error": failure.detail,
        "queries": dict(found.queries),
        "cpu_s": round(found.cpu_s, 2),
        "search_cpu_s": round(found.search_cpu_s, 2),
        "wall_s": round(wall_s, 2),
        "complete": found.complete,
        "proven": {"runs": proof.runs, "reproduced": proof.reproduced},
        "flaky": _flaky(confirmed.failed, confirmed.of),
        "other_failures": [{"text": text, "times": times} for text, times in sorted(found.other_failures.items())],
        "broken_passes": dict(found.broken_passes),
        "versions": versions(),
    }


def figures(found: Found[Any], unit: str, before: int, after: int) -> list[tuple[str, str]]:
    """The numbers to see first on the page, by name."""
    queries = f"{sum(found.queries.values()):,}"
    return [(unit, f"{before:,} → {after:,}"), ("queries", queries), ("CPU time of the search", f"{found.search_cpu_s:,.1f} s")]


def _flaky(failed: int, of: int) -> FlakyKeys | None:
    if failed == of:
        return None
    return {"failed": failed, "of": of, "repeats": repeats_for(failed, of), "wrong_verdict_at_most": WRONG_VERDICT}


def versions() -> str:
    """The versions that a bug report needs, in one line."""
    device = f"CUDA {torch.version.cuda}" if torch.version.cuda and torch.cuda.is_available() else "CPU"
    return f"torch {torch.__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}, {device}"


def write_json(data: Mapping[str, Any], path: Path) -> None:
    """Write it whole or not at all."""
    write_text(finite_json.dumps(data, indent=1) + "\n", path)


def write_text(text: str, path: Path) -> None:
    """Write it whole or not at all. Raises OutputError where there is no room."""
    try:
        write_inside(path.parent, path.name, text)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error


@contextlib.contextmanager
def border(name: str, why: dict[str, str]) -> Iterator[None]:
    """Around one renderer: its traceback goes to the worker's log, its last line into the result."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the border around one renderer
        traceback.print_exc()
        why[name] = f"{type(error).__name__}: {error}"[:300]


def write_report(told: Document, out: Path, why: dict[str, str]) -> None:
    """Write `report.md`, `form.json` with the same, and its page. A page that fails costs only itself: its reason goes to `why`."""
    write_text(markdown_text.document(told), out / "report.md")
    write_text(document_json.dumps(told), out / "form.json")
    with border("page", why):
        write_text(result_page.render(told), out / "report.html")


_COMPILER_LIMIT_S = 20
_GPU_LIMIT_S = 120


def no_almost(found: Found[Any], out: Path) -> str | None:
    """Why there is no `almost.py` to try; the one of an earlier result goes."""
    (out / "almost.py").unlink(missing_ok=True)
    return "no candidate near the result passed" if found.almost is None else None


def write_almost(source: str, out: Path, exit_status: Callable[[], int | None], *, repeats: int, otherwise: str) -> str | None:
    """Write `almost.py` where it passes as often as a flaky failure needs to show itself; else why not, which begins with `otherwise`."""
    for _ in range(repeats):
        if (status := exit_status()) != 0:
            return f"{otherwise} (exit status {status})"
    write_text(source, out / "almost.py")
    return None


def machine_facts(*, with_gpu: bool) -> Mapping[str, str]:
    """Facts by name, in the order of a report; "not known" where nobody could say. `with_gpu` asks a child for the GPU's name."""
    build = torch.version
    return {
        "PyTorch version": torch.__version__,
        "PyTorch git version": build.git_version or "not known",
        "CUDA used to build PyTorch": build.cuda or "none",
        **environment.machine_facts(),
        "C++ compiler": _compiler(),
        "GPU": _gpu() if with_gpu else "none used by the reproducer",
        "CPU": f"{environment.cpu_name()}, {os.cpu_count()} cores, {torch.backends.cpu.get_cpu_capability()}",
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
