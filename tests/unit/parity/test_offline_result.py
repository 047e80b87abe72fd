"""What the answers of the replaying process become: findings in words, text, Markdown, and JSON to its schema."""

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from dynadiag.parity import session
from dynadiag.parity.result import ParityResult, findings_of
from dynadiag.parity.showing import document_of, headline
from dynadiag.render.markdown_text import document
from dynadiag.render.page import text_of

SCHEMA = json.loads((Path(__file__).parents[3] / "docs" / "parity.schema.json").read_text())
PAIR = ["L['x']", "L['self'].cache"]


def tried(kind, calls=("recorded", "overlap"), pair=PAIR, **changes):
    known = {"shift": 2, "outcome": "differs", "why_not": None, "gradients_why_not": None, "values_compared": True}
    return {"kind": kind, "calls": list(calls), "pair": list(pair), **known, **changes}


def difference(scenario=0, **changes):
    known = {"call": 1, "layer": "aot_eager", "where": "output", "position": 0, "name": "output 0", "aspect": "values"}
    known |= {"eager": "1", "compiled": "2", "elements": 4, "wrong_elements": 2, "source": None}
    line = {"file": "/home/u/a.py", "line": 8, "function": "fn", "code": "x.mul_(2)"}
    return {"scenario": scenario, **known, "line": line, **changes}


def graph(tried_ones, differences, **changes):
    known = {"graph": "g0", "frame": "f0", "function": "fn", "file": "/home/u/a.py", "first_line": 7, "status": "compared"}
    known |= {"why_not": None, "backend": "aot_eager", "notes": [], "skipped": []}
    return {**known, "tried": tried_ones, "differences": differences, **changes}


def as_text(made, **options):
    """Without the places where lines are folded."""
    return " ".join(text_of(document_of(made), **options).split())


def result(*graphs):
    return ParityResult(
        recording="run", torch="2.15.0", recorded_torch=("2.15.0",), graphs=tuple(graphs), findings=findings_of(graphs), notes=()
    )


@pytest.mark.parametrize(
    ("kind", "changes", "code", "words"),
    [
        ("overlap_later", {}, "DM30", "would be wrong if `x` and `self.cache` overlapped in memory, on a call after one where they do not"),
        (
            "overlap_first",
            {"aspect": "raises"},
            "DM31",
            "would raise if `x` and `self.cache` did not overlap, on a call after one where they",
        ),
        ("overlap_first", {"call": 0}, "DM30", "would be wrong if `x` and `self.cache` overlapped in memory, already on the first call"),
        ("apart_later", {"aspect": "raises"}, "DM31", "would raise if `x` and `self.cache` no longer shared memory"),
        ("same_tensor", {}, "DM32", "would be wrong if `x` and `self.cache` were passed as the same tensor"),
        ("disk_cache", {}, "DM33", "loads from disk the graph compiled for a call where they do not"),
        ("second_call", {}, "DM34", "would be wrong on a second call with different values"),
        ("second_call", {"aspect": "stride", "call": 0}, "DM35", "would differ on the first call"),
        ("second_call", {"where": "gradient"}, "DM36", "would be wrong on a second call"),
    ],
)
def test_each_kind_has_its_code_and_its_words(kind, changes, code, words):
    (finding,) = findings_of([graph([tried(kind)], [difference(**changes)])])
    assert (finding.code, finding.severity, finding.level) == (code, "warning", "could_happen")
    assert words in finding.would


def test_the_smallest_tensor_whose_values_differ_is_shown():
    entries = [difference(position=number, name=f"output {number}", elements=size) for number, size in enumerate((64, 4, 16))]
    (finding,) = findings_of([graph([tried("overlap_later")], [difference(aspect="stride", elements=None), *entries])])
    assert (finding.tensor["name"], finding.others) == ("output 1", 3)


def test_pairs_of_one_graph_are_one_finding():
    other = tried("overlap_later", pair=["L['x']", "L['z']"])
    (finding,) = findings_of([graph([tried("overlap_later"), other], [difference(), difference(1)])])
    assert finding.also == (("L['x']", "L['z']"),)


def test_json_keeps_to_its_schema():
    skipped = graph([], [], graph="g1", status="skipped", why_not="its back end 'mine' is a function of the script", backend=None)
    unknown = graph([tried("second_call", outcome="not_judged", why_not="time")], [], skipped=[{"kind": "disk_cache", "reason": "r"}])
    data = result(graph([tried("overlap_later")], [difference()]), skipped, unknown).to_json("0.1")
    jsonschema.validate(json.loads(json.dumps(data)), SCHEMA)
    assert data["summary"] == {"graphs": 3, "compared": 2, "findings": 1}


def test_what_happened_is_kept_apart_from_what_could():
    where = {"file": "/home/u/a.py", "line": 3, "function": "fn", "code": "op(x)"}
    found = {"code": "DM40", "severity": "error", "title": "Silently wrong: x", "why": "eager writes it", "where": where}
    happened = {"verdict": "2 calls compared", "calls_compared": 2, "findings": [found], "notes": []}
    both = replace(result(graph([tried("overlap_later")], [difference()])), happened=happened)
    jsonschema.validate(json.loads(json.dumps(both.to_json("0.1"))), SCHEMA)
    text = as_text(both)
    assert text.index("Could happen: ") < text.index("DM40 error: Silently wrong: x") < text.index("DM30 warning")
    assert text_of(document_of(both), headlines_only=True) == f"Happened: 2 calls compared\nCould happen: {headline(both)}\n"
    assert "## What happened" in document(document_of(both))
    assert replace(both, findings=()).wrong


def test_text_says_what_was_tried_and_what_not():
    text = as_text(result(graph([tried("overlap_later"), tried("same_tensor", outcome="equal")], [difference()])))
    assert "Could happen: 1 of 1 graphs compared, 1 way to go wrong" in text
    assert "--> /home/u/a.py:8 in fn: x.mul_(2)" in text
    assert "output 0: 2 of 4 elements, the first 1 in eager and 2 compiled" in text
    assert "same tensor passed twice x and self.cache equal" in text


def test_names_from_a_log_stay_text():
    hostile = "L['<img src=x>\x1b[31m']"
    shown = result(graph([tried("overlap_later", pair=[hostile, "L['y']"])], [difference(name="`</script>")]))
    assert "\x1b" not in as_text(shown)
    assert r"differs \`\</script>: 2 of 4 elements" in document(document_of(shown))


def test_nothing_compared_is_not_called_no_difference():
    text = as_text(result(graph([], [], status="skipped", why_not="time", backend=None)))
    assert "Could happen: the graph could not be compared" in text
    assert "no difference" not in text


def test_a_reason_stands_once_with_its_graphs_and_functions_are_named_as_people_do():
    left = [{"kind": "disk_cache", "reason": "only inductor"}]
    resumed = graph([tried("second_call")], [], graph="g1", function="torch_dynamo_resume_in_fn_at_4", skipped=left)
    made = result(graph([tried("second_call")], [], skipped=left), resumed, graph([], [], graph="g2", skipped=left))
    (section,) = [one for one in document_of(made).sections if one.title == "Not compared"]
    assert [[part.text for cell in row for part in cell] for row in section.items] == [
        ["g0, g1, g2", "fn, fn, resumed at line 4", "warm on-disk cache", "only inductor"]
    ]
    assert "torch_dynamo_resume" not in text_of(document_of(made))


def test_a_replay_that_was_killed_does_not_end_as_a_clean_one(tmp_path, monkeypatch):
    """`parity` ended with 0 where the system had killed its replay before the first graph."""
    graph = "class GraphModule(torch.nn.Module):\n\tdef forward(self):\n\t    return ()"
    head = '{"dynamo_output_graph": {}, "frame_id": 0, "frame_compile_id": 0, "attempt": 0, "has_payload": "x"}'
    (tmp_path / "a.log").write_text(f"V1121 09:00:00.000000 77 torch/x.py:1] {head}\n\t{graph}\n")
    main = tmp_path / "killed.py"
    main.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    monkeypatch.setattr(session, "_MAIN", main)
    result = session.replay_recording(tmp_path / "a.log", session.OfflineOptions())
    assert result.broken and result.notes == ("the replay was killed by SIGKILL: no output",)
