"""The report: passes merged, findings ranked, ids unique, counts of the headline, and a pass that fails costs only itself."""

import io

from rich.console import Console

from dynadiag import report
from dynadiag.model import CompileKey, CompileMetrics, Fallback, Finding, Frame, Graph, PassResult, Run, RunInfo
from dynadiag.render import markdown
from dynadiag.render.terminal import print_report, print_summary


def _frame(number, outcome="compiled", seconds=None, attempts=1):
    metrics = None if seconds is None else CompileMetrics(total_s=seconds)
    key = CompileKey(0, 0, number, 0)
    return Frame(id=f"f{number}", key=key, attempts=attempts, name="f", file="a.py", line=1, outcome=outcome, metrics=metrics)


def _finding(code, rank, **fields):
    fields = {"severity": "warning", "title": code, "where": None, "clauses": (), "fix": (), "cost": None, "evidence": ()} | fields
    return Finding(id="", fingerprint=code, code=code, rank=rank, **fields)


def _graph(number, frame, attempt=0, kind="dynamo"):
    return Graph(id=f"g{number}", frame=frame, kind=kind, attempt=attempt, nodes=1, ops={}, text=None)


EMPTY = Run(info=RunInfo())


def test_findings_are_sorted_by_rank_and_numbered():
    def one(run):
        return PassResult(findings=(_finding("B", (5.0, -1.0)), _finding("A", (3.0,))))

    def two(run):
        return PassResult(findings=(_finding("C", (5.0, -9.0)),))

    built = report.build(EMPTY, (one, two))
    assert [(finding.id, finding.code) for finding in built.findings] == [("n1", "A"), ("n2", "C"), ("n3", "B")]
    assert report.build(EMPTY, (two, one)).findings == built.findings


def test_a_pass_that_raises_becomes_a_note_and_the_others_go_on():
    def broken(run):
        raise ValueError("no such thing")

    def fine(run):
        return PassResult(findings=(_finding("A", (1.0,)),), notes=("said",))

    built = report.build(EMPTY, (broken, fine))
    assert [finding.code for finding in built.findings] == ["A"]
    assert "internal error in pass broken" in built.notes[0]
    assert "ValueError: no such thing" in built.notes[0]
    assert built.notes[1:] == ("said",)
    assert built.failed_passes == ("broken",)
    console = Console(file=io.StringIO(), width=200)
    print_summary(built, console)
    print_report(built, console)
    page = console.file.getvalue()
    assert page.count("INCOMPLETE: dynadiag failed in broken.") == 2
    assert page.index("INCOMPLETE") < page.index("NOTHING WAS COMPILED")
    assert "**INCOMPLETE: dynadiag failed in broken" in markdown.render(built)


def test_ids_that_two_passes_gave_twice_are_made_unique():
    def entry(run):
        return PassResult(fallbacks=(Fallback(id="x1", fingerprint="a", kind="stance", frame=None, reason="r", own_frame=None),))

    built = report.build(EMPTY, (entry, entry))
    assert [fallback.id for fallback in built.fallbacks] == ["x1", "x1.2"]


def test_the_summary_counts_graphs_that_run_and_nothing_else():
    frames = (_frame(0, "broke", 1.5), _frame(1, "compiled", 0.5, attempts=2), _frame(2, "skipped"), _frame(3, "failed"))
    graphs = (
        _graph(0, "f0"),
        _graph(1, "f1", 0),
        _graph(2, "f1", 1),
        _graph(3, "f2"),
        _graph(4, "f3"),
        _graph(5, "f0", kind="aot_forward"),
    )
    summary = report.build(Run(info=RunInfo(), frames=frames, graphs=graphs), ()).summary
    assert (summary.frames, summary.frames_compiled, summary.frames_skipped) == (4, 2, 1)
    assert summary.graphs == 2
    assert summary.compile_s == 2.0
    assert summary.mutations is None


def test_compile_time_that_was_not_recorded_is_none():
    assert report.build(Run(info=RunInfo(), frames=(_frame(0),)), ()).summary.compile_s is None


def test_all_passes_take_an_empty_run_and_none_fails():
    built = report.build(EMPTY)
    assert not [note for note in built.notes if "internal error" in note]
    assert built.summary.graph_break_events == 0
