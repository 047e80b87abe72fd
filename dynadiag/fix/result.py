"""What `dynadiag fix` came to, as plain data and as `fix.json` (docs/fix.schema.json)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dynadiag.fix.speed import Speed, to_json
from dynadiag.model.report import Finding, Summary

SCHEMA_VERSION = 1
_COUNTS = ("graph_break_sites", "graph_break_events", "recompiles", "fallbacks", "graphs", "frames_compiled", "compile_s")


@dataclass(frozen=True, kw_only=True)
class Changed:
    """One change that was tried: `before` and `after` are its lines, `places` where each begins; `why` is why it is not proven.

    `cures` are the findings (fingerprints) that it is for.
    """

    id: str
    slug: str
    text: str
    places: tuple[str, ...]
    before: tuple[str, ...]
    after: tuple[str, ...]
    cures: tuple[str, ...]
    proven: bool
    why: str | None
    gives_up: str | None
    calls: int
    runs: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class FixResult:
    """`findings` are those of severity warning or worse in the script as it is, `left` why each that is left is left, by fingerprint.

    `before` and `after` count the recorded runs of the script without and with the patch, with its own back end; `after` is None where
    nothing was kept. `not_proven` is why nothing could be proven at all.
    `failed` is how the script itself failed, where it did. `speed` is bench's verdict on the patch, `no_speed` why there is none.
    `root` is the folder that names in the patch are relative to. `new_texts` are those of the changed files, by path, `old_texts` what they
    replace. `script_cpu_s` is what the script itself took, `cpu_s` all of it but the timing, `bench_cpu_s` that.
    """

    directory: str
    root: str
    command: tuple[str, ...]
    torch: str | None
    search_backend: str | None
    findings: tuple[Finding, ...]
    changes: tuple[Changed, ...]
    left: Mapping[str, str]
    before: Summary
    after: Summary | None
    patch: str
    new_texts: Mapping[str, str]
    old_texts: Mapping[str, str]
    not_proven: str | None
    script_cpu_s: float | None
    cpu_s: float
    runs: int
    speed: Speed | None = None
    no_speed: str | None = None
    bench_cpu_s: float = 0.0
    failed: str | None = None

    @property
    def kept(self) -> tuple[Changed, ...]:
        """The proven changes, which are the patch."""
        return tuple(change for change in self.changes if change.proven)

    @property
    def cured(self) -> int:
        """How many findings the patch cures."""
        return sum(finding.fingerprint not in self.left for finding in self.findings)

    def to_json(self, version: str) -> dict[str, Any]:
        """The content of `fix.json`."""
        return {
            "schema_version": SCHEMA_VERSION,
            "dynadiag": version,
            "torch": self.torch,
            "command": list(self.command),
            "search_backend": self.search_backend,
            "summary": {"findings": len(self.findings), "cured": self.cured, "changes": len(self.changes), "kept": len(self.kept)},
            "not_proven": self.not_proven,
            "script_failed": self.failed,
            "findings": [self._finding(finding) for finding in self.findings],
            "changes": [_change(change) for change in self.changes],
            "before": _counts(self.before),
            "after": None if self.after is None else _counts(self.after),
            "after_why": None if self.after is not None else "no change was kept",
            "speed": None if self.speed is None else to_json(self.speed),
            "speed_why": self.no_speed,
            "patch": "fixes.patch" if self.patch else None,
            "root": self.root,
            "cpu": {
                "script_cpu_s": self.script_cpu_s,
                "cpu_s": round(self.cpu_s, 2),
                "bench_cpu_s": round(self.bench_cpu_s, 2),
                "runs": self.runs,
            },
        }

    def _finding(self, finding: Finding) -> dict[str, Any]:
        where = finding.where
        place = None if where is None else {"file": where.file, "line": where.line, "function": where.function, "code": where.code}
        told = {
            "id": finding.id,
            "fingerprint": finding.fingerprint,
            "code": finding.code,
            "severity": finding.severity,
            "title": finding.title,
        }
        return {**told, "where": place, "cured": finding.fingerprint not in self.left, "why_left": self.left.get(finding.fingerprint)}


def _change(changed: Changed) -> dict[str, Any]:
    told = {"id": changed.id, "slug": changed.slug, "text": changed.text, "places": list(changed.places), "cures": list(changed.cures)}
    rows = {"before": list(changed.before), "after": list(changed.after)}
    return {
        **told,
        **rows,
        "proven": changed.proven,
        "why_not": changed.why,
        "gives_up": changed.gives_up,
        "calls": changed.calls,
        "runs": list(changed.runs),
    }


def _counts(summary: Summary) -> dict[str, Any]:
    return {name: getattr(summary, name) for name in _COUNTS}
