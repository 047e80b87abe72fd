"""What `explain --parity` compared while the program ran, beside what could happen. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from dynadiag import report
from dynadiag.model import Run
from dynadiag.passes.find_parity import TITLES
from dynadiag.render.parity_words import details, verdict


def happened_in(run: Run) -> Mapping[str, Any] | None:
    """The verdict in words, and the findings on calls that really differed; None when no calls were compared in the run."""
    if not run.parity:
        return None
    built = report.build(run)
    if built.parity is None:
        return None
    findings = [
        {
            "code": one.code,
            "severity": one.severity,
            "title": one.title,
            "why": one.why,
            "where": asdict(one.where) if one.where is not None else None,
        }
        for one in built.findings
        if one.code in TITLES
    ]
    compared = built.parity.calls_equal + built.parity.calls_different
    return {"verdict": verdict(built.parity), "calls_compared": compared, "findings": findings, "notes": list(details(built.parity))}
