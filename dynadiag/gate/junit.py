"""The outcome as JUnit's XML, which CI systems show as tests: one for each limit and each problem."""

from __future__ import annotations

from xml.etree import ElementTree

from dynadiag.gate.formats import Shown, count_of, message
from dynadiag.gate.result import Problem
from dynadiag.render.sanitise import clean, clean_block, xml_text


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
