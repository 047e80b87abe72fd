"""What the renderers print, compared with stored files.

After a wanted change run `DYNADIAG_REGOLD=1 pytest tests/gold`, look at the difference, and commit it with the change.
"""

import io
import os
from pathlib import Path

import pytest
from rich.console import Console

from dynadiag.model.graph import Node
from dynadiag.model.location import Location
from dynadiag.render import json_report, markdown
from dynadiag.render.dot_text import dot_text
from dynadiag.render.drawing import drawn
from dynadiag.render.frame_map import frame_map
from dynadiag.render.graph_picture import graph_picture
from dynadiag.render.picture import describe
from dynadiag.render.recorded_graph import RecordedGraph
from dynadiag.render.sketch import picture_of
from dynadiag.render.terminal import print_report, print_summary
from tests.gold import sample_report as samples

HERE = Path(__file__).parent
BASE = Path("/home/me/proj")
SHAPE = "f32[2, 4][4, 1]cpu"
COLOUR = {"force_terminal": True, "color_system": "standard", "legacy_windows": False, "no_color": False}


def terminal(report, width, **options):
    stream = io.StringIO()
    console = {"force_terminal": False} | options.pop("console", {})
    show = print_summary if options.pop("summary", False) else print_report
    show(report, Console(file=stream, width=width, **console), base=BASE, **options)
    return stream.getvalue()


def graph():
    line = Location("/home/me/proj/train.py", 40, "train_step", "y = self.fc(x)")
    nodes = [
        Node(name="L_x_", op="placeholder", target="L_x_", annotation=SHAPE),
        Node(name="w", op="placeholder", target="l_self_modules_fc_parameters_weight_"),
        Node(name="y", op="call_function", target="torch._C._nn.linear", args=("l_x_", "w"), annotation=SHAPE, location=line),
        Node(name="add_", op="call_method", target="add_", args=("L_x_", "y"), annotation=SHAPE, location=line),
        Node(name="output", op="output", target="output", args=("add_",)),
    ]
    made = RecordedGraph(nodes=nodes, labels={"L_x_": "batch"})
    return graph_picture(made, title="g0  train_step", summary=["captured by Dynamo"], base=BASE)


CASES = {
    "terminal-80.txt": lambda: terminal(samples.sample_report(), 80),
    "terminal-80-summary.txt": lambda: terminal(samples.sample_report(), 80, summary=True),
    "terminal-80-summary-nothing.txt": lambda: terminal(samples.empty_report(), 80, summary=True),
    "terminal-80-summary-long.txt": lambda: terminal(samples.big_report(12), 80, summary=True),
    "terminal-120.txt": lambda: terminal(samples.sample_report(), 120),
    "terminal-80-verbose.txt": lambda: terminal(samples.sample_report(), 80, verbose=True),
    "terminal-80-colour.txt": lambda: terminal(samples.sample_report(), 80, limit=1, console=COLOUR),
    "terminal-80-nothing.txt": lambda: terminal(samples.empty_report(), 80),
    "terminal-80-long.txt": lambda: terminal(samples.big_report(12), 80, limit=2),
    "terminal-100-hostile.txt": lambda: terminal(samples.hostile_report(), 100, limit=1),
    "report.md": lambda: markdown.render(samples.sample_report()),
    "report-nothing.md": lambda: markdown.render(samples.empty_report()),
    "report.json": lambda: json_report.dumps(samples.sample_report()),
    "frames.svg": lambda: drawn(picture_of(frame_map(samples.sample_report())), "columns").text,
    "frames-hostile.svg": lambda: drawn(picture_of(frame_map(samples.hostile_report())), "columns").text,
    "frames.txt": lambda: describe(picture_of(frame_map(samples.sample_report()))),
    "frames-ranks.svg": lambda: drawn(picture_of(frame_map(samples.sample_report())), "graphviz").text,
    "frames.gv": lambda: dot_text(picture_of(frame_map(samples.sample_report()))),
    "graph.svg": lambda: drawn(graph(), "columns").text,
    "graph.txt": lambda: describe(graph()),
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_rendered_output_is_what_it_was(name):
    path = HERE / "expected" / name
    made = CASES[name]()
    if os.environ.get("DYNADIAG_REGOLD"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(made, encoding="utf-8")
    assert made == path.read_text(encoding="utf-8")
