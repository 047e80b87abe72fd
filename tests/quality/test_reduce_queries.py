"""How many queries a reduction makes, on AOT graphs: bounds for `docs/minify-evidence.md`. BERT-12: `benchmarks/minify_vs_torch.py`."""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("torch")

from benchmarks import minify_scripts  # noqa: E402


@pytest.fixture(scope="module")
def benchmark():
    """It imports Inductor's lowerings, which takes seconds: only where it is run."""
    from benchmarks import minify_vs_torch

    return minify_vs_torch


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
    busy = "import signal as s, subprocess, sys; s.signal(s.SIGINT, s.SIG_IGN); subprocess.run([sys.executable, '-c', 'while 1: pass'])"
    ended = minify_scripts.run([sys.executable, "-c", busy], None, tmp_path, limit_s=1.0)
    assert ended.status == "stopped"
    assert ended.cpu_s >= 1.0  # rounded to tenths


def test_torchs_minifier_asks_more_on_the_same_graph(benchmark):
    captured, inputs = benchmark.aot_graph("mlp")
    graph, targets = benchmark.plant(captured, 2)
    ours, theirs = benchmark.ours(graph, inputs, targets), benchmark.theirs(graph, inputs, targets, 20)
    assert sum(ours["queries"].values()) < theirs["queries"]
    assert ours["nodes"] < theirs["nodes"]
