"""Site and event counts against the truth of the corpus: every row of its matrix, and the module called four times."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dynadiag.facts.user_frames import resume_line
from dynadiag.passes.find_graph_breaks import find_graph_breaks
from dynadiag.report import build
from dynadiag.trace import load

CORPUS = Path(__file__).parents[1] / "corpus" / "graph_breaks"

ALL_ROWS = """
import sys, torch
sys.path.append(sys.argv[1])
import matrix
for name in matrix.TRUTH:
    torch.compile(getattr(matrix, name), backend="eager")(torch.ones(3))
"""


def _truth():
    tree = ast.parse((CORPUS / "matrix.py").read_text())
    values = [node.value for node in tree.body if isinstance(node, ast.Assign) and node.targets[0].id == "TRUTH"]
    return ast.literal_eval(values[0])


def _record(folder, *command):
    environment = {**os.environ, "TORCH_TRACE": str(folder), "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, *map(str, command)], env=environment, capture_output=True, timeout=1500, check=True)
    return load(folder)


@pytest.fixture(scope="module")
def matrix(tmp_path_factory):
    """All rows in one process: the programs share no line, so each break belongs to one row."""
    folder = tmp_path_factory.mktemp("matrix")
    script = folder / "all_rows.py"
    script.write_text(ALL_ROWS)
    return _record(folder / "trace", script, CORPUS)


def _rows():
    """The lines of each row's function, with those of the function that it calls."""
    tree = ast.parse((CORPUS / "matrix.py").read_text())
    spans = {node.name: range(node.lineno, (node.end_lineno or node.lineno) + 1) for node in tree.body if isinstance(node, ast.FunctionDef)}
    return {name: (*spans[name], *(spans["callee"] if name.startswith("calls_") else ())) for name in _truth()}


@pytest.mark.parametrize("row", sorted(_truth()))
def test_row(matrix, row):
    sites, events, skipped = _truth()[row]
    lines = _rows()[row]
    found = [site for site in find_graph_breaks(matrix).graph_breaks if site.own_frame.line in lines]
    assert (len(found), sum(site.events for site in found)) == (sites, events)
    assert all((site.own_frame.file, site.own_frame.line) == (site.torch_frame.file, site.torch_frame.line) for site in found)
    # torch 2.15 on Python 3.12 skips the resume function of `loops_on_data`; the corpus speaks of the function that the person wrote.
    eager = [frame for frame in matrix.frames if frame.outcome == "skipped" and frame.line in lines and resume_line(frame.name) is None]
    assert bool(eager) == skipped


def test_three_sites_and_seven_events(tmp_path):
    report = build(_record(tmp_path, CORPUS / "three_breaks.py", "eager"))
    assert (report.summary.graph_break_sites, report.summary.graph_break_events) == (3, 7)
    assert sorted(site.own_frame.line for site in report.graph_breaks) == [10, 12, 14]
    assert sorted(site.category for site in report.graph_breaks) == ["data-dependent control flow", "scalar read", "side effect"]
