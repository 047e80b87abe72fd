"""The outcome as text: one line a problem for people and editors, GitHub's annotations, Markdown, JSON, SARIF and JUnit.

Everything that comes from a log or a source is cleaned and then escaped as the format wants it: none may end a line or begin a command.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict
from urllib.parse import quote
from xml.etree import ElementTree

import dynadiag
from dynadiag.gate.result import GateResult, Limit, Problem, counted
from dynadiag.model import codes
from dynadiag.render import finite_json
from dynadiag.render.markdown_text import code, prose, table
from dynadiag.render.sanitise import clean, clean_block, clean_code, encodable, json_escaped, xml_text

_LONGEST_MESSAGE = 400
_OF_GITHUB = {"error": "error", "warning": "warning", "note": "notice"}
_OWN_CODES = {
    "max-breaks": "More graph breaks than allowed",
    "max-recompiles": "More recompiles than allowed",
    "max-fallbacks": "More fallbacks to eager than allowed",
    "max-cache-misses": "More compilations than allowed did not come from the caches",
    "max-compiles-after": "Something compiled after the warm-up",
    "no-mutation-copy": "A mutated input is copied",
    "min-graphs": "Fewer graphs than required",
    "min-compiled": "A smaller share of operators runs compiled than required",
    "exit-status": "The program failed",
    "unused-allow": "A comment allows a finding that is not there",
}


@dataclass(frozen=True, kw_only=True)
class Shown:
    """An outcome with what names its files: the folders that paths are shown relative to, the nearest first, and `target` for no place."""

    result: GateResult
    roots: tuple[str, ...]
    target: str

    def file(self, problem: Problem) -> str:
        """The file of a problem below the first root that holds it, else as recorded; the target where there is no place."""
        if problem.where is None:
            return self.target
        path = problem.where.file
        for root in self.roots:
            if path.startswith(f"{root.rstrip('/')}/"):
                return os.path.relpath(path, root)
        return path

    @property
    def told(self) -> tuple[Problem, ...]:
        """What is told in any case: what fails, then remarks."""
        return (*self.result.failed, *self.result.remarks)


class ProblemKeys(TypedDict):
    """One thing that is told."""

    code: Annotated[str, "the code of a finding, or the name of a limit"]
    severity: Annotated[str, "error, warning or note"]
    status: Annotated[str, "failed, known (in the baseline), allowed (by a comment) or passed"]
    fingerprint: Annotated[str | None, "null for what is no finding"]
    file: Annotated[str | None, "relative to the workspace or the current folder where it lies below it; null without a place"]
    line: int | None
    function: str | None
    source: str | None
    title: str
    why: str
    fix: Annotated[str | None, "the first change that is advised; null when none is"]
    reason: Annotated[str | None, "the reason of the comment that allows it"]
    evidence: Annotated[list[str], "ids of report.json"]


class CountsKeys(TypedDict):
    """How many problems there are, by status."""

    failed: int
    known: Annotated[int, "in the baseline"]
    allowed: Annotated[int, "by a comment"]
    passed: int
    gone: Annotated[int, "problems that the baseline lists and that this run does not have"]


class TotalKeys(TypedDict):
    """The outcome without the problems."""

    schema_version: Literal[1]
    dynadiag: str
    program: Annotated[str, "the script as the project names it, or `-m MODULE`; empty for a log that does not tell"]
    torch: str | None
    passed: bool
    exit_status: int
    counts: CountsKeys
    limits: Annotated[list[dict[str, object]], list[Limit]]
    notes: list[str]


class CheckFile(TotalKeys):
    """The outcome of `dynadiag check`."""

    problems: list[ProblemKeys]
    remarks: Annotated[list[ProblemKeys], "what does not fail: comments that nothing needs"]


def roots_of(run_cwd: str | None) -> tuple[str, ...]:
    """The workspace of a GitHub job, the current folder, and the folder that the program ran in."""
    here = str(Path.cwd())
    return tuple(dict.fromkeys(name for name in (os.environ.get("GITHUB_WORKSPACE"), here, run_cwd) if name and name != "/"))


def message(problem: Problem) -> str:
    """The title and the change to make, on one line."""
    text = problem.title if problem.fix is None else f"{problem.title}. Fix: {problem.fix}"
    return clean(text, limit=_LONGEST_MESSAGE)


def concise(shown: Shown) -> str:
    """`file:line:col: CODE message`, a line each. Torch records lines only, so the column is always 1."""
    lines = []
    for problem in shown.told:
        line = (problem.where.line or 1) if problem.where is not None else 1
        file = clean(shown.file(problem), limit=1000)
        # A line that begins with "::" is a command to GitHub's runner.
        lines.append(f"{'./' if file.startswith(':') else ''}{file}:{line}:1: {clean(problem.code)} {message(problem)}\n")
    return "".join(lines)


def summary(shown: Shown) -> str:
    """What came out, on one line."""
    result = shown.result
    parts = [f"{len(result.failed)} failed" if result.failed else "passed"]
    parts += [
        f"{count} {words}"
        for status, words in (("known", "in the baseline"), ("allowed", "allowed by a comment"))
        if (count := _n(result, status))
    ]
    counts = [count_of(limit) for limit in result.limits]
    return f"check: {', '.join(parts)}" + (f" ({'; '.join(counts)})" if counts else "")


def count_of(limit: Limit) -> str:
    """`2 graph break sites, at most 3`."""
    return f"{counted(limit)}, {'at least' if limit.name.startswith('min-') else 'at most'} {limit.limit}"


def _n(result: GateResult, status: str) -> int:
    return sum(problem.status == status for problem in result.problems)


def github(shown: Shown) -> str:
    """Workflow commands, which GitHub shows as annotations of the lines (`actions/toolkit`, `command.ts`: what is escaped, and how)."""
    lines = []
    for problem in shown.told:
        place = {} if problem.where is None else {"file": clean(shown.file(problem), limit=1000), "line": str(problem.where.line or 1)}
        fields = {**place, "title": f"dynadiag {clean(problem.code)}"}
        properties = ",".join(f"{name}={_property(value)}" for name, value in fields.items())
        lines.append(f"::{_OF_GITHUB[problem.severity]} {properties}::{_data(message(problem))}\n")
    return "".join(lines)


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def markdown(shown: Shown) -> str:
    """A summary and a table, for a pull request or a job's page."""
    result = shown.result
    named = prose(result.program or shown.target)
    head = f"### dynadiag check: {'failed' if result.failed else 'passed'}\n\n{named}: {prose(summary(shown).removeprefix('check: '))}.\n"
    parts = [head]
    if shown.told:
        rows = [[_line_code(shown, problem), code(problem.code), prose(problem.title), prose(problem.fix or "")] for problem in shown.told]
        parts.append(table(["Place", "Code", "Problem", "Fix"], rows) + "\n")
    through = [item for item in result.problems if item.status in ("known", "allowed")]
    if through:
        rows = [
            [_line_code(shown, element), code(element.code), prose(element.title), prose(element.reason or "in the baseline")]
            for element in through
        ]
        parts.append("Accepted:\n\n" + table(["Place", "Code", "Problem", "Why"], rows) + "\n")
    parts += [prose(note, limit=_LONGEST_MESSAGE) + ".\n" for note in result.notes]
    return "\n".join(parts)


def _line_code(shown: Shown, problem: Problem) -> str:
    line = problem.where.line if problem.where is not None else None
    return code(shown.file(problem) if line is None else f"{shown.file(problem)}:{line}")


def as_json(shown: Shown) -> str:
    """The whole outcome (`docs/check.schema.json`)."""
    return json_escaped(finite_json.dumps(_document(shown), indent=1)) + "\n"


def as_json_lines(shown: Shown) -> str:
    """One JSON object a line: each problem and remark, then the totals."""
    rows = [
        *({"type": "problem", **_entry(shown, problem)} for problem in shown.result.problems),
        *({"type": "remark", **_entry(shown, remark)} for remark in shown.result.remarks),
        {"type": "result", **_totals(shown)},
    ]
    return "".join(f"{json_escaped(finite_json.dumps(row))}\n" for row in rows)


def _document(shown: Shown) -> CheckFile:
    return {
        **_totals(shown),
        "problems": [_entry(shown, problem) for problem in shown.result.problems],
        "remarks": [_entry(shown, remark) for remark in shown.result.remarks],
    }


def _totals(shown: Shown) -> TotalKeys:
    result = shown.result
    counts: CountsKeys = {
        "failed": _n(result, "failed"),
        "known": _n(result, "known"),
        "allowed": _n(result, "allowed"),
        "passed": _n(result, "passed"),
        "gone": result.gone,
    }
    return {
        "schema_version": 1,
        "dynadiag": dynadiag.__version__,
        "program": encodable(result.program),
        "torch": result.torch,
        "passed": not result.failed,
        "exit_status": result.exit_status,
        "counts": counts,
        "limits": [asdict(limit) for limit in result.limits],
        "notes": list(result.notes),
    }


def _entry(shown: Shown, problem: Problem) -> ProblemKeys:
    where = problem.where
    return {
        "code": problem.code,
        "severity": problem.severity,
        "status": problem.status,
        "fingerprint": problem.fingerprint,
        "file": None if where is None else encodable(shown.file(problem)),
        "line": None if where is None else where.line,
        "function": None if where is None or where.function is None else encodable(where.function),
        "source": None if where is None or where.code is None else encodable(where.code),
        "title": encodable(problem.title),
        "why": encodable(problem.why),
        "fix": None if problem.fix is None else encodable(problem.fix),
        "reason": None if problem.reason is None else encodable(problem.reason),
        "evidence": list(problem.evidence),
    }


def rules(result: GateResult) -> Mapping[str, tuple[str, str]]:
    """A title and a sentence for each code among the problems."""
    return dict(sorted(_rules(result)))


def _rules(result: GateResult) -> Iterator[tuple[str, tuple[str, str]]]:
    for problem in (*result.problems, *result.remarks):
        row = codes.TABLE.get(problem.code)
        if problem.code in _OWN_CODES:
            yield problem.code, (_OWN_CODES[problem.code], f"A limit of dynadiag check: {problem.code}.")
        elif row is not None:
            yield problem.code, (row.title, row.what)
        else:
            yield (
                problem.code,
                (f"Graph break {problem.code}", f"A graph break with an id of torch's own: dynadiag rule {problem.code} explains it."),
            )


# The outcome as SARIF 2.1.0 (OASIS standard), which GitHub's code scanning and many editors read, and as JUnit's XML for CI systems.

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
