"""What a recorded run shows, as far as proofs ask: its findings by name, and what is counted. Plain data, kept in the journal too."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dynadiag.fix.patch_module import NAME
from dynadiag.model.report import Finding, Report

_OPTIMIZER = re.compile(r"[/\\\\]torch[/\\\\]optim[/\\\\]")
_LEAST_SHARE = 0.1
"""Of the operators that were compiled, where something smaller is compiled instead: clipping and meters may be most of them."""
_COUNTED = ("graph_break_sites", "graph_break_events", "recompiles", "fallbacks")


@dataclass(frozen=True, kw_only=True)
class Standing:
    """`findings` are the fingerprints of all and of the sites of breaks, `warnings` the words for what is of severity warning or worse.

    `operators` counts those in graphs, each function at its largest, without those of an optimizer's update.
    What is left in the copies of the patch module is no warning here: it is left of an original, and only counted (`patched`).
    """

    findings: tuple[str, ...]
    warnings: Mapping[str, str]
    counts: Mapping[str, int]
    compiled: bool
    patched: int = 0
    operators: int = 0

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
            operators=_operators(report),
            patched=sum(element.severity != "note" and _is_patched(element) for element in report.findings)
            + sum(any(place.file.endswith(f"{NAME}.py") for place in entry.stack) for entry in report.graph_breaks),
        )

    def shows(self, cures: Sequence[str]) -> set[str]:
        """Which of these findings are there."""
        return set(cures) & set(self.findings)

    def is_as_good_as(self, other: Standing) -> bool:
        """Whether nothing is found that the other does not have, no more is counted, and no less runs compiled."""
        fewer = all(self.counts[name] <= other.counts[name] for name in _COUNTED)
        return fewer and set(self.findings) <= set(other.findings) and self.operators >= other.operators

    def to_json(self) -> dict[str, Any]:
        """For `Standing(**...)`."""
        return asdict(self)


def _operators(report: Report) -> int:
    found: dict[tuple[str | None, int | None, str | None], int] = {}
    for frame in report.run.frames:
        count = 0 if frame.metrics is None else frame.metrics.graph_ops or 0
        if not _OPTIMIZER.search(frame.file or ""):
            place = frame.file, frame.line, frame.name
            found[place] = max(found.get(place, 0), count)
    return sum(found.values())


def _is_patched(finding: Finding) -> bool:
    return finding.where is not None and finding.where.file.endswith(f"{NAME}.py")


def _named(finding: Finding) -> str:
    where = f" at line {finding.where.line}" if finding.where is not None else ""
    return f"{finding.code}{where} ({finding.title})"


def _unplaced(words: str) -> str:
    """The words without the line: the same recompiles have another name where another line is the first to ask for the guard."""
    return re.sub(r" at line \d+ ", " ", words, count=1)


def why_not_better(first: Standing, before: Standing, after: Standing, cures: Sequence[str], *, moved: bool = False) -> str | None:
    """Why a run is not better than the one before: a finding that is still there; a new one or more of something counted, where breaks,
    recompiles and fallbacks together are not fewer: what stood behind what is cured is the next thing to cure.

    `first` is that of the original program. `moved`: another part of it is compiled now, where the same causes have other names, so that
    only the sum of what is left counts.
    """
    if not after.compiled:
        return "nothing is compiled any more"
    if not before.shows(cures):
        return "the finding does not show in this run"
    if before.shows(cures) <= set(after.findings):
        return "the finding is still there"
    in_sum = _why_not_better_in_sum(before, after)
    if moved:
        return in_sum
    more = _what_is_more(first, before, after)
    fewer = in_sum is None and after.operators >= before.operators
    return None if fewer else more


def _what_is_more(first: Standing, before: Standing, after: Standing) -> str | None:
    there = {*first.findings, *before.findings}
    known = {_unplaced(words) for words in (*first.warnings.values(), *before.warnings.values()) if words.startswith("DR")}
    new = next((words for name, words in after.warnings.items() if name not in there and _unplaced(words) not in known), None)
    if new is not None:
        return f"a new finding: {new}"
    for name in _COUNTED:
        was, now = before.counts[name], after.counts[name]
        # What ran eagerly has versions once it is compiled; those that are worth a warning are new findings.
        if now > was and not (name == "recompiles" and after.counts["fallbacks"] < before.counts["fallbacks"]):
            return f"{name.replace('_', ' ')} went from {was} to {now}"
    return None


def _why_not_better_in_sum(before: Standing, after: Standing) -> str | None:
    was, now = (sum(standing.counts[name] for name in _COUNTED[1:]) for standing in (before, after))
    if now >= was or after.counts["graph_break_events"] > before.counts["graph_break_events"]:
        return f"breaks, recompiles and fallbacks together went from {was} to {now}"
    if after.operators < _LEAST_SHARE * before.operators:
        return f"too little is compiled then: {after.operators} operators instead of {before.operators}"
    return None
