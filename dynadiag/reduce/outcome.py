"""`minify.json`, `repro_min.py` and `almost.py` of a finished reduction."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import dynadiag
from dynadiag.fx.refusal import NotRebuildableError
from dynadiag.reduce.candidate import Candidate
from dynadiag.reduce.hunt import Hunt
from dynadiag.reduce.ladder import Ladder
from dynadiag.reduce.proving import Proof, prove
from dynadiag.reduce.writing import Header, reproducer

SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Written:
    """The reproducer and its proof; `why_not` says why there is none."""

    path: Path | None
    almost: Path | None
    proof: Proof
    why_not: str | None = None


def write_reproducer(hunt: Hunt, ladder: Ladder, out: Path, *, timeout_s: float, level: str = "dynamo") -> Written:
    """Write and prove the reproducer; `almost.py` is the closest graph that passes."""
    header = Header(
        failure=hunt.confirmed.failure,
        made_by=f"Made by dynadiag {dynadiag.__version__} (minify, {level} level) on {time.strftime('%Y-%m-%d')}",
        versions=versions(),
        story=_story(hunt, ladder),
    )
    try:
        source = reproducer(hunt.best, hunt.setting, header)
    except NotRebuildableError as error:
        return Written(path=None, almost=None, proof=Proof(runs=0, reproduced=0), why_not=f"it cannot be written as a script: {error}")
    path = out / "repro_min.py"
    path.write_text(source, "utf-8")
    proof = prove(source, hunt.confirmed.failure, timeout_s=timeout_s)
    return Written(path=path, almost=_write_almost(hunt.almost, hunt, header, out), proof=proof)


def _write_almost(almost: Candidate | None, hunt: Hunt, header: Header, out: Path) -> Path | None:
    if almost is None:
        return None
    try:
        source = reproducer(almost, hunt.setting, header, expect_failure=False)
    except NotRebuildableError:
        return None
    (out / "almost.py").write_text(source, "utf-8")
    return out / "almost.py"


def _story(hunt: Hunt, ladder: Ladder) -> str:
    queries = sum(hunt.queries.values())
    steps = ", ".join(f"{name} {said.split(':')[0]}" for name, said in ladder.steps.items())
    return f"From {hunt.original.nodes} nodes to {hunt.best.nodes} in {queries} queries. Guilty layer: {ladder.layer} ({steps})."


def versions() -> str:
    """The versions that a bug report needs, in one line."""
    device = f"CUDA {torch.version.cuda}" if torch.version.cuda and torch.cuda.is_available() else "CPU"
    return f"torch {torch.__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}, {device}"


def to_json(hunt: Hunt, ladder: Ladder, written: Written, *, wall_s: float, level: str) -> dict[str, Any]:
    """The content of `minify.json`; its keys are a contract."""
    confirmed = hunt.confirmed
    configs = [name for name, _ in hunt.best.configs]
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": confirmed.failure.kind,
        "signature": {name: value for name, value in confirmed.failure.to_json().items() if name != "detail"},
        "error": confirmed.failure.detail,
        "level": level,
        "size_before": {"nodes": hunt.original.nodes, "statements": None, "calls": None},
        "size_after": {"nodes": hunt.best.nodes, "statements": None, "calls": None},
        "guilty": {
            "layer": ladder.layer,
            "pass": None,
            "config": configs or None,
            "steps": dict(ladder.steps),
        },
        "queries": dict(hunt.queries),
        "cpu_s": round(hunt.cpu_s, 2),
        "search_cpu_s": round(hunt.search_cpu_s, 2),
        "wall_s": round(wall_s, 2),
        "complete": hunt.complete,
        "reproducer": written.path.name if written.path is not None else None,
        "why_not": written.why_not,
        "proven": {"runs": written.proof.runs, "reproduced": written.proof.reproduced},
        "flaky": None if confirmed.failed == confirmed.of else {"failed": confirmed.failed, "of": confirmed.of},
        "almost": written.almost.name if written.almost is not None else None,
        "other_failures": [{"text": text, "times": times} for text, times in sorted(hunt.other_failures.items())],
        "broken_passes": dict(hunt.broken_passes),
        "versions": versions(),
    }


def write_json(data: Mapping[str, Any], path: Path) -> None:
    """Write it whole or not at all."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(data, indent=1) + "\n", "utf-8", errors="backslashreplace")
    temporary.replace(path)
