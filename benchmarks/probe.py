"""What the mutation probe costs beside AOTAutograd: CPU seconds of both on the same graphs, in one process.

    python benchmarks/probe.py [--models resnet18,bert,gpt2] [--rounds 5] [--json FILE]

For each model, the training graph is captured once under a recording. AOTAutograd then traces it `rounds` times with the compiler of
`aot_eager` (which compiles nothing), and by turns the probe reads the recorded text, rebuilds the graph and follows it. "follow" is the
probe's own work, "whole" adds parsing and rebuilding. Ratios are medians over rounds, with the lowest and highest. The probe runs outside
the user's process; the start of its interpreter and the import of torch (about as much as the script's own) are not counted here.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.backends.debugging import aot_eager

import dynadiag
from dynadiag import trace
from dynadiag.fx.mutation_probe import probe
from dynadiag.fx.rebuild import RebuildOptions, rebuild

TARGET = 0.25


def resnet18() -> Callable[[], Any]:
    """One training forward of ResNet-18."""
    from torchvision.models import resnet18 as build

    model, images = build(num_classes=10), torch.randn(2, 3, 64, 64)
    return torch.compile(lambda: model(images).sum(), backend=_keeping)


def bert() -> Callable[[], Any]:
    """One training forward of a BERT of four layers, with its loss."""
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(hidden_size=64, num_hidden_layers=4, num_attention_heads=4, intermediate_size=128, vocab_size=500)
    model, tokens = BertForMaskedLM(config), torch.randint(0, 500, (2, 16))
    return torch.compile(lambda: model(input_ids=tokens, labels=tokens).loss, backend=_keeping)


def gpt2() -> Callable[[], Any]:
    """One forward of a GPT-2 of four layers with its cache, without grad."""
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_embd=64, n_layer=4, n_head=4, vocab_size=500, n_positions=64)).eval()
    tokens = torch.randint(0, 500, (1, 8))
    return torch.no_grad()(torch.compile(lambda: model(tokens).logits, backend=_keeping))


def adamw() -> Callable[[], Any]:
    """One AdamW step over 40 tensors: nearly every operator writes."""
    parameters = [torch.randn(8, 8, requires_grad=True) for _ in range(40)]
    for one in parameters:
        one.grad = torch.randn(8, 8)
    return torch.compile(torch.optim.AdamW(parameters).step, backend=_keeping)


MODELS = {"resnet18": resnet18, "bert": bert, "gpt2": gpt2, "adamw": adamw}
_traced: list[float] = []
_rounds = 1


def _keeping(module: torch.fx.GraphModule, inputs: list[Any]) -> Any:
    """The back end: AOTAutograd traces the graph, and its CPU time of each round is kept."""
    for _ in range(_rounds):
        began = time.process_time()
        made = aot_eager(module, inputs)
        _traced.append(time.process_time() - began)
    return made


def measure(name: str, rounds: int) -> dict[str, Any]:
    """CPU seconds of both on the graphs of one model."""
    global _rounds
    folder = Path(tempfile.mkdtemp(prefix="dynadiag-probe-"))
    torch._dynamo.reset()
    _rounds = 1
    with dynadiag.observe(folder / "run"):
        MODELS[name]()()
    torch._dynamo.reset()
    _traced.clear()
    _rounds = rounds
    MODELS[name]()()
    graphs = [graph for graph in trace.load(folder / "run").graphs if graph.kind == "dynamo"]
    tracing = [sum(_traced[start::rounds]) for start in range(rounds)]
    follows, wholes, nodes, mutated = [], [], 0, 0
    for _ in range(rounds):
        follow = whole = 0.0
        nodes = mutated = 0
        for graph in graphs:
            began = time.process_time()
            details = trace.graph_details(graph.details) if graph.details is not None else None
            rebuilt = rebuild(trace.read_payload(graph.text), details=details, options=RebuildOptions(device="cpu", lazy=True))
            built = time.process_time()
            result = probe(rebuilt)
            ended = time.process_time()
            assert result.error is None, result.error
            follow, whole = follow + ended - built, whole + ended - began
            nodes, mutated = nodes + len(rebuilt.graph_module.graph.nodes), mutated + len(result.mutations)
        follows.append(follow)
        wholes.append(whole)
    return {"nodes": nodes, "mutated": mutated, "tracing_s": tracing, "follow_s": follows, "whole_s": wholes}


def ratio(parts: list[float], tracing: list[float]) -> tuple[float, float, float]:
    """Median, lowest and highest of the probe's time over AOTAutograd's median."""
    base = statistics.median(tracing)
    return statistics.median(parts) / base, min(parts) / base, max(parts) / base


def main() -> None:
    """Measure each model and print one line for it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    found = {name: measure(name, options.rounds) for name in options.models.split(",")}
    print(f"{'model':10} {'nodes':>6} {'mutated':>8} {'AOT CPU s':>10}   follow / AOT        whole / AOT         target {TARGET:.0%}")
    for name, one in found.items():
        shares = ["{:6.1%} ({:.1%}-{:.1%})".format(*ratio(one[part], one["tracing_s"])) for part in ("follow_s", "whole_s")]
        within = "met" if ratio(one["whole_s"], one["tracing_s"])[0] <= TARGET else "missed"
        aot = statistics.median(one["tracing_s"])
        print(f"{name:10} {one['nodes']:6} {one['mutated']:8} {aot:10.2f}   {shares[0]:19} {shares[1]:19} {within}")
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
