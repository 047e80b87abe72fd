"""The outcome as SARIF 2.1.0 (OASIS standard), which GitHub's code scanning and many editors read, and as JUnit's XML for CI systems."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

import dynadiag
from dynadiag.gate.formats import Shown, count_of, message, rules
from dynadiag.gate.result import Problem
from dynadiag.render import finite_json
from dynadiag.render.sanitise import clean, clean_block, clean_code, encodable, json_escaped, xml_text

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


def junit(shown: Shown) -> str:
    """A test suite: failures are what fails, skipped what a comment or the baseline lets through."""
    result = shown.result
    limits = [item for item in result.limits if item.holds]
    suite = ElementTree.Element(
        "testsuite",
        name="dynadiag check",
        tests=str(len(limits) + len(result.problems)),
        failures=str(len(result.failed)),
        skipped=str(sum(element.status in ("known", "allowed") for element in result.problems)),
        errors="0",
    )
    for limit in limits:
        name = f"{limit.name}: {count_of(limit)}"
        ElementTree.SubElement(suite, "testcase", classname=_text(result.program or shown.target), name=_text(name))
    for problem in result.problems:
        _case(suite, shown, problem)
    suites = ElementTree.Element("testsuites", name="dynadiag")
    suites.append(suite)
    ElementTree.indent(suites)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suites, encoding="unicode") + "\n"


def _case(suite: ElementTree.Element, shown: Shown, problem: Problem) -> None:
    line = problem.where.line if problem.where is not None else None
    name = f"{problem.code} {problem.title}" + (f" (line {line})" if line is not None else "")
    file = _text(shown.file(problem))
    case = ElementTree.SubElement(suite, "testcase", classname=file, name=_text(name), file=file)
    if line is not None:
        case.set("line", str(line))
    if problem.status == "failed":
        failure = ElementTree.SubElement(case, "failure", type=_text(problem.code), message=_text(message(problem)))
        place = f"{shown.file(problem)}:{line}" if line is not None else shown.file(problem)
        lines = (place, problem.where.code if problem.where is not None else None, problem.why)
        failure.text = xml_text(clean_block("\n".join(line for line in lines if line)))
    elif problem.status in ("known", "allowed"):
        ElementTree.SubElement(case, "skipped", message=_text(problem.reason or "in the baseline"))


def _text(text: str) -> str:
    return xml_text(clean(text, limit=1000))
