"""Two reports compared: what came and went, what is worse, and what cannot be compared; and the comparison in each format."""

import json
import re
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from dynadiag.diff import show
from dynadiag.diff.compare import compare
from dynadiag.errors import NothingFoundError
from dynadiag.model import report as r
from dynadiag.model import run as m
from dynadiag.render.html import result_page
from dynadiag.render.markdown_text import document
from dynadiag.render.page import text_of
from tests.unit.gate.gate_builders import CALL, PRINT, finding, graph_break, location, mutation, report, run

ROOT = Path(__file__).parents[3]
HOSTILE = "a\n\x1b[31m\u202e</script><b>|`{{ 7 * 7 }} \ud800"


def compared(old, new):
    return compare(old, new, old_path="runs/1", new_path="runs/2")


def told(result):
    return [(one.kind, one.what, one.code, one.regression) for one in result.changes]


def recompiled(of, times):
    return replace(report(of, breaks=()), findings=(finding(of, "DR02", "warning", CALL, tuple(f"r{n}" for n in range(times))),))


def test_equal_runs_are_no_difference_though_lines_moved():
    moved = run()
    moved = replace(moved, functions=(replace(moved.functions[0], line=110),))
    result = compared(report(), report(moved, breaks=((1, location(112, PRINT.code)),)))
    assert (told(result), result.same["break"], result.exit_status) == ([], 1, 0)
    assert show.headline(result).text == "No difference in the findings"


def test_what_came_is_worse_and_what_went_is_not():
    one, two = report(), report(breaks=((1, CALL),))
    assert told(compared(one, two)) == [("break", "gained", "GB0059", True), ("break", "lost", "GB0059", False)]
    assert compared(one, two).exit_status == 1
    assert show.headline(compared(one, two)).text == "Worse: 1 new graph break"
    assert compared(one, report(breaks=())).exit_status == 0
    assert show.headline(compared(one, report(breaks=()))).text == "Better: 1 earlier finding gone or less frequent"


def test_more_recompiles_of_one_function_are_worse_and_fewer_better():
    of = run()
    worse = compared(recompiled(of, 2), recompiled(of, 5))
    assert told(worse) == [("recompile", "worse", "DR02", True)] and worse.changes[0].counts == (2, 5)
    assert show.headline(worse).text == "Worse: 1 function recompiled more often"
    assert told(compared(recompiled(of, 5), recompiled(of, 2))) == [("recompile", "better", "DR02", False)]


def test_fallbacks_mutations_and_other_findings():
    of = run()
    clean = report(of, breaks=())
    found = [
        (report(of, breaks=(), fallbacks=1), [("fallback", "gained", "skipped_frame", True)]),
        (report(of, breaks=(), mutations=[mutation(of)]), [("mutation", "gained", "DM03", True)]),
        (report(of, breaks=(), mutations=[mutation(of, copied=False)]), []),
        (report(of, breaks=(), findings=[finding(of, "DF10", "error", CALL, ("f0",))]), [("other", "gained", "DF10", True)]),
        (report(of, breaks=(), findings=[finding(of, "DG01", "note", CALL)]), [("other", "gained", "DG01", False)]),
        (report(of, breaks=(), findings=[finding(of, "DM03", "warning", CALL, ("m0",))]), []),
    ]
    for other, expected in found:
        assert told(compared(clean, other)) == expected


def fallback_of(of, kind, **facts):
    return r.Fallback(id="x0", fingerprint="x0", kind=kind, frame="f0", reason="", own_frame=CALL, **facts)


def test_a_fallback_that_came_with_its_cause_is_that_cause_only():
    of = run()
    clean, breaks = report(of, breaks=()), report(of)
    skipped = replace(breaks, fallbacks=(fallback_of(of, "skipped_frame", breaks=(breaks.graph_breaks[0].id,)),))
    assert told(compared(clean, skipped)) == [("break", "gained", "GB0059", True)]
    assert told(compared(skipped, clean)) == [("break", "lost", "GB0059", False)]
    assert told(compared(breaks, skipped)) == [("fallback", "gained", "skipped_frame", True)]


def test_the_limit_is_told_with_the_recompiles_that_hit_it():
    of = run()
    events = tuple(f"r{n}" for n in range(7))
    limited = replace(
        report(of, breaks=()),
        findings=(finding(of, "DR01", "error", CALL, (*events, "f0")),),
        fallbacks=(fallback_of(of, "recompile_limit"),),
    )
    result = compared(report(of, breaks=()), limited)
    assert told(result) == [("recompile", "gained", "DR01", True)] and show.headline(result).text == "Worse: 1 new recompiled function"
    assert told(compared(limited, report(of, breaks=()))) == [("recompile", "lost", "DR01", False)]
    same = replace(limited, fallbacks=())
    assert told(compared(same, limited)) == [("fallback", "gained", "recompile_limit", True)]


def with_torch(of, version):
    return replace(of, processes=(replace(of.processes[0], torch=version),))


def test_what_cannot_be_compared_is_said():
    other = with_torch(run(command=("python", "train.py", "--big"), exit_status=None, killed=True), "2.11.0")
    doubts = compared(report(), report(replace(other, functions=()))).doubts
    assert [one.partition(":")[0] for one in doubts] == [
        "the runs are of torch 2.15.0 and 2.11.0",
        "the runs are of different programs or arguments",
        "the new run is not complete (dynadiag was killed while the script ran)",
        "the new run has no recorded sources",
    ]
    nothing = replace(run(), frames=())
    assert compared(report(), report(nothing)).doubts == ("nothing was compiled in the new run",)
    cut = replace(nothing, processes=(replace(nothing.processes[0], finished=False),))
    (doubt,) = compared(report(), report(cut)).doubts
    assert doubt.startswith("nothing was compiled in the new run, and whether it is complete is not known: process 1 ended")
    two = replace(run(), frames=(*run().frames, replace(run().frames[0], id="f9", key=run().frames[0].key._replace(process=1))))
    assert compared(report(), report(two)).doubts == (
        "the old run has 1 process with compiled code, the new one 2 processes: counts cover all of them",
    )
    with pytest.raises(NothingFoundError) as error:
        compared(report(nothing), report(nothing))
    assert error.value.exit_code == 5


def test_another_torch_with_another_id_is_the_same_break():
    of, newer = with_torch(run(), "2.11.0"), run()
    old = replace(report(of, breaks=()), graph_breaks=(graph_break(of, 1, PRINT, "GB0007"),))
    new = replace(report(newer, breaks=()), graph_breaks=(graph_break(newer, 1, PRINT, "GB9193"),))
    assert told(compared(old, new)) == []
    assert [one[1] for one in told(compared(replace(old, run=newer), new))] == ["gained", "lost"]


def guarded(of, **kinds):
    guards = (r.GuardReport(id="gd0", frame="f0", count=1, by_kind=kinds, latency_us=None, dearest=(), odd=(), failed=()),)
    time = r.FrameTime(frame="f0", total_s=1.5, phases={}, thrown_away_s=None, caches={})
    total = r.CompileTime(total_s=1.0, phases={}, thrown_away_s=None, caches={}, frames=(time,))
    return replace(report(of, breaks=()), guards=guards, compile_time=total)


def test_guards_and_compile_time_are_told_by_function_and_are_no_regression():
    result = compared(guarded(run(), TENSOR_MATCH=2), guarded(run(), TENSOR_MATCH=2, ID_MATCH=3))
    (one,) = result.guards
    assert (one.function, one.old, one.new, dict(one.kinds)) == ("step (train.py)", 2, 5, {"ID_MATCH": (0, 3)})
    assert (result.times[0].old_s, result.times[0].new_s, result.exit_status) == (1.5, 1.5, 0)


def test_findings_that_depend_on_how_long_something_took_are_no_difference():
    """On one machine the notes came, on another they were gone: nothing had changed."""
    of = run()
    slow = replace(report(of, breaks=()), findings=tuple(finding(of, code, "note", None) for code in ("DC01", "DC02", "DC03")))
    assert told(compared(report(breaks=()), slow)) == told(compared(slow, report(breaks=()))) == []
    assert told(compared(report(breaks=()), replace(slow, findings=(finding(of, "DC04", "warning", None),)))) == [
        ("other", "gained", "DC04", True)
    ]


def test_totals_are_coloured_by_whether_more_of_them_is_worse():
    def tones(old, new):
        (totals,) = (one for one in show.document_of(compared(old, new)).sections if one.title == "Totals")
        return {row[0][0].text: row[2][0].tone for row in totals.items}

    few = report(breaks=((1, PRINT),))
    more, less = tones(few, report(breaks=((1, PRINT), (2, CALL)))), tones(few, report(breaks=()))
    assert (more["graph breaks"], more["graphs"], more["compile time"]) == ("unclear", "plain", "plain")
    assert (less["graph breaks"], less["recompiles"]) == ("good", "plain")
    assert tones(with_graphs(), with_graphs(graph(0, relu=1)))["graphs"] == "plain"


def test_a_write_that_breaks_the_graph_is_told_as_that_break_only():
    broken = replace(mutation(run()), effects=({"kind": "graph_break", "basis": "observed", "detail": ""},))
    result = compared(report(breaks=()), report(mutations=[broken]))
    assert told(result) == [("break", "gained", "GB0059", True)]
    assert show.headline(result).text == "Worse: 1 new graph break"


def test_equal_changes_of_one_place_are_one_entry_that_counts_them():
    """An optimizer's step writes each parameter: one line, one entry."""
    of = run()
    many = replace(report(of, breaks=()), mutations=tuple(replace(mutation(of), id=f"m{n}", fingerprint=f"f{n}") for n in range(25)))
    result = compared(report(breaks=()), many)
    assert len(result.changes) == 25 and show.headline(result).text == "Worse: 25 new mutations"
    text = text_of(show.document_of(result))
    assert text.count("copy back") == 1 and ", and 24 more there" in text and "25 new, 0 unchanged" in text


def graph(number, **ops):
    return m.Graph(id=f"g{number}", frame="f0", kind="dynamo", attempt=1, nodes=sum(ops.values()), ops=ops, text=None)


def with_graphs(*graphs):
    return report(replace(run(), graphs=graphs), breaks=())


def test_graphs_without_text_are_compared_by_their_operators():
    result = compared(with_graphs(graph(0, relu=1), graph(1, mm=2, gelu=1)), with_graphs(graph(5, relu=1), graph(6, mm=3), graph(7, sin=1)))
    assert result.same_graphs == 1
    assert [(one.what, one.old, one.new, dict(one.came), dict(one.went)) for one in result.graphs] == [
        ("gained", None, "g7", {"sin": 1}, {}),
        ("changed", "g1", "g6", {"mm": 1}, {"gelu": 1}),
    ]
    assert show.headline(result).text == "Nothing is worse; graphs differ"


def rich():
    """A comparison with something in every part, and hostile texts in all of it."""
    bad = location(12, HOSTILE, HOSTILE, f"/x/{HOSTILE}")
    of = replace(run(command=("python", HOSTILE)), graphs=(graph(0, **{HOSTILE: 2}), graph(1, relu=1)))
    old = replace(guarded(of, **{HOSTILE: 1}), findings=(finding(of, "DR02", "warning", bad, ("r1",), HOSTILE),))
    newer = with_torch(replace(of, graphs=(graph(0, sin=2),)), HOSTILE)
    new = replace(
        report(newer, breaks=((1, bad), (2, PRINT)), fallbacks=1, mutations=[mutation(newer)]),
        findings=(finding(newer, "DR02", "warning", bad, ("r1", "r2"), HOSTILE), finding(newer, "DG01", "note", None, (), HOSTILE)),
        guards=guarded(newer, ID_MATCH=2).guards,
    )
    return compare(old, new, old_path=HOSTILE, new_path="runs/2")


def test_json_follows_its_schema():
    schema = json.loads((ROOT / "docs/diff.schema.json").read_text())
    for result in (rich(), compared(report(), report())):
        document = json.loads(show.as_json(result))
        jsonschema.Draft202012Validator(schema).validate(document)
        assert document["exit_status"] == result.exit_status


def test_texts_from_a_log_stay_texts_in_every_format():
    result = rich()
    told = show.document_of(result)
    text, markdown, page = text_of(told), document(told), result_page.render(show.document_of(result, beside=True))
    for written in (text, markdown, page):
        assert "\x1b" not in written and "\u202e" not in written and "7 * 7" in written.replace("\\", "")
    assert "<b>" not in page and page.count("</script>") == page.count("<script>")
    assert all(len(line) < 1300 for line in text.splitlines())
    for name, _ in show._KINDS.values():
        assert name in text and name in markdown and name in page


def test_a_page_has_both_sides_of_each_change():
    page = result_page.render(show.document_of(compared(report(), report(breaks=((1, CALL),))), beside=True))
    assert "train.py:12 in step" in page and "train.py:14 in step" in page
    assert "<code>return helper(y)</code>" in page and "Content-Security-Policy" in page
    assert [re.findall(f'data-label="{side}">([^<]*)', page) for side in ("old", "new")] == [
        ["", "train.py:12 in step: "],
        ["train.py:14 in step: ", ""],
    ]


def test_quiet_text_is_the_verdict_and_the_doubts():
    lines = text_of(show.document_of(rich()), headlines_only=True).splitlines()
    assert lines[0].startswith("Worse: ") and lines[1].startswith("note: ")
