"""For how many known causes `dynadiag explain` names a change, on recordings: no torch, a second for each.

    .venv/bin/python benchmarks/advised_causes.py EXPECTED.json RECORDINGS

`RECORDINGS/NAME` is the run directory of each program of `EXPECTED.json` (`dynadiag explain --out RECORDINGS/NAME NAME.py`), which has the
line of each cause. A cause counts as advised where a finding stands at its line or on the way to it, or names the line, and has a change
that is established or an idea; as settled where the finding says that nothing has to change. Whether a change works is not asked here:
follow it by hand, or give it to `dynadiag prove`.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dynadiag import trace
from dynadiag.model.clauses import Settled
from dynadiag.model.report import Finding, Report
from dynadiag.report import build

SURE = ("established", "idea", "settled", "none", "not found")


def lines_of(finding: Finding, report: Report, program: str) -> Iterator[int]:
    """The lines of the program that a finding is about."""
    places = [finding.where, *(place for site in report.graph_breaks if site.id in finding.evidence for place in site.stack)]
    yield from (place.line for place in places if place is not None and place.line is not None and Path(place.file).stem == program)
    said = " ".join((finding.why, *(advice.words for advice in finding.fix)))
    for part in said.split(f"{program}.py:")[1:]:
        number = part[: len(part) - len(part.lstrip("0123456789"))]
        yield from (int(number),) if number else ()


def advised(cause: dict[str, Any], report: Report, program: str) -> tuple[str, str]:
    """How sure the surest change for a cause is (`none`: there is none), and its slug."""
    found = [finding for finding in report.findings if cause["line"] in set(lines_of(finding, report, program))]
    changes = sorted(((advice.how_sure, advice.slug) for finding in found for advice in finding.fix if advice.slug != "minify"), key=str)
    if changes:
        return changes[0]
    settled = any(isinstance(clause, Settled) for finding in found for clause in finding.clauses)
    return ("settled" if settled else "none" if found else "not found", "")


def main() -> None:
    """Count the causes of all programs."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("expected", type=Path)
    parser.add_argument("recordings", type=Path)
    given = parser.parse_args()
    counts: Counter[str] = Counter()
    for program, known in json.loads(given.expected.read_text()).items():
        report = build(trace.load(given.recordings / program))
        for cause in known["causes"]:
            sure, slug = advised(cause, report, program)
            counts[sure] += 1
            print(f"{program}:{cause['line']} {cause['cause']} ({cause['expert']}): {sure} {slug}")
    total = sum(counts.values())
    print(f"{total} causes: " + ", ".join(f"{sure} {counts[sure]}" for sure in SURE))


if __name__ == "__main__":
    main()
