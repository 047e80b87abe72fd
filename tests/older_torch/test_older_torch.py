"""Recording and explaining on torch 2.6 to 2.10, in the Pythons that `DYNADIAG_OLDER_PYTHONS` names (`.ci/run` sets it)."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).with_name("programs.py")
PYTHONS = [path for path in os.environ.get("DYNADIAG_OLDER_PYTHONS", "").split(os.pathsep) if path]
pytestmark = pytest.mark.skipif(not PYTHONS, reason="DYNADIAG_OLDER_PYTHONS names no Python with torch 2.6 to 2.10")

# program: (break events on its marked line, recompiles, kinds of fallbacks, category of the break)
TRUTH = {
    "healthy": (0, 0, [], None),
    "prints": (1, 0, [], "side effect"),
    "branches": (1, 0, [], "data-dependent control flow"),
    "reads_a_scalar": (1, 0, [], "scalar read"),
    "breaks_in_a_loop": (1, 0, ["skipped_frame"], "user-inserted"),
    "calls_twice": (3, 0, [], "user-inserted"),  # two call sites, and the callee's own frame
    "calls_disabled": (1, 0, ["disabled"], "disabled function"),
    "sizes_change": (0, 1, [], None),
    "attribute_changes": (0, 2, [], None),
    "mask_appears": (0, 1, [], None),
    "reaches_the_limit": (0, 8, ["recompile_limit"], None),
    "keeps_a_cache": (0, 0, [], None),
    "writes_an_input": (0, 0, [], None),
    "backend_fails": (0, 0, ["suppressed_error"], None),
}


def _spans():
    """The lines of each program, with those of the functions and classes of the module that it names."""
    tree = ast.parse(PROGRAMS.read_text())
    own = {node.name: range(node.lineno, node.end_lineno + 1) for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    shared = {"compiled", "backend"}
    named = {
        node.name: {name.id for name in ast.walk(node) if isinstance(name, ast.Name) and name.id in own} - shared
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
    }
    return {name: {line for part in (name, *named[name]) for line in own[part]} for name in TRUTH}


@pytest.fixture(scope="module", params=PYTHONS)
def recorded(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("older")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    options = {"capture_output": True, "text": True, "timeout": 1500, "env": environment, "cwd": folder}
    plain = subprocess.run([request.param, str(PROGRAMS)], check=True, **options)
    command = [sys.executable, "-m", "dynadiag", "explain", "--out", str(folder / "run"), "--python", request.param, str(PROGRAMS)]
    done = subprocess.run(command, **options)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "run" / "report.json").read_text()), plain, done


def test_the_script_runs_as_it_does_alone(recorded):
    _, plain, done = recorded
    assert done.stdout == plain.stdout


def test_the_recording_is_whole(recorded):
    report, _, _ = recorded
    hooks = report["run"]["processes"][0]["hooks"]
    assert report["run"]["complete"] is True and set(hooks.values()) == {"ok"} and not [note for note in report["notes"] if "prob" in note]


def test_torch_counted_as_many_graphs_and_recompiles(recorded):
    report, plain, _ = recorded
    counted = json.loads(plain.stdout.splitlines()[-1])
    # Two programs go through AOTAutograd and one fails, so that torch's count is of the others.
    assert report["summary"]["graphs"] == sum(one["graphs"] for one in counted.values()) + 2
    assert report["summary"]["recompiles"] == sum(one["recompiles"] for one in counted.values())


@pytest.mark.parametrize("program", TRUTH)
def test_each_program_is_told_as_it_is(recorded, program):
    report, _, _ = recorded
    lines = _spans()[program]
    marked = {number for number, text in enumerate(PROGRAMS.read_text().splitlines(), 1) if re.search(rf"# breaks: {program}$", text)}
    events, recompiles, fallbacks, category = TRUTH[program]
    breaks = [one for one in report["graph_breaks"] if one["own_frame"]["line"] in lines | marked]
    assert sum(one["events"] for one in breaks) == events
    assert {one["own_frame"]["line"] for one in breaks} == marked
    assert {one["category"] for one in breaks} == ({category} if category else set())
    frames = {frame["id"]: frame["line"] for frame in report["frames"]}
    assert sum(frames[one["frame"]] in lines for one in report["recompiles"]) == recompiles
    assert [one["kind"] for one in report["fallbacks"] if one["own_frame"]["line"] in lines | marked] == fallbacks
    assert all(bool(one["advice"]) is not bool(one["unadvised"]) for one in breaks)


@pytest.mark.parametrize("program", ["keeps_a_cache", "writes_an_input"])
def test_the_written_line_is_found(recorded, program):
    report, _, _ = recorded
    marked = next(number for number, text in enumerate(PROGRAMS.read_text().splitlines(), 1) if text.endswith(f"# writes: {program}"))
    found = [one for one in report["mutations"] if any(site["line"] == marked for site in one["sites"])]
    assert len(found) == 1 and found[0]["bytes_touched"] is not None
