"""The source ladder: what became of each line of a function, and what is shown of it."""

import io
import json
import textwrap
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from dynadiag.model import report as r
from dynadiag.model import run as m
from dynadiag.model.clauses import Happened
from dynadiag.model.graph import Graph
from dynadiag.model.location import Location, PayloadRef
from dynadiag.render.html.report_page import render
from dynadiag.render.ladder import Fold, bars_legend, folded
from dynadiag.render.ladder_builder import ladder
from dynadiag.render.ladder_svg import ladder_svg
from dynadiag.render.ladder_text import print_ladder
from dynadiag.render.page import Page

FILE = "/home/me/proj/net.py"
SOURCE = textwrap.dedent(
    '''
    def forward(self, x):
        """Words."""
        h = self.body(x)
        h = h.relu()
        # a comment
        if h.sum() > 0:
            h = h + 1
        print("h", h.item())
        for one in h:
            self.log(one)
        return h
    '''
).strip()
FIRST = 10
LINES = {text.strip(): FIRST + at for at, text in enumerate(SOURCE.split("\n"))}
BRANCH, PRINT = LINES["if h.sum() > 0:"], LINES['print("h", h.item())']


@pytest.fixture
def made(tmp_path):
    """A report on frames of `forward`: each (name, outcome, lines in its graph), with the sites given; with `ranks` a frame on each."""

    def make(frames, sites, *, functions=True, ranks=(), **parts):
        log = tmp_path / "log"
        log.write_text("")
        graphs, recorded = [], []
        for number, (name, outcome, lines) in enumerate(frames):
            frame = m.Frame(
                id=f"f{number}",
                key=m.CompileKey(number if ranks else 0, 0, number, 0),
                attempts=1,
                name=name,
                file=FILE,
                line=FIRST,
                outcome=outcome,
            )
            recorded.append(frame)
            stacks = [f'  File "{FILE}", line {line}, in {name}\n    code\n' for line in lines]
            text = json.dumps({"strings": stacks, "nodes": [[f"n{at}", None, at] for at in range(len(stacks))]})
            begin = log.stat().st_size
            with log.open("a") as out:
                out.write(f"\t{text}\n")
            details = PayloadRef(str(log), begin, len(text) + 2)
            if lines:
                graphs.append(
                    Graph(
                        id=f"g{number}", frame=f"f{number}", kind="dynamo", attempt=0, nodes=9, ops={"add": 3}, text=None, details=details
                    )
                )
        run = m.Run(
            info=m.RunInfo(cwd="/home/me/proj"),
            processes=tuple(m.Process(index=at, log="log", rank=rank) for at, rank in enumerate(ranks or (None,))),
            frames=tuple(recorded),
            graphs=tuple(graphs),
            functions=(m.SourceFunction(FILE, FIRST, "Net.forward", SOURCE),) if functions else (),
        )
        counts = {"frames": 1, "frames_compiled": 1, "frames_skipped": 0, "graphs": 1, "graph_break_sites": 1, "graph_break_events": 1}
        summary = r.Summary(**counts, recompiles=0, fallbacks=0, mutations=0, compile_s=None)
        empty = dict.fromkeys(("recompiles", "transitions", "fallbacks", "mutations", "guards", "ranks", "findings", "notes"), ())
        return r.Report(run=run, summary=summary, graph_breaks=tuple(sites), compile_time=None, **{**empty, **parts})

    return make


def site(line, frames, *, skipped=(), resumed=(), **more):
    place = Location(FILE, line, "forward", "code")
    return r.GraphBreak(
        id=f"b{line}", fingerprint="f", gb_id="GB0170", category="c", reason="Data-dependent branching", explanation=None, hints=(),
        own_frame=place, torch_frame=place, stack=(place,), events=1, frames=frames, skipped_frames=skipped, resume_frames=resumed, **more,
    )  # fmt: skip


def states(report):
    (function,) = ladder(report).functions
    return {SOURCE.split("\n")[rung.line - FIRST].strip(): rung.state for rung in function.rungs if rung.state != "plain"}


RESUME = f"torch_dynamo_resume_in_forward_at_{BRANCH}"


def test_a_function_that_goes_on_after_its_break(made):
    frames = [("forward", "broke", (FIRST + 2, FIRST + 3)), (RESUME, "compiled", (FIRST + 6, FIRST + 10))]
    report = made(frames, [site(BRANCH, ("f0",), resumed=("f1",))])
    assert states(report) == {
        "h = self.body(x)": "graph",
        "h = h.relu()": "graph",
        "if h.sum() > 0:": "break",
        "h = h + 1": "graph",
        "return h": "graph",
    }
    (function,) = ladder(report).functions
    assert (function.name, function.said) == ("Net.forward", "2 graphs · 1 graph break")
    assert next(rung.notes for rung in function.rungs if rung.state == "graph") == ("g0, 3 operators",)


def test_a_graph_that_the_back_end_refused_is_not_drawn_as_compiled(made):
    report = made([("forward", "skipped", (FIRST + 2, FIRST + 10))], [site(BRANCH, ("f0",), skipped=("f0",))])
    (function,) = ladder(report).functions
    assert "graph" not in states(report).values() and function.said == "1 graph break · runs in Python"


def test_a_skipped_function_ran_in_python_and_is_not_analysed_behind_its_break(made):
    report = made([("forward", "skipped", ())], [site(BRANCH, ("f0",), skipped=("f0",))])
    assert states(report) == {
        "h = self.body(x)": "eager",
        "h = h.relu()": "eager",
        "if h.sum() > 0:": "break",
        "h = h + 1": "unseen",
        'print("h", h.item())': "unseen",
        "for one in h:": "unseen",
        "self.log(one)": "unseen",
        "return h": "unseen",
    }
    (function,) = ladder(report).functions
    assert function.said == "1 graph break · runs in Python"
    assert [rung.notes for rung in function.rungs if rung.line == PRINT] == [("may break too: print(), .item()",)]


def test_nothing_is_called_not_analysed_before_a_line_that_was_reached(made):
    sites = [site(BRANCH, ("f0",), skipped=("f0",)), site(PRINT, ("f0",), skipped=("f0",))]
    found = states(made([("forward", "skipped", ())], sites))
    assert (found["h = h + 1"], found["for one in h:"]) == ("eager", "unseen")


def test_a_version_that_compiled_keeps_its_function_from_being_called_python(made):
    found = states(made([("forward", "compiled", (FIRST + 2,)), ("forward", "skipped", ())], []))
    assert found == {"h = self.body(x)": "graph"}


def test_an_error_of_fullgraph_leaves_the_lines_behind_unseen(made):
    found = states(made([("forward", "failed", ())], [site(BRANCH, ("f0",), fullgraph=True)]))
    assert found["h = h + 1"] == "unseen" and "h = h.relu()" not in found


def test_a_rest_that_was_skipped_ran_in_python(made):
    frames = [("forward", "broke", (FIRST + 2,)), (RESUME, "skipped", ())]
    found = states(made(frames, [site(BRANCH, ("f0",), resumed=("f1",)), site(PRINT, ("f1",), skipped=("f1",))]))
    assert (found["h = h + 1"], found["return h"]) == ("eager", "unseen")
    assert "h = h.relu()" not in found


def test_without_the_source_the_lines_that_the_log_names_are_shown(made):
    found = ladder(made([("forward", "broke", (FIRST + 2,))], [site(BRANCH, ("f0",))], functions=False))
    rungs = [(rung.line, rung.code, rung.state) for rung in found.functions[0].rungs]
    assert rungs == [(FIRST + 2, "code", "graph"), (BRANCH, "code", "break")]
    assert found.notes == ("the source was not recorded: only lines that the log names are shown",)


def test_a_source_that_is_no_python_still_makes_a_ladder(made):
    report = made([("forward", "skipped", ())], [site(BRANCH, ("f0",), skipped=("f0",))])
    broken = m.SourceFunction(FILE, FIRST, "forward", "def forward(\0 " + "(" * 400 + "\n" * 20)
    (function,) = ladder(replace(report, run=replace(report.run, functions=(broken,)))).functions
    assert [rung.line for rung in function.rungs if rung.state == "break"] == [BRANCH]


def test_recompiles_and_writes_stand_at_their_lines(made):
    again = r.Recompile(id="r0", fingerprint="f", frame="f1", reasons=(), changed=())
    write = r.Mutation(
        id="m0", fingerprint="f", code="DM01", frame="f0", input="L['x']", kind="data", effects=(), bytes_touched=64, bytes_written_back=64,
        no_grad=None, static=None, aliases=(), sites=({"file": FILE, "line": FIRST + 3},),
    )  # fmt: skip
    frames = [("forward", "compiled", (FIRST + 2, FIRST + 3)), ("forward", "compiled", (FIRST + 2, FIRST + 3))]
    report = made(frames, [], recompiles=(again,), mutations=(write,))
    one_code = tuple(replace(frame, key=m.CompileKey(0, 0, 0, number)) for number, frame in enumerate(report.run.frames))
    (function,) = ladder(replace(report, run=replace(report.run, frames=one_code))).functions
    assert {rung.line: rung.notes for rung in function.rungs if rung.notes} == {
        FIRST + 2: ("g0, 3 operators", "recompiled once"),
        FIRST + 3: ("64 B copied back",),
    }


def test_lines_alike_are_folded_and_lines_with_words_are_not(made):
    report = made([("forward", "skipped", ())], [site(BRANCH, ("f0",), skipped=("f0",))])
    (function,) = ladder(report).functions
    assert [(one.first, one.last, one.state) if isinstance(one, Fold) else one.line for one in folded(function.rungs)] == [
        FIRST + 2, FIRST + 3, BRANCH, FIRST + 6, PRINT, (FIRST + 8, FIRST + 10, "unseen"),
    ]  # fmt: skip


def test_what_a_line_calls_that_was_not_analysed_is_read_only_where_dynamo_never_entered_the_function(made):
    report = made([("forward", "skipped", ())], [site(BRANCH, ("f0",), skipped=("f0",))])
    text = "def log(self, one):\n    # one.item()\n    y = one  # one.item()\n    print(y)\n    return y.item()"
    run = replace(report.run, functions=(*report.run.functions, m.SourceFunction(FILE, 80, "Net.log", text)))

    def notes(run):
        (rungs,) = [one.rungs for one in ladder(replace(report, run=run)).functions if one.name == "Net.forward"]
        return [one.notes for one in rungs if one.line == LINES["self.log(one)"]]

    assert notes(run) == [("log() may break: print() at 83, .item() at 84",)]
    entered = replace(run.frames[0], id="f9", name="log", line=80, outcome="compiled")
    assert notes(replace(run, frames=(*run.frames, entered))) == [()]


def test_a_function_without_room_is_folded_closer_before_it_is_left_out(made):
    report = made([("forward", "skipped", ())], [site(BRANCH, ("f0",), skipped=("f0",))])
    stream = io.StringIO()
    print_ladder(ladder(report), Page(Console(file=stream, width=80)), base=Path("/home/me/proj"), rows=5)
    marks = [row.split()[0] for row in stream.getvalue().splitlines()[1:]]
    assert marks == [f"{FIRST + 2}-{FIRST + 3}", str(BRANCH), str(FIRST + 6), str(PRINT), f"{FIRST + 8}-{FIRST + 10}"]


@pytest.mark.parametrize(("width", "encoding"), [(30, "utf-8"), (80, "utf-8"), (80, "ascii"), (200, "utf-8")])
def test_no_row_is_wider_than_the_terminal(made, width, encoding):
    report = made([("forward", "skipped", ())], [site(BRANCH, ("f0",), skipped=("f0",))])
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, newline="\n")
    print_ladder(ladder(report), Page(Console(file=stream, width=width, force_terminal=False)), base=Path("/home/me/proj"))
    stream.flush()
    rows = raw.getvalue().decode(encoding).split("\n")
    assert max(map(len, rows)) <= width
    assert any(f"{BRANCH}" in row and ("◆" if encoding == "utf-8" else "*") in row for row in rows)


def test_the_picture_is_well_formed_and_the_same_each_time(made):
    report = made([("forward", "skipped", ())], [site(BRANCH, ("f0",), skipped=("f0",))])
    once, again = (ladder_svg(ladder(report), "net.py", base=None) for _ in range(2))
    assert once is not None and once == again
    root = ElementTree.fromstring(once)
    assert root.get("width") == "860" and "GB0170" in "".join(root.itertext())
    assert ladder_svg(ladder(replace(report, run=m.Run(info=m.RunInfo()), graph_breaks=())), "x", base=None) is None


ALL = [LINES["h = self.body(x)"], LINES["h = h.relu()"], BRANCH, LINES["h = h + 1"]]


def rank_report(made, ends, **parts):
    """A rank each: how many lines of `forward` its graph has, the last ones if negative; one with fewer than all breaks at the branch."""
    broke = [number for number, end in enumerate(ends) if 0 <= end < len(ALL)]
    frames = [
        ("forward", "broke" if number in broke else "compiled", ALL[:end] if end >= 0 else ALL[end:]) for number, end in enumerate(ends)
    ]
    sites = [site(BRANCH, tuple(f"f{number}" for number in broke), processes=tuple(broke))] if broke else []
    return made(frames, sites, ranks=tuple(range(len(ends))), **parts)


def test_a_rank_that_breaks_where_others_go_on_has_a_thin_bar_of_its_own(made):
    found = ladder(rank_report(made, [4, 2, 4]))
    rungs = {one.line: one for one in found.functions[0].rungs}
    assert found.bars == ("ranks 0, 2", "rank 1")
    assert (rungs[BRANCH].state, rungs[BRANCH].bars, rungs[BRANCH].broke) == ("graph", ("break",), True)
    assert (rungs[BRANCH + 1].state, rungs[BRANCH + 1].bars) == ("graph", ("plain",))
    assert (rungs[ALL[0]].state, rungs[ALL[0]].bars) == ("graph", ("graph",))
    assert bars_legend(found) == "wide bar: ranks 0, 2; thin bar: rank 1"


@pytest.mark.parametrize("ends", [[4, 4, 4], [4], [2, 2]])
def test_ranks_alike_and_a_single_one_have_no_bars(made, ends):
    found = ladder(rank_report(made, ends))
    assert found.bars == ()
    assert all(one.bars == () for one in found.functions[0].rungs)
    assert bars_legend(found) is None


def test_what_differs_between_ranks_at_a_line_is_said_once(made):
    place = Location(FILE, BRANCH, "forward")
    differences = tuple(r.RankDifference(id=f"d{at}", what="w", values={}, odd_ranks=(1,), location=place) for at in (2, 3))
    found = ladder(replace(rank_report(made, [4, 4]), ranks=differences))
    assert [one.notes for one in found.functions[0].rungs if one.line == BRANCH] == [("differs between ranks (d2, d3)",)]


def test_more_than_three_different_ranks_are_counted(made):
    found = ladder(rank_report(made, [4, 4, 0, 1, 2, -1]))
    assert found.bars == ("ranks 0, 1", "rank 2", "rank 3", "rank 4")
    assert found.notes[0] == "1 more rank differs, without a bar"


def test_bars_of_ranks_are_in_the_terminal_and_the_picture_with_a_legend(made):
    found = ladder(rank_report(made, [4, 2, 4]))
    stream = io.StringIO()
    print_ladder(found, Page(Console(file=stream, width=100, force_terminal=False)), base=None)
    text = stream.getvalue()
    row = next(line for line in text.split("\n") if "if h.sum() > 0:" in line)
    assert row.split()[1] in ("◇┃", "*|")
    assert "wide bar: ranks 0, 2; thin bar: rank 1" in text
    root = ElementTree.fromstring(ladder_svg(found, "title", base=None))
    thin = [one for one in root.iter("{http://www.w3.org/2000/svg}rect") if one.get("width") == "3"]
    assert [one.get("class") for one in thin] == ["graph", "graph", "break"]
    assert any("thin bar: rank 1" in str(one.text) for one in root.iter("{http://www.w3.org/2000/svg}text"))


def test_bars_of_ranks_are_in_the_page(made):
    page = "".join(render(rank_report(made, [4, 2, 4])))
    assert "wide bar: ranks 0, 2; thin bar: rank 1." in page
    assert '<i class="break" title="rank 1: graph break"></i>' in page
    assert '<td class="thin">' not in "".join(render(rank_report(made, [4, 4])))


def test_a_graph_that_did_not_compile_is_not_shown_as_compiled(made):
    place = Location(FILE, FIRST + 2, "forward", "h = self.body(x)")
    error = r.Finding(
        id="n0",
        fingerprint="p",
        code="DF10",
        severity="error",
        title="t",
        where=place,
        clauses=(Happened("w"),),
        fix=(),
        cost=None,
        evidence=(),
        rank=(0.0,),
    )
    report = made([("forward", "failed", (FIRST + 2, FIRST + 3))], [], findings=(error,))
    assert states(report) == {}
    (function,) = ladder(report).functions
    assert [(rung.line, rung.notes) for rung in function.rungs if rung.notes] == [(FIRST + 2, ("DF10 compilation failed",))]
    assert function.said == ""
