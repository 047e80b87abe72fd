"""dynadiag's reducer beside torch's minifier, in one run: questions, final nodes, CPU seconds, slips to another failure.

    python benchmarks/minify_vs_torch.py [--parts search,isolated,runtime,dynamo,slips] [--models mlp,resnet18,resnet18-one,bert12]
                                         [--json FILE] [--torch-limit-s 30] [--torch-isolated-limit-s 1500] [--without-torch]
                                         [--faults "C++ compile error"]

search    AOT graphs with planted operators (`aten.sinh`, `aten.cosh`), one in the middle or two far apart; the oracle only looks for them,
          so the search alone is measured. torch's minifier gets the same graph and oracle for `--torch-limit-s` CPU seconds; repeated
          questions are counted by the text of the candidate.
isolated  scripts with a fault in their C++ code (`inductor.cpp.inject_relu_bug_TESTING_ONLY`: compile error, runtime error, wrong
          result), in every ReLU of a ResNet-18 or in its only one (`resnet18-one`), reduced end to end, each question in a process of
          its own; the same from the AOT graph that torch's minifier starts with (`minifier_launcher.py`); and torch's minifier after AOT
          (`TORCHDYNAMO_REPRO_AFTER=aot`), ended after `--torch-isolated-limit-s` CPU seconds of the launcher and all its children, with
          the nodes that were left then.
runtime   `relu_runtime_error_TESTING_ONLY`, beside torch's minifier after Dynamo.
dynamo    `relu_compile_error_TESTING_ONLY`, the same.
slips     `benchmarks/minify_slips.py`.

One JSON line a case. CPU seconds are those of a process and all its children; `largest_size` is the largest dimension of the final inputs.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch._inductor.lowering
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func
from torch._inductor.decomposition import select_decomp_table

import dynadiag

SEARCHED = ("mlp", "resnet18", "bert12")
MODELS = ("mlp", "resnet18", "resnet18-one", "bert12")
PARTS = ("search", "isolated", "runtime", "dynamo", "slips")
PLANTED = (torch.ops.aten.sinh.default, torch.ops.aten.cosh.default)
_UNARY = ("relu", "tanh", "erf", "rsqrt", "exp", "sigmoid", "neg")


def main() -> None:
    """Measure what is asked for and print one line a case."""
    options = parse()
    results = []
    for part in options.parts.split(","):
        for row in parts()[part](options):
            print(json.dumps({"part": part} | row), flush=True)
            results.append({"part": part} | row)
    if options.json:
        Path(options.json).write_text(json.dumps({"torch": torch.__version__, "results": results}, indent=1) + "\n", "utf-8")


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--torch-limit-s", type=float, default=30.0)
    parser.add_argument("--torch-isolated-limit-s", type=float, default=1500.0)
    parser.add_argument("--without-torch", action="store_true")
    parser.add_argument("--faults", help="of the isolated part: these alone, by name")
    parser.add_argument("--json")
    return parser.parse_args()


def measure_search(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Each model with one and with two planted operators."""
    for name in [one for one in options.models.split(",") if one in SEARCHED]:
        captured, inputs = aot_graph(name)
        for case, count in (("one needed operator", 1), ("two far apart", 2)):
            graph, needed = plant(captured, count)
            row = {"model": name, "case": case, "nodes": len(graph.graph.nodes), "dynadiag": ours(graph, inputs, needed)}
            yield row | ({} if options.without_torch else {"torch": theirs(graph, inputs, needed, options.torch_limit_s)})


def model(name: str) -> tuple[torch.nn.Module, torch.Tensor]:
    """A model with small sizes and an input for it."""
    torch.manual_seed(0)
    if name == "mlp":
        layers = [layer for _ in range(7) for layer in (torch.nn.Linear(16, 16), torch.nn.Tanh())]
        return torch.nn.Sequential(*layers).eval(), torch.randn(4, 16)
    if name == "resnet18":
        import torchvision

        return torchvision.models.resnet18(num_classes=8).eval(), torch.randn(1, 3, 32, 32)
    from transformers import BertConfig, BertModel

    sizes = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 100, "num_hidden_layers": 12}
    return BertModel(BertConfig(**sizes, attn_implementation="eager")).eval(), torch.randint(0, 100, (2, 8))


def aot_graph(name: str) -> tuple[torch.fx.GraphModule, list[Any]]:
    """The inference graph after inductor's decompositions, with the real inputs of its first call."""
    found: list[Any] = []

    def keep(graph: torch.fx.GraphModule, example: Any) -> Any:
        def run(*values: Any) -> Any:
            found.append((graph, [value.detach().clone() if isinstance(value, torch.Tensor) else value for value in values]))
            return graph.forward(*values)

        return make_boxed_func(run)

    made, value = model(name)
    with torch.no_grad():
        torch.compile(made, backend=aot_autograd(fw_compiler=keep, decompositions=select_decomp_table()))(value)
    return found[0]


def plant(captured: torch.fx.GraphModule, count: int) -> tuple[torch.fx.GraphModule, tuple[Any, ...]]:
    """The graph with planted operators: one in the middle, or one early and one late."""
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(captured.graph, {}))
    unary = [node for node in graph.nodes if any(node.target is getattr(torch.ops.aten, name).default for name in _UNARY)]
    places = [unary[len(unary) // 2]] if count == 1 else [unary[1], unary[-2]]
    for node, target in zip(places, PLANTED, strict=False):
        node.target = target
    return torch.fx.GraphModule(captured, graph), PLANTED[:count]


class Counting:
    """The oracle: does the graph run, and hold what is needed; counts its calls and repeated questions."""

    def __init__(self, needed: tuple[Any, ...], limit_s: float | None = None) -> None:
        self._needed = needed
        self._end = None if limit_s is None else time.process_time() + limit_s
        self.asked: list[int] = []
        self.smallest = 0

    def __call__(self, graph: torch.fx.GraphModule, inputs: Any) -> bool:
        """Whether all that is needed is in the graph. Raises TimeoutError when the time is over."""
        if self._end is not None and time.process_time() > self._end:
            raise TimeoutError
        self.asked.append(hash(graph.code))
        present = {node.target for node in graph.graph.nodes}
        interesting = all(target in present for target in self._needed)
        if interesting:
            self.smallest = min(self.smallest or len(graph.graph.nodes), len(graph.graph.nodes))
        return interesting


def ours(graph: torch.fx.GraphModule, inputs: list[Any], needed: tuple[Any, ...]) -> dict[str, Any]:
    """The figures of `dynadiag.minify`."""
    oracle, began = Counting(needed), time.process_time()
    found = dynadiag.minify(graph, inputs, oracle=oracle)
    queries = {phase: getattr(found.queries, phase) for phase in ("confirm", "cut", "minimal", "simplify")}
    largest = max((size for one in found.inputs if isinstance(one, torch.Tensor) for size in one.shape), default=0)
    return {"nodes": len(found.graph_module.graph.nodes), "queries": queries, "largest_size": largest, "cpu_s": since(began)}


def theirs(graph: torch.fx.GraphModule, inputs: list[Any], needed: tuple[Any, ...], limit_s: float) -> dict[str, Any]:
    """The figures of torch's minifier, ended after `limit_s` CPU seconds."""
    from functorch.compile import minifier

    oracle, began = Counting(needed, limit_s), time.process_time()
    quietly: Callable[..., Any] = lambda *_: None  # noqa: E731
    ended, why = True, None
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        try:
            minifier(graph, [one.clone() if isinstance(one, torch.Tensor) else one for one in inputs], oracle, dump_state=quietly)
        except TimeoutError:
            ended, why = False, f"stopped after {limit_s:g} s"
        except Exception as error:  # noqa: BLE001 - what torch's minifier raises is a result here
            ended, why = False, f"{type(error).__name__}: {error}"[:200]
    repeated = len(oracle.asked) - len(set(oracle.asked))
    return {"nodes": oracle.smallest, "queries": len(oracle.asked), "repeated": repeated, "ended": ended, "why": why, "cpu_s": since(began)}


def since(began: float) -> float:
    """CPU seconds of this process since then."""
    return round(time.process_time() - began, 2)


def measure_slips(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The planted second bugs and broken machines."""
    from minify_scripts import ROOT, run

    with tempfile.TemporaryDirectory(prefix="dynadiag-slips-") as folder:
        ended = run([sys.executable, str(ROOT / "benchmarks" / "minify_slips.py"), "--json", f"{folder}/slips.json"], None, Path(folder))
        path = Path(folder) / "slips.json"
        cases = json.loads(path.read_text("utf-8"))["cases"] if path.exists() else []
    slips = sum(case["slip"] is not None for case in cases)
    figures = {"cases": len(cases), "slips": slips, "exit_status": ended.status, "cpu_s": ended.cpu_s}
    yield figures | ({} if cases else {"said": ended.said[-1000:]})


def parts() -> dict[str, Callable[[argparse.Namespace], Iterator[dict[str, Any]]]]:
    """What is measured, by name."""
    from minify_scripts import DYNAMO, ISOLATED, RUNTIME, measure_scripts

    return {
        "search": measure_search,
        "isolated": measure_scripts(ISOLATED),
        "runtime": measure_scripts(RUNTIME),
        "dynamo": measure_scripts(DYNAMO),
        "slips": measure_slips,
    }


if __name__ == "__main__":
    main()
