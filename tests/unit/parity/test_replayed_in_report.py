"""`explain` of a run that `dynadiag parity` was run on: what could happen, apart from what happened; and rubbish in its place."""

import json
from pathlib import Path

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dynadiag
from dynadiag import report, trace
from dynadiag.model.run import Run, RunInfo
from dynadiag.render import json_report, markdown
from dynadiag.render.parity_words import ways
from dynadiag.trace.parity import replayed

SCHEMA = json.loads((Path(__file__).parents[3] / "docs" / "report.schema.json").read_text())
TENSOR = {
    "where": "output",
    "name": "output 0",
    "source": None,
    "aspect": "values",
    "eager": "4",
    "compiled": "3",
    "elements": 4,
    "wrong_elements": 2,
}
FINDING = {
    "id": "p0",
    "code": "DM30",
    "title": "Wrong when two inputs overlap",
    "graph": "g7",
    "would": "would be wrong if `x` and `y` overlapped in memory",
    "layer": "aot_eager",
    "tensor": TENSOR,
    "others": 1,
    "where": {"file": "/home/me/train.py", "line": 7, "function": "later", "code": "x.mul_(2)"},
    "test": "tests/test_parity_g7.py",
}
RESULT = {"schema_version": 1, "torch": "2.15.0", "summary": {"graphs": 3, "compared": 2, "findings": 1}, "findings": [FINDING]}


@pytest.fixture
def run_with(tmp_path):
    """A run directory of ours with this text as its `parity.json`."""
    (tmp_path / "dynadiag-run.json").write_text(json.dumps({"format": 1}))

    def load(text):
        if text is not None:
            (tmp_path / "parity.json").write_text(text)
        return tmp_path

    return load


def built(path):
    made = dynadiag.load(path)
    told = json_report.to_dict(made)
    jsonschema.Draft202012Validator(SCHEMA).validate(told)
    return made, told


def test_other_strides_are_no_way_to_go_wrong():
    assert ways([("DM35", "stride"), ("DM30", "values"), ("DM35", "dtype")]) == "2 ways to go wrong, 1 way to differ"
    assert ways([("DM35", "stride")] * 2) == "2 ways to differ" and ways([]) == ""


def test_what_could_happen_is_a_warning_with_its_line_and_its_evidence(run_with):
    made, told = built(run_with(json.dumps(RESULT)))
    (found,) = [one for one in made.findings if one.code == "DM30"]
    assert (found.severity, found.title) == ("warning", "Could happen: Wrong when two inputs overlap")
    assert (found.where.line, found.where.code) == (7, "x.mul_(2)")
    assert "2 of 4 elements, the first 4 in eager and 3 compiled; 1 more. It first shows in aot_eager." in found.why
    assert "tests/test_parity_g7.py" in found.why
    assert [one.slug for one in found.fix] == ["no-shared-memory", "keep-it-eager"]
    assert told["could_happen"] == {"torch": "2.15.0", "graphs": 3, "compared": 2, "findings": 1}
    assert told["parity"] is None
    assert (
        "Could happen: 2 of 3 graphs replayed by torch 2.15.0 over calls that the program did not make: 1 way to go wrong"
        in markdown.render(made)
    )
    assert any("graphs that this recording does not contain (1 finding)" in note for note in made.notes)


def test_it_is_no_part_of_what_was_recorded(run_with):
    path = run_with(json.dumps(RESULT))
    assert report.build(trace.load(path)).replayed is None
    assert report.build_with_replay(trace.load(path), path).replayed.compared == 2


def test_nothing_is_said_where_it_did_not_run(run_with):
    made, told = built(run_with(None))
    assert (told["could_happen"], made.replayed) == (None, None)
    assert "`dynadiag parity` was not run" in told["could_happen_why"]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"schema_version": 9}', '{"schema_version": 1, "summary": {"graphs": -1, "compared": 0}}']
)
def test_a_file_that_cannot_be_used_is_a_note(run_with, text):
    made, told = built(run_with(text))
    assert told["could_happen"] is None
    assert any(note.startswith("parity.json cannot be used: ") for note in made.notes)


RUBBISH = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from([*FINDING, *TENSOR]), inner),
    max_leaves=8,
)
ENTRY = st.dictionaries(st.sampled_from([*FINDING]), RUBBISH).map(lambda more: {**FINDING, **more})


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(ENTRY | RUBBISH))
def test_rubbish_is_left_out_or_shown(tmp_path, findings):
    (tmp_path / "parity.json").write_text(json.dumps({**RESULT, "findings": findings}))
    told, note = replayed(tmp_path / "parity.json")
    assert note is None
    json_report.dumps(report.build(Run(info=RunInfo()), replayed=told))
