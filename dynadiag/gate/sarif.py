"""The outcome as SARIF 2.1.0 (OASIS standard), which GitHub's code scanning and many editors read."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import dynadiag
from dynadiag.gate.formats import Shown, message, rules
from dynadiag.gate.result import Problem
from dynadiag.render import finite_json
from dynadiag.render.sanitise import clean, clean_code, encodable, json_escaped

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def sarif(shown: Shown) -> str:
    """A log with one run: what failed, and as suppressed what a comment or the baseline lets through."""
    described = rules(shown.result)
    numbers = {code: number for number, code in enumerate(described)}
    told = [
        problem
        for problem in (*shown.result.problems, *shown.result.remarks)
        if problem.status != "passed" or problem in shown.result.remarks
    ]
    run = {
        "tool": {
            "driver": {
                "name": "dynadiag",
                "version": dynadiag.__version__,
                "semanticVersion": dynadiag.__version__,
                "rules": [
                    {"id": clean(code), "shortDescription": {"text": title}, "fullDescription": {"text": what}}
                    for code, (title, what) in described.items()
                ],
            }
        },
        "automationDetails": {"id": f"dynadiag/{quote(encodable(shown.result.program), safe='/')}"},
        "invocations": [{"executionSuccessful": True, "exitCode": shown.result.exit_status}],
        "columnKind": "unicodeCodePoints",
        "results": [_result(shown, item, numbers[item.code]) for item in told],
    }
    return json_escaped(finite_json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1)) + "\n"


def _result(shown: Shown, problem: Problem, rule: int) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": clean(problem.code),
        "ruleIndex": rule,
        "level": problem.severity,
        "message": {"text": message(problem) or problem.code},
        "locations": [] if problem.where is None else [_location(shown, problem)],
    }
    if problem.fingerprint is not None:
        result["partialFingerprints"] = {"dynadiag/v1": problem.fingerprint}
    if problem.status == "allowed":
        result["suppressions"] = [{"kind": "inSource", "justification": clean(problem.reason or "")}]
    if problem.status == "known":
        result["suppressions"] = [{"kind": "external", "justification": "in the baseline"}]
    return result


def _location(shown: Shown, problem: Problem) -> dict[str, Any]:
    where = problem.where
    assert where is not None
    file = clean(shown.file(problem), limit=4000).replace("\\", "/")
    artifact = {"uri": f"file://{quote(file)}"} if file.startswith("/") else {"uri": _relative(file), "uriBaseId": "%SRCROOT%"}
    physical: dict[str, Any] = {"artifactLocation": artifact}
    if where.line is not None and where.line > 0:
        physical["region"] = {"startLine": where.line} | ({"snippet": {"text": clean_code(where.code)}} if where.code else {})
    location: dict[str, Any] = {"physicalLocation": physical}
    if where.function:
        location["logicalLocations"] = [{"name": clean(where.function), "kind": "function"}]
    return location


def _relative(file: str) -> str:
    """A path as a relative reference: none that begins like a scheme (`a:b.py`) or like a host (`//x`)."""
    return quote(file.lstrip("/"), safe="/") or "unknown"
