"""The report in brief fits a screen whatever there is to say, and counts what it leaves out."""

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from dynadiag.model.clauses import Happened, StoppedAt
from dynadiag.model.location import Location
from dynadiag.model.report import Advice
from dynadiag.render.page import Page
from tests.gold import sample_report as samples

SENTENCES = st.integers(0, 60).map(lambda count: "Some words of a clause; " * count)
CODE = st.integers(0, 30).map(lambda count: "\n".join(f"line({at})" for at in range(count)) or None)


@st.composite
def advice(draw):
    return Advice(
        slug="a", text=draw(SENTENCES), before=draw(CODE), after=draw(CODE), imports=("import torch",) * draw(st.integers(0, 3)),
        follows=draw(st.booleans()),
    )  # fmt: skip


@st.composite
def reports(draw):
    """The sample with any number of findings, lines with breaks in several functions, graphs, notes and reasons."""
    report = samples.sample_report()
    findings = tuple(
        replace(
            draw(st.sampled_from(report.findings)),
            id=f"n{at}",
            fingerprint=f"fp{at}",
            code=f"DX{at:02}",
            title=draw(st.sampled_from(["short", "many words " * 40])),
            clauses=(Happened("Some words of a clause"),) * draw(st.integers(0, 60)),
            fix=tuple(draw(st.lists(advice(), max_size=5))),
        )
        for at in range(draw(st.integers(0, 12)))
    )
    sites = tuple(
        samples.break_site(f"b{at}", "GB0059", place, place, 3, (f"f{at % 5}",))
        for at in range(draw(st.integers(0, 60)))
        for place in [samples.loc(10 + at, f"x = y({at})", function=f"f{at % draw(st.integers(1, 4))}")]
    )
    graphs = tuple(samples.graph(at, f"f{at % 5}", "dynamo", 7) for at in range(draw(st.integers(0, 40))))
    notes = tuple(draw(st.lists(SENTENCES, max_size=8)))
    skipped = tuple(replace(report.fallbacks[0], id=f"x{at}", reason=f"reason {at} " * 20) for at in range(draw(st.integers(1, 20))))
    empty = draw(st.booleans())
    report = samples.empty_report() if empty else report
    return replace(
        report,
        run=replace(report.run, graphs=() if empty else graphs),
        findings=findings,
        graph_breaks=() if empty else sites,
        notes=notes,
        fallbacks=skipped,
    )


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(report=reports(), width=st.integers(80, 160))
def test_the_summary_fits_a_screen_and_no_finding_is_lost_unsaid(show, report, width):
    text = show(report, summary=True, width=width)
    assert len(text.rstrip("\n").split("\n")) <= 45
    shown = len(re.findall(r"^(?:error|warning|note) DX\d\d", text, re.MULTILINE))
    more = re.findall(r"(\d+) more (?:errors?|warnings?|findings? \(note\))[,. ]", " ".join(text.split()))
    assert shown + sum(map(int, more)) >= len(report.findings)


def test_a_finding_without_room_for_its_reason_still_shows_its_change(show):
    report = samples.sample_report()
    change = Advice(slug="a", text="Do it.", after="\n".join(f"line({at})" for at in range(6)))
    several = [
        replace(report.findings[0], id=f"n{at}", code=f"DX{at}", clauses=(Happened("many words"),) * 30, fix=(change,)) for at in range(3)
    ]
    several[0] = replace(several[0], fix=(replace(change, after="\n".join(f"line({at})" for at in range(7))),))
    text = show(replace(report, findings=tuple(several)), summary=True, width=80)
    assert len(text.rstrip("\n").split("\n")) <= 45
    first, second = (one.split("\n\n")[0] for one in re.split("error DX[01]", text)[1:])
    assert "why  " in first and "Do it." in first
    assert "why  " not in second and "Do it." in second and "line(5)" in second
    assert "the rest of DX1" in " ".join(text.split())


def test_a_line_of_a_library_that_the_reason_names_is_not_shown_again(show):
    report = samples.sample_report()
    told = replace(report.findings[1], clauses=(StoppedAt((Location("_tensor.py", 634),)),))
    shown, hidden = (show(replace(report, findings=(one,)), summary=True) for one in (report.findings[1], told))
    assert "torch.autograd.backward(" in shown and "torch.autograd.backward(" not in hidden
    assert "torch.autograd.backward(" in show(replace(report, findings=(told,)))


def test_how_the_program_ended_is_not_folded_for_a_long_command(show):
    report = samples.sample_report()
    run = replace(report.run, info=replace(report.run.info, command=("python", f"{'long' * 18}.py")))
    assert f"{'long' * 18}.py\n  exit 0 | torch" in show(replace(report, run=run), summary=True)


@pytest.mark.parametrize(
    ("calls", "status", "can_bench", "command", "last"),
    [
        (3, 0, True, ("python", "train.py", "--lr", "1"), "next  dynadiag bench train.py -- --lr 1"),
        (3, 0, True, ("python", "train.py"), "next  dynadiag bench train.py"),
        (2, 0, True, ("python", "train.py"), None),
        (3, 1, True, ("python", "train.py"), None),
        (3, 0, False, ("python", "train.py"), None),
        (3, 0, True, ("python", "-m", "train"), None),
        (3, 0, True, ("torchrun", "train.py"), None),
    ],
)
def test_where_nothing_is_advised_the_next_step_is_to_measure(show, calls, status, can_bench, command, last):
    report = samples.sample_report()
    info = replace(report.run.info, command=command, exit_status=status)
    run = replace(report.run, info=info, processes=(replace(report.run.processes[0], calls=calls),))
    text = show(replace(report, findings=(replace(report.findings[2], fix=()),), run=run), summary=True, can_bench=can_bench)
    assert text.splitlines()[-1] == last if last else "next  " not in text


@pytest.mark.parametrize(
    ("code", "category", "last"),
    [
        ("if x.sum() > 0:", "data-dependent control flow", "next  dynadiag fix train.py"),
        ("while x.sum() > 0:", "data-dependent control flow", "next  dynadiag bench train.py"),
        ("y = x[x > 0]", "dynamic shape operator", "next  dynadiag fix train.py"),
    ],
)
def test_a_branch_or_a_read_without_advice_is_left_to_fix(show, code, category, last):
    report = samples.sample_report()
    info = replace(report.run.info, command=("python", "train.py"), exit_status=0)
    run = replace(report.run, info=info, processes=(replace(report.run.processes[0], calls=3),))
    place = replace(report.graph_breaks[0].stack[0], code=code)
    site = replace(report.graph_breaks[0], gb_id="GB0170", torch_frame=place, category=category)
    findings = (replace(report.findings[1], fix=()),)
    text = show(replace(report, findings=findings, graph_breaks=(site,), run=run), summary=True, can_bench=True)
    assert text.splitlines()[-1] == last


def test_the_run_before_is_there_to_compare_with(show):
    folder = Path("/home/me/proj/dynadiag-runs")
    text = show(samples.sample_report(), summary=True, before=folder / "0000-train", directory=folder / "0001-train")
    assert "against the run before: dynadiag diff dynadiag-runs/0000-train dynadiag-runs/0001-train\n" in text


@pytest.mark.parametrize("width", [20, 60, 80, 120, 200])
@pytest.mark.parametrize("summary", [True, False])
def test_what_is_to_be_copied_is_never_folded(show, width, summary):
    report = samples.sample_report()
    long = "torch._dynamo.config.reorderable_logging_functions.add(" + "a_long_name." * 12 + "log)"
    change = Advice(slug="a", text="Do it.", before=f"{long}  # was", after=f"{long}\n    {long}", imports=("import torch._dynamo.config",))
    report = replace(report, findings=(replace(report.findings[1], fix=(change,)),))
    folder = Path("/home/me/proj/dynadiag-runs")
    more = {"lines": None, "before": folder / "0000-train", "directory": folder / "0001-train"} if summary else {}
    lines = [line.strip() for line in show(report, summary=summary, width=width, **more).splitlines()]
    assert {f"+ {long}", f"+     {long}", f"- {long}  # was", "needs   + import torch._dynamo.config"} <= set(lines)
    if summary:
        assert "against the run before: dynadiag diff dynadiag-runs/0000-train dynadiag-runs/0001-train" in lines
        assert "all of it: dynadiag explain --full dynadiag-runs/0001-train" in lines
        assert any(line.startswith("more on a code: dynadiag rule ") for line in lines)
        assert "next  change a line, then dynadiag explain train.py --steps 3" in lines


@pytest.mark.parametrize("width", range(24, 60))
def test_what_follows_a_long_part_goes_on_in_its_last_line(width):
    out = io.StringIO()
    parts = ["exit 1 (" + "many words " * 9 + "end)", "torch 2.15", "cpu"]
    Page(Console(file=out, width=width)).parts(parts, " | ", prefix="a.py  ", hang="  ")
    lines = out.getvalue().splitlines()
    assert all(len(line) <= width for line in lines) and lines[0].startswith("a.py  exit 1 (many")
    assert " ".join(" ".join(lines).split()) == "a.py " + " | ".join(parts)
    assert not any(line.strip() in ("|", "end) |") for line in lines)


@pytest.mark.parametrize("width", range(20, 60))
def test_no_part_is_folded_where_it_has_a_line_of_its_own(width):
    out = io.StringIO()
    Page(Console(file=out, width=width)).parts(["1 recompile", "2 mutations", "3 graph breaks"], ", ", prefix="a name  ", hang="  ")
    lines = out.getvalue().splitlines()
    assert all(len(line) <= width for line in lines)
    assert {part.strip() for line in lines for part in line.removeprefix("a name").split(",")} - {""} == {
        "1 recompile", "2 mutations", "3 graph breaks"
    }  # fmt: skip
