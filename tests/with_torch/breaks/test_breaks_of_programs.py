"""Sites, events, own lines, chains and fallbacks of real programs, against what reading the programs says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dynadiag.passes.find_fallbacks import find_fallbacks
from dynadiag.passes.find_graph_breaks import find_graph_breaks
from dynadiag.report import build
from dynadiag.trace import load

PROGRAMS = Path(__file__).with_name("broken_programs.py")
MARKS = {
    match[1]: number for number, line in enumerate(PROGRAMS.read_text().splitlines(), 1) if (match := re.search(r"# breaks: (\w+)", line))
}

# program: (events, whether a frame was left to run eager, category)
TRUTH = {
    "method": (2, False, "side effect"),
    "in_finally": (1, True, "side effect"),
    "in_autocast": (1, False, "side effect"),
    "nested": (4, False, "side effect"),
    "calls_disabled": (1, False, "disabled function"),
    "custom_function": (2, False, "side effect"),
    "dynamic_shape": (1, False, "dynamic shape operator"),
    "two_on_a_line": (2, False, "side effect"),
    "recursion": (3, False, "side effect"),
    "loop": (1, True, "user-inserted"),
    "scalar_in_lambda": (3, False, "scalar read"),
    "on_default_device": (1, False, "scalar read"),
    "backward": (1, False, "autograd or optimizer call"),
    "whole": (1, False, "side effect"),
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trace")
    environment = {**os.environ, "TORCH_TRACE": str(folder), "TORCH_LOGS": "recompiles", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, str(PROGRAMS)], env=environment, capture_output=True, text=True, timeout=1500, check=True)
    return load(folder), {
        "graphs": int(re.search(r"graphs (\d+)", done.stdout)[1]),
        "recompiles": done.stderr.count("Recompiling function"),
    }


@pytest.fixture(scope="module")
def sites(recorded):
    return find_graph_breaks(recorded[0]).graph_breaks


def _at(sites, program):
    found = [site for site in sites if site.own_frame is not None and site.own_frame.line == MARKS[program]]
    assert found, f"no break on the line of {program}"
    return found


@pytest.mark.parametrize("program", sorted(TRUTH))
def test_site_events_and_category(sites, program):
    events, skipped, category = TRUTH[program]
    (site,) = _at(sites, program)
    assert (site.events, bool(site.skipped_frames), site.category) == (events, skipped, category)
    assert site.own_frame.file == str(PROGRAMS)
    assert f"# breaks: {program}" in site.own_frame.code


def test_breaks_inside_the_optimizer_belong_to_the_users_line(sites):
    inside = _at(sites, "optimizer_step")
    assert {site.category for site in inside} == {"autograd or optimizer call"}
    assert all(site.own_frame.function == "train_step" for site in inside)
    assert any("torch/optim/" in site.torch_frame.file for site in inside)
    assert _at(sites, "zero_grad")


def test_a_default_device_is_no_library_that_tracing_stopped_in(recorded, sites):
    (site,) = _at(sites, "on_default_device")
    assert (site.torch_frame, site.stack[-1]) == (site.own_frame, site.own_frame)
    found = build(recorded[0]).findings
    (why,) = (one.why for one in found if one.where == site.own_frame and one.severity == "warning")
    assert "stops inside the call" not in why


def test_code_that_was_executed_from_text_keeps_its_line(sites):
    (site,) = [site for site in sites if site.torch_frame.file == "<string>"]
    assert (site.own_frame.file, site.own_frame.line, site.own_frame.code) == ("<string>", 3, None)


def test_the_break_under_fullgraph_comes_from_the_exception(sites):
    (site,) = _at(sites, "whole")
    assert site.fullgraph
    assert [other.id for other in sites if other.fullgraph] == [site.id]


def test_both_reasons_of_one_line_are_kept(sites):
    (site,) = _at(sites, "two_on_a_line")
    assert len(site.other_reasons) == 1
    assert "item()" in site.other_reasons[0]


def test_chains_lead_to_the_resume_functions_of_their_program(recorded, sites):
    run = recorded[0]
    for program in ("method", "in_autocast", "nested", "calls_disabled", "dynamic_shape", "recursion"):
        (site,) = _at(sites, program)
        assert site.resume_frames
        for frame in map(run.frame, site.resume_frames):
            assert frame.name.startswith("torch_dynamo_resume_in_")
            assert min(run.frame(one).record for one in site.frames) < frame.record
        assert site.graphs_after or program == "recursion"
    (site,) = _at(sites, "method")
    assert {run.frame(one).name.split("_at_")[0].removeprefix("torch_dynamo_resume_in_") for one in site.resume_frames} == {
        "forward",
        "helper",
    }
    (site,) = _at(sites, "loop")
    assert (site.resume_frames, site.graphs_before) == ((), ())
    assert site.skip_reason.startswith("graph break in loop")


def test_every_break_has_advice_or_a_reason_why_not(sites):
    assert all(bool(site.advice) != bool(site.unadvised) for site in sites)
    assert sum(bool(site.advice) for site in sites) >= 3


def test_graphs_that_run_are_counted_as_torch_counts_them(recorded):
    run, said = recorded
    assert build(run).summary.graphs == said["graphs"]


def test_recompiles_are_counted_as_torch_counts_them(recorded):
    """With the one that was refused at the limit."""
    run, said = recorded
    report = build(run)
    assert report.summary.recompiles == said["recompiles"] == len(report.recompiles)
    (limit,) = [finding for finding in report.findings if finding.code == "DR01"]
    assert "torch refused 1 of these recompiles" in limit.why


def test_fallbacks_and_failures(recorded):
    result = find_fallbacks(recorded[0])
    by_function = {entry.own_frame.function: entry for entry in result.fallbacks}
    kinds = {name: entry.kind for name, entry in by_function.items()}
    assert kinds == {
        "in_finally": "skipped_frame",
        "loop": "skipped_frame",
        "calls_disabled": "disabled",
        "changes": "recompile_limit",
        "refused": "suppressed_error",
    }
    assert all(bool(entry.breaks) == (entry.kind in ("skipped_frame", "disabled")) for entry in result.fallbacks)
    assert by_function["calls_disabled"].reason.startswith("slow is disabled")
    assert "refused by the test" in by_function["refused"].reason
    failed = [finding for finding in result.findings if finding.code == "DF10"]
    assert [finding.where.function for finding in failed] == ["refused_loudly"]


def test_a_whole_train_step_is_one_finding_over_its_sites(recorded, sites):
    parts = {"zero_grad", "backward", "optimizer_step"}
    (finding,) = [finding for finding in build(recorded[0]).findings if finding.code == "DB02"]
    assert {site.id for part in parts for site in _at(sites, part)} <= set(finding.evidence)
    assert finding.where.line == MARKS["backward"]
    assert finding.fix == (), "the step calls no module that could be compiled instead"


def test_each_thing_is_one_finding(recorded):
    findings = build(recorded[0]).findings
    places = [(finding.where.file, finding.where.line) for finding in findings if finding.code.startswith(("GB", "DB", "DF"))]
    assert len(places) == len(set(places))
    assert findings[0].severity == "error"
    ranks = [finding.rank for finding in findings]
    assert ranks == sorted(ranks)
