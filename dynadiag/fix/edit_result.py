"""What `dynadiag prove` came to, as plain data, as `prove.json` (docs/prove.schema.json) and as a document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal, TypedDict

from dynadiag.facts.compiled_work import compiled_work
from dynadiag.facts.wording import short_place
from dynadiag.fix.result import CountsKeys, LineKeys, counts_of, line_keys
from dynadiag.fix.show import before_and_after
from dynadiag.model.json_keys import NO_REASON
from dynadiag.model.report import Finding, Report, Summary
from dynadiag.render.document import Block, Cell, Column, Document, Headline, Part, Section
from dynadiag.render.wording import plural

SCHEMA_VERSION: Final = 1
_ONLY_ONE = "only one"
_UNSEEN = frozenset((_ONLY_ONE, "random numbers"))
_KINDS = {"attribute": "module attribute", "global": "global value", "optimizer": "optimizer value"}
_COLUMNS = (Column("code"), Column("place"), Column("title"))


class EvidenceKeys(TypedDict):
    """What was compared."""

    calls: Annotated[dict[str, int], "how many calls of each callable were compared"]
    values: Annotated[dict[str, int], "how many values of each kind were compared at the end of the program"]
    only_one: Annotated[int, "values that only one version has at its end: not compared"]
    lines: Annotated[int, "lines of stdout"]
    left_out: Annotated[dict[str, str], "callables that both versions compile and whose calls were not compared, with the reason"]


class VersionKeys(CountsKeys):
    """What torch.compile made of one version."""

    operators: Annotated[int | None, "of one call of each compiled callable; null when no call was looked at from inside", NO_REASON]
    operators_compiled: Annotated[int | None, "those that run in graphs", NO_REASON]
    findings: Annotated[int, "findings of severity warning or worse"]


class FindingOfVersionKeys(TypedDict):
    """A finding of severity warning or worse that only one version has."""

    fingerprint: str
    code: str
    severity: str
    title: str
    where: LineKeys | None
    advice: Annotated[str | None, "the first change that is advised for it; null where none is", NO_REASON]


class ProofCostKeys(TypedDict):
    """What the proof took."""

    cpu_s: float
    runs: Annotated[int, "runs of the program"]


class ProveFile(TypedDict):
    """What `dynadiag prove` came to."""

    schema_version: Literal[1]
    dynadiag: str
    torch: Annotated[str | None, "the torch that the program ran with"]
    command: Annotated[list[str], "the program and its arguments"]
    files: Annotated[list[str], "the files that the edit changes, relative to the project"]
    verdict: Literal["PROVEN", "NOT_PROVEN"]
    why_not: Annotated[str | None, "the first thing that differs, or why nothing can be proven; null when proven"]
    compared: Annotated[list[str], "the pairs of runs in which everything was the same"]
    evidence: EvidenceKeys
    before: VersionKeys
    after: Annotated[VersionKeys | None, "null when the edited program compiles nothing", NO_REASON]
    cured: Annotated[list[FindingOfVersionKeys], "findings that only the version before the edit has"]
    new: Annotated[list[FindingOfVersionKeys], "findings that only the edited version has"]
    left: Annotated[list[FindingOfVersionKeys], "findings that both versions have"]
    patch: Annotated[str, "the edit as a unified diff"]
    cpu: ProofCostKeys


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What both versions have in common, and was compared: calls of each callable, values at the end by kind, lines of stdout.

    `left_out` says of callables that both compile why their calls were not compared; `only_one` counts the values (globals, attributes,
    buffers) that only one version has at its end.
    """

    calls: Mapping[str, int] = field(default_factory=dict)
    values: Mapping[str, int] = field(default_factory=dict)
    only_one: int = 0
    lines: int = 0
    left_out: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, reply: Mapping[str, Any], stdout: str) -> Evidence:
        """That of the last comparison."""
        program = reply.get("program", {})
        return cls(
            calls=reply.get("calls", {}),
            values={kind: count for kind, count in sorted(program.items()) if kind not in _UNSEEN},
            only_one=program.get(_ONLY_ONE, 0),
            lines=len(stdout.splitlines()),
            left_out=reply.get("left_out", {}),
        )

    @property
    def shows_something(self) -> bool:
        """Whether anything at all was compared that the program computes."""
        return bool(self.calls or self.lines or any(self.values.values()))


@dataclass(frozen=True, kw_only=True)
class Version:
    """What torch.compile made of one version, with its own back end; `operators` and `compiled` per call as far as they were counted."""

    summary: Summary
    findings: tuple[Finding, ...]
    operators: int | None = None
    compiled: int | None = None

    @classmethod
    def of(cls, report: Report) -> Version:
        """That of a recorded run."""
        work = compiled_work(report.run)
        found = tuple(finding for finding in report.findings if finding.severity != "note")
        if work is None or not work.operators:
            return cls(summary=report.summary, findings=found)
        return cls(summary=report.summary, findings=found, operators=work.operators, compiled=work.compiled)


@dataclass(frozen=True, kw_only=True)
class EditResult:
    """`why` is what differs, or why nothing can be compared (None: proven). `after` is None where the edited program compiles nothing."""

    command: tuple[str, ...]
    files: tuple[str, ...]
    patch: str
    torch: str | None
    why: str | None
    compared: tuple[str, ...]
    evidence: Evidence
    before: Version
    after: Version | None
    runs: int
    cpu_s: float

    @property
    def proven(self) -> bool:
        """Whether everything that was compared is the same."""
        return self.why is None

    @property
    def cured(self) -> tuple[Finding, ...]:
        """Findings of severity warning or worse that only the version before has."""
        return _only_in(self.before, self.after)

    @property
    def new(self) -> tuple[Finding, ...]:
        """Findings of severity warning or worse that only the edited version has."""
        return () if self.after is None else _only_in(self.after, self.before)

    @property
    def left(self) -> tuple[Finding, ...]:
        """Findings of severity warning or worse that both versions have, as the edited one shows them."""
        new = self.new
        return () if self.after is None else tuple(finding for finding in self.after.findings if finding not in new)

    def to_json(self, version: str) -> ProveFile:
        """The content of `prove.json`."""
        return {
            "schema_version": SCHEMA_VERSION,
            "dynadiag": version,
            "torch": self.torch,
            "command": list(self.command),
            "files": list(self.files),
            "verdict": "PROVEN" if self.proven else "NOT_PROVEN",
            "why_not": self.why,
            "compared": list(self.compared),
            "evidence": _evidence_keys(self.evidence),
            "before": _version(self.before),
            "after": None if self.after is None else _version(self.after),
            "cured": [_finding(finding) for finding in self.cured],
            "new": [_finding(finding) for finding in self.new],
            "left": [_finding(finding) for finding in self.left],
            "patch": self.patch,
            "cpu": {"cpu_s": round(self.cpu_s, 2), "runs": self.runs},
        }


def _only_in(version: Version, other: Version | None) -> tuple[Finding, ...]:
    known = set() if other is None else {finding.fingerprint for finding in other.findings}
    return tuple(finding for finding in version.findings if finding.fingerprint not in known)


def _evidence_keys(evidence: Evidence) -> EvidenceKeys:
    return {
        "calls": dict(evidence.calls),
        "values": dict(evidence.values),
        "only_one": evidence.only_one,
        "lines": evidence.lines,
        "left_out": dict(evidence.left_out),
    }


def _version(version: Version) -> VersionKeys:
    return {
        **counts_of(version.summary),
        "operators": version.operators,
        "operators_compiled": version.compiled,
        "findings": len(version.findings),
    }


def _finding(finding: Finding) -> FindingOfVersionKeys:
    return {
        "fingerprint": finding.fingerprint,
        "code": finding.code,
        "severity": finding.severity,
        "title": finding.title,
        "where": line_keys(finding.where),
        "advice": finding.fix[0].words if finding.fix else None,
    }


def document_of(result: EditResult) -> Document:
    """All that was found out."""
    return Document(
        title=f"dynadiag prove {' '.join(result.command)}",
        headlines=(Headline(word=_headline(result), tone="good" if result.proven else "bad"),),
        sections=tuple(_sections(result)),
        name="prove.json",
    )


def _headline(result: EditResult) -> str:
    if result.why is not None:
        return f"NOT PROVEN: {result.why}"
    return f"PROVEN: the edit of {', '.join(result.files)} changes no result"


def _sections(result: EditResult) -> Iterator[Section]:
    points = tuple(_evidence(result))
    yield Section(title="Compared", points=points)

    def row(finding: Finding) -> tuple[Cell, ...]:
        place = "unknown place" if finding.where is None else short_place(finding.where)
        advice = f". Advice: {finding.fix[0].words}" if finding.fix and finding not in result.cured else ""
        return (Part(finding.code),), (Part(place),), (Part(f"{finding.title}{advice}"),)

    for title, findings in (("Cured", result.cured), ("New", result.new), ("Left", result.left)):
        if findings:
            yield Section(title=title, columns=_COLUMNS, items=list(findings), row=row, unit="finding", as_entries=True)
    yield Section(title="Before and after", points=tuple(_counts(result)))
    yield Section(title="Edit", block=Block(text=result.patch, language="diff"), brief=False)


def _evidence(result: EditResult) -> Iterator[str]:
    evidence = result.evidence
    for words in result.compared:
        yield f"the same with {words}"
    if evidence.calls:
        yield "calls compared: " + ", ".join(f"{count} of {name}" for name, count in evidence.calls.items())
    if any(evidence.values.values()):
        values = ", ".join(plural(count, _KINDS.get(kind, kind)) for kind, count in evidence.values.items())
        yield f"values compared at the end: {values}"
    if evidence.lines:
        yield f"{plural(evidence.lines, 'line')} of stdout compared"
    for name, why in evidence.left_out.items():
        yield f"calls of {name} not compared: {why}"
    if evidence.only_one:
        yield f"{plural(evidence.only_one, 'value')} not compared: only one version has them at its end"


def _counts(result: EditResult) -> Iterator[str]:
    before, after = result.before, result.after
    if after is None:
        yield "the edited program compiles nothing"
    else:
        yield before_and_after(before.summary, after.summary)
        if before.operators and after.operators:
            shares = (f"{version.compiled} of {version.operators}" for version in (before, after))
            yield f"operators that run compiled, per call: {' -> '.join(shares)}"
    yield f"{plural(result.runs, 'run')} of the program, {result.cpu_s:.0f} CPU seconds"
