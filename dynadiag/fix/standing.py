"""What a recorded run shows, as far as proofs ask: its findings by name, and what is counted. Plain data, kept in the journal too."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dynadiag.fix.patch_module import NAME
from dynadiag.model.report import Finding, Report

_COUNTED = ("graph_break_sites", "graph_break_events", "recompiles", "fallbacks")


@dataclass(frozen=True, kw_only=True)
class Standing:
    """`findings` are the fingerprints of all and of the sites of breaks, `warnings` the words for what is of severity warning or worse.

    What is left in the copies of the patch module is no warning here: it is left of an original, and only counted (`patched`).
    """

    findings: tuple[str, ...]
    warnings: Mapping[str, str]
    counts: Mapping[str, int]
    compiled: bool
    patched: int = 0

    @classmethod
    def of(cls, report: Report) -> Standing:
        """That of a report."""
        summary = report.summary
        return cls(
            findings=tuple(
                sorted(
                    {
                        *(finding.fingerprint for finding in report.findings),
                        *(graph_break.fingerprint for graph_break in report.graph_breaks),
                    }
                )
            ),
            warnings={item.fingerprint: _named(item) for item in report.findings if item.severity != "note" and not _is_patched(item)},
            counts={name: getattr(summary, name) for name in _COUNTED},
            compiled=bool(summary.graphs and summary.frames_compiled),
            patched=sum(element.severity != "note" and _is_patched(element) for element in report.findings)
            + sum(any(place.file.endswith(f"{NAME}.py") for place in entry.stack) for entry in report.graph_breaks),
        )

    def shows(self, cures: Sequence[str]) -> set[str]:
        """Which of these findings are there."""
        return set(cures) & set(self.findings)

    def to_json(self) -> dict[str, Any]:
        """For `Standing(**...)`."""
        return asdict(self)


def _is_patched(finding: Finding) -> bool:
    return finding.where is not None and finding.where.file.endswith(f"{NAME}.py")


def _named(finding: Finding) -> str:
    where = f" at line {finding.where.line}" if finding.where is not None else ""
    return f"{finding.code}{where} ({finding.title})"


def _unplaced(words: str) -> str:
    """The words without the line: the same recompiles have another name where another line is the first to ask for the guard."""
    return re.sub(r" at line \d+ ", " ", words, count=1)


def why_not_better(first: Standing, before: Standing, after: Standing, cures: Sequence[str]) -> str | None:
    """Why a run is not better than the one before: a finding that is still there, a new one, more of something counted.

    `first` is that of the original program.
    """
    if not after.compiled:
        return "nothing is compiled any more"
    if not before.shows(cures):
        return "the finding does not show in this run"
    if before.shows(cures) <= set(after.findings):
        return "the finding is still there"
    known = {_unplaced(words) for words in first.warnings.values() if words.startswith("DR")}
    new = next((words for name, words in after.warnings.items() if name not in first.findings and _unplaced(words) not in known), None)
    if new is not None:
        return f"a new finding: {new}"
    for name in _COUNTED:
        was, now = before.counts[name], after.counts[name]
        # What ran eagerly has versions once it is compiled; those that are worth a warning are new findings.
        if now > was and not (name == "recompiles" and after.counts["fallbacks"] < before.counts["fallbacks"]):
            return f"{name.replace('_', ' ')} went from {was} to {now}"
    return None
