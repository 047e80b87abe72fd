"""What `dynadiag fix` came to, as plain data and as `fix.json` (docs/fix.schema.json)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, TypedDict

from dynadiag.fix.speed import Speed, SpeedKeys, to_json
from dynadiag.model.json_keys import NO_REASON
from dynadiag.model.location import Location
from dynadiag.model.report import Finding, Summary


class LineKeys(TypedDict):
    """A line of the script."""

    file: str
    line: int | None
    function: str | None
    code: str | None


class FindingKeys(TypedDict):
    """One finding, and what became of it."""

    id: str
    fingerprint: str
    code: str
    severity: str
    title: str
    where: LineKeys | None
    cured: bool
    why_left: Annotated[str | None, "null for a finding that is cured"]


class ChangeKeys(TypedDict):
    """One change that was tried."""

    id: str
    slug: Annotated[str, "the kind of advice, such as if-where"]
    text: str
    places: Annotated[list[str], "FILE:LINE of each edit"]
    cures: Annotated[list[str], "fingerprints of the findings that it is for; in libraries, those of the break sites"]
    before: list[str]
    after: list[str]
    proven: bool
    why_not: str | None
    gives_up: Annotated[str | None, "what an unsafe change gives up"]
    calls: Annotated[int, "calls of compiled callables that were compared"]
    runs: Annotated[list[str], "the kinds of runs in which they were compared"]


class CountsKeys(TypedDict):
    """Totals of a recorded run."""

    graph_break_sites: int
    graph_break_events: int
    recompiles: int
    fallbacks: int
    graphs: int
    frames_compiled: int
    compile_s: float | None


class TotalsKeys(TypedDict):
    """How many findings and changes there were."""

    findings: Annotated[int, "findings of severity warning or worse"]
    cured: int
    changes: Annotated[int, "changes that were tried"]
    kept: Annotated[int, "changes that are proven: the patch"]


class CpuKeys(TypedDict):
    """CPU seconds."""

    script_cpu_s: Annotated[float | None, "what the recorded script took itself; null for a run that was recorded before"]
    cpu_s: float
    bench_cpu_s: Annotated[float, "what timing the patch took; not in cpu_s"]
    runs: int


class FixFile(TypedDict):
    """What `dynadiag fix` came to."""

    schema_version: Literal[1]
    dynadiag: str
    torch: Annotated[str | None, "the torch that the script ran with"]
    command: Annotated[list[str], "the script and its arguments"]
    search_backend: Annotated[str | None, "the back end of all runs but the last; null when nothing was tried"]
    summary: TotalsKeys
    not_proven: Annotated[str | None, "why nothing could be proven of this program; null where something could"]
    script_failed: Annotated[str | None, "how the script itself failed, such as `ended with exit status 1`; null where it ended well"]
    findings: list[FindingKeys]
    changes: list[ChangeKeys]
    before: CountsKeys
    after: CountsKeys | None
    after_why: str | None
    speed: Annotated[SpeedKeys | None, "the verdict of bench on the patch", NO_REASON]
    speed_why: Annotated[str | None, "why the patch was not timed; null where it was"]
    patch: Annotated[str | None, "the name of the patch in the run directory; null where nothing is proven"]
    root: Annotated[str, "the folder that the names in the patch are relative to"]
    cpu: CpuKeys


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

    def to_json(self, version: str) -> FixFile:
        """The content of `fix.json`."""
        return {
            "schema_version": 1,
            "dynadiag": version,
            "torch": self.torch,
            "command": list(self.command),
            "search_backend": self.search_backend,
            "summary": {"findings": len(self.findings), "cured": self.cured, "changes": len(self.changes), "kept": len(self.kept)},
            "not_proven": self.not_proven,
            "script_failed": self.failed,
            "findings": [self._finding(finding) for finding in self.findings],
            "changes": [_change(change) for change in self.changes],
            "before": counts_of(self.before),
            "after": None if self.after is None else counts_of(self.after),
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

    def _finding(self, finding: Finding) -> FindingKeys:
        return {
            "id": finding.id,
            "fingerprint": finding.fingerprint,
            "code": finding.code,
            "severity": finding.severity,
            "title": finding.title,
            "where": line_keys(finding.where),
            "cured": finding.fingerprint not in self.left,
            "why_left": self.left.get(finding.fingerprint),
        }


def _change(changed: Changed) -> ChangeKeys:
    return {
        "id": changed.id,
        "slug": changed.slug,
        "text": changed.text,
        "places": list(changed.places),
        "cures": list(changed.cures),
        "before": list(changed.before),
        "after": list(changed.after),
        "proven": changed.proven,
        "why_not": changed.why,
        "gives_up": changed.gives_up,
        "calls": changed.calls,
        "runs": list(changed.runs),
    }


def line_keys(where: Location | None) -> LineKeys | None:
    """A place as its keys."""
    return None if where is None else {"file": where.file, "line": where.line, "function": where.function, "code": where.code}


def counts_of(summary: Summary) -> CountsKeys:
    """The totals of a recorded run."""
    return {
        "graph_break_sites": summary.graph_break_sites,
        "graph_break_events": summary.graph_break_events,
        "recompiles": summary.recompiles,
        "fallbacks": summary.fallbacks,
        "graphs": summary.graphs,
        "frames_compiled": summary.frames_compiled,
        "compile_s": summary.compile_s,
    }
