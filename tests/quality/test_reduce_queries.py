"""How many questions a reduction asks, on real AOT graphs: the bounds of `docs/minify.md`. BERT-12: `benchmarks/minify_vs_torch.py`."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def benchmark():
    spec = importlib.util.spec_from_file_location("benchmark_minify", Path(__file__).parents[2] / "benchmarks" / "minify_vs_torch.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("model", "needed", "cut", "nodes"),
    [
        ("mlp", 1, 12, 3),
        ("mlp", 2, 12, 5),
        pytest.param("resnet18", 1, 22, 3, marks=pytest.mark.models),
        pytest.param("resnet18", 2, 22, 6, marks=pytest.mark.models),
    ],
)
def test_planted_operators_are_isolated_in_few_queries(benchmark, model, needed, cut, nodes):
    if model == "resnet18":
        pytest.importorskip("torchvision")
    captured, inputs = benchmark.aot_graph(model)
    graph, targets = benchmark.plant(captured, needed)
    figures = benchmark.ours(graph, inputs, targets)
    assert figures["nodes"] <= nodes
    assert figures["queries"]["cut"] <= cut
    assert figures["queries"]["minimal"] <= 2 * needed
    assert figures["largest_size"] <= 4


def test_a_command_ends_at_its_limit_of_cpu_seconds_with_its_children_where_interrupts_are_ignored(tmp_path):
    spec = importlib.util.spec_from_file_location("benchmark_scripts", Path(__file__).parents[2] / "benchmarks" / "minify_scripts.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    busy = "import signal as s, subprocess, sys; s.signal(s.SIGINT, s.SIG_IGN); subprocess.run([sys.executable, '-c', 'while 1: pass'])"
    ended = module.run([sys.executable, "-c", busy], None, tmp_path, limit_s=1.0)
    assert ended.status == "stopped"
    assert ended.cpu_s >= 1.0  # rounded to tenths


def test_torchs_minifier_asks_more_on_the_same_graph(benchmark):
    captured, inputs = benchmark.aot_graph("mlp")
    graph, targets = benchmark.plant(captured, 2)
    ours, theirs = benchmark.ours(graph, inputs, targets), benchmark.theirs(graph, inputs, targets, 20)
    assert sum(ours["queries"].values()) < theirs["queries"]
    assert ours["nodes"] < theirs["nodes"]
