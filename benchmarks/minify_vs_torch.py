"""dynadiag's reducer beside torch's minifier, in one run: questions, final nodes, CPU seconds, slips to another failure.

    python benchmarks/minify_vs_torch.py [--parts search,isolated,runtime,dynamo,slips] [--models mlp,resnet18,bert12] [--json FILE]
                                         [--torch-limit-s 30] [--torch-isolated-limit-s 900] [--without-torch]
                                         [--faults "C++ compile error"]

search    AOT graphs with planted operators (`aten.sinh`, `aten.cosh`), one in the middle or two far apart; the oracle only looks for them,
          so the search alone is measured. torch's minifier gets the same graph and oracle for `--torch-limit-s` CPU seconds; repeated
          questions are counted by the text of the candidate.
isolated  scripts with a fault in their C++ code (`inductor.cpp.inject_relu_bug_TESTING_ONLY`: compile error, runtime error, wrong
          result), reduced end to end, each question in a process of its own; the same from the AOT graph that torch's minifier starts
          with (its `minifier_launcher.py`); and torch's minifier after AOT (`TORCHDYNAMO_REPRO_AFTER=aot`), ended after
          `--torch-isolated-limit-s` CPU seconds.
runtime   `relu_runtime_error_TESTING_ONLY`, beside torch's minifier after Dynamo.
dynamo    `relu_compile_error_TESTING_ONLY`, the same.
slips     `benchmarks/minify_slips.py`.

One JSON line a case. CPU seconds are those of a process and all its children.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch._inductor.lowering
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func
from torch._inductor.decomposition import select_decomp_table

import dynadiag

ROOT = Path(__file__).resolve().parents[1]
MODELS = ("mlp", "resnet18", "bert12")
PARTS = ("search", "isolated", "runtime", "dynamo", "slips")
PLANTED = (torch.ops.aten.sinh.default, torch.ops.aten.cosh.default)
_UNARY = ("relu", "tanh", "erf", "rsqrt", "exp", "sigmoid", "neg")


def main() -> None:
    """Measure what is asked for and print one line a case."""
    options = parse()
    results = []
    for part in options.parts.split(","):
        for row in _PARTS[part](options):
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
    parser.add_argument("--torch-isolated-limit-s", type=float, default=900.0)
    parser.add_argument("--without-torch", action="store_true")
    parser.add_argument("--faults", help="of the isolated part: these alone, by name")
    parser.add_argument("--json")
    return parser.parse_args()


def measure_search(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Each model with one and with two planted operators."""
    for name in options.models.split(","):
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


# -- whole scripts


SCRIPT = """import torch

torch.manual_seed(0)
{model}
{config}
with torch.no_grad():
    torch.compile(net, backend={backend!r})(x)
"""
RELU = """

class Relu(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)


"""
MLP = (
    RELU
    + """layers = [layer for number in range(7) for layer in (torch.nn.Linear(16, 16), Relu() if number == 3 else torch.nn.Tanh())]
net, x = torch.nn.Sequential(*layers).eval(), torch.randn(4, 16)"""
)
RESNET = (
    RELU
    + """import torchvision

net, x = torchvision.models.resnet18(num_classes=8).eval(), torch.randn(1, 3, 32, 32)
for module in net.modules():
    if hasattr(module, "relu"):
        module.relu = Relu()"""
)
SCRIPTS = {"mlp": MLP, "resnet18": RESNET}
CXX_BUG = """import torch._inductor.config
torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY = {!r}"""


class Fault(NamedTuple):
    """A planted fault: the backend, a line that sets an option, and how torch's minifier is asked for it (after what, at which level).

    `kind` is what we are asked for; `models` are the ones that it is measured on.
    """

    name: str
    backend: str
    config: str = ""
    after: str = "dynamo"
    level: str = "2"
    kind: str | None = None
    models: tuple[str, ...] = ("mlp", "resnet18")


ISOLATED = (
    Fault(name="C++ compile error", backend="inductor", config=CXX_BUG.format("compile_error"), after="aot"),
    Fault(name="C++ runtime error", backend="inductor", config=CXX_BUG.format("runtime_error"), after="aot"),
    Fault(
        name="C++ wrong result",
        backend="inductor",
        config=CXX_BUG.format("accuracy"),
        after="aot",
        level="4",
        kind="wrong_result",
    ),
)
RUNTIME = (Fault(name="runtime error after Dynamo", backend="relu_runtime_error_TESTING_ONLY"),)
DYNAMO = (Fault(name="compile error after Dynamo", backend="relu_compile_error_TESTING_ONLY"),)


def measure_scripts(faults: tuple[Fault, ...]) -> Callable[[argparse.Namespace], Iterator[dict[str, Any]]]:
    """Scripts reduced by the command; the graph that torch's minifier starts with, reduced by the command; torch's minifier."""

    def rows(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
        for fault in [one for one in faults if options.faults is None or one.name in options.faults.split(",")]:
            for name in [one for one in options.models.split(",") if one in fault.models]:
                with tempfile.TemporaryDirectory(prefix="dynadiag-versus-") as folder:
                    yield {"fault": fault.name, "model": name} | measured(fault, name, Path(folder), options)

    return rows


def measured(fault: Fault, model: str, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """One fault in one model."""
    text = SCRIPT.format(model=SCRIPTS[model], config=fault.config, backend=fault.backend)
    row: dict[str, Any] = {"dynadiag": our_command(text, folder / "ours", fault.kind)}
    if options.without_torch:
        return row
    launcher, row["torch"] = their_launcher(text, folder / "theirs", fault)
    if launcher is not None:
        if fault.after == "aot":
            # Where torch's minifier begins: AOTAutograd's graph, with the inputs that torch saved.
            row["dynadiag_at_aot"] = our_command(None, launcher.parent, fault.kind, target=launcher.name)
        row["torch"] |= their_search(launcher, folder / "theirs", fault, options)
    return row


def our_command(text: str | None, folder: Path, kind: str | None, *, target: str = "script.py") -> dict[str, Any]:
    """`dynadiag minify` with capture, confirmation, search, guilty part and three proofs; one question at a time."""
    wanted = [] if kind is None else ["--kind", kind]
    command = [sys.executable, "-m", "dynadiag", "minify", "--jobs", "1", "--no-ablation", "--out", "out", *wanted, target]
    status, cpu_s, said = run(command, text, folder, {}, None)
    path = folder / "out" / "minify.json"
    if not path.exists():
        return {"exit_status": status, "cpu_s": cpu_s, "said": said[-1000:]}
    found = json.loads(path.read_text("utf-8"))
    nodes = [found["size_before"]["nodes"], found["size_after"]["nodes"]]
    proven = f"{found['proven']['reproduced']} of {found['proven']['runs']}"
    figures = {"kind": found["kind"], "nodes": nodes, "queries": found["queries"], "proven": proven, "level": found["level"]}
    return figures | {"search_cpu_s": found["search_cpu_s"], "questions_cpu_s": found["cpu_s"], "cpu_s_of_everything": cpu_s}


def their_names(folder: Path, fault: Fault) -> dict[str, str]:
    """The variables that torch's minifier listens to."""
    return {"TORCHDYNAMO_REPRO_AFTER": fault.after, "TORCHDYNAMO_REPRO_LEVEL": fault.level, "TORCH_COMPILE_DEBUG_DIR": str(folder)}


def their_launcher(text: str, folder: Path, fault: Fault) -> tuple[Path | None, dict[str, Any]]:
    """The script run with torch's minifier asked for: the launcher that it writes, None where it writes none."""
    status, cpu_s, said = run([sys.executable, "script.py"], text, folder, their_names(folder, fault), None)
    launcher = next(folder.rglob("minifier_launcher.py"), None)
    figures = {"cpu_s_of_script": cpu_s}
    return launcher, figures if launcher is not None else figures | {"exit_status": status, "launcher": None, "said": said[-300:]}


def their_search(launcher: Path, folder: Path, fault: Fault, options: argparse.Namespace) -> dict[str, Any]:
    """What the launcher finds. Nodes are those of the smallest graph that it kept, None where it kept none."""
    command = [sys.executable, str(launcher), *(["minify"] if fault.after == "aot" else [])]
    limit_s = options.torch_isolated_limit_s
    status, search_cpu_s, said = run(command, None, folder, their_names(folder, fault), limit_s)
    sizes = [int(number) for path in folder.rglob("checkpoints/*.py") for number in re.findall(r"\d+", path.name)[:1]]
    queries = len(re.findall(r"^(?:SUCCESS|FAIL)|Trying granularity|^Strategy", said, re.MULTILINE))
    figures = {"exit_status": status, "search_cpu_s": search_cpu_s, "nodes": min(sizes, default=None)}
    return figures | {"steps_said": queries, "limit_s": limit_s, "said": said[-300:]}


Ended = tuple[int | str, float, str]


def run(command: list[str], text: str | None, folder: Path, names: Mapping[str, str], limit_s: float | None) -> Ended:
    """The exit status, the CPU seconds with all children, and the output; "stopped" when it used more CPU time than `limit_s`."""
    folder.mkdir(exist_ok=True)
    if text is not None:
        (folder / "script.py").write_text(text, "utf-8")
    path = os.pathsep.join([str(ROOT), str(ROOT / "cli"), os.environ.get("PYTHONPATH", "")])
    own = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    own["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "cache")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with (folder / "said").open("wb") as said:
        child = subprocess.Popen(command, cwd=folder, env=os.environ | own | names, stdout=said, stderr=said, start_new_session=True)
        stopped = threading.Event()
        watch = threading.Thread(target=_watch, args=(child, limit_s, stopped), daemon=True)
        watch.start()
        status: int | str = child.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return "stopped" if stopped.is_set() else status, round(cpu_s, 1), (folder / "said").read_text("utf-8", "replace")


def _watch(child: subprocess.Popen[bytes], limit_s: float | None, stopped: threading.Event) -> None:
    """End the process when it and the children that it waited for have used their CPU time."""
    ticks = os.sysconf("SC_CLK_TCK")
    while limit_s is not None and child.poll() is None:
        with contextlib.suppress(OSError, IndexError):
            fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
            if sum(int(one) for one in fields[11:15]) / ticks > limit_s:
                stopped.set()
                os.killpg(child.pid, signal.SIGINT)
                return
        time.sleep(1.0)


def measure_slips(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The planted second bugs and broken machines."""
    with tempfile.TemporaryDirectory(prefix="dynadiag-slips-") as folder:
        command = [sys.executable, str(ROOT / "benchmarks" / "minify_slips.py"), "--json", f"{folder}/slips.json"]
        status, cpu_s, said = run(command, None, Path(folder), {}, None)
        path = Path(folder) / "slips.json"
        cases = json.loads(path.read_text("utf-8"))["cases"] if path.exists() else []
    slips = sum(case["slip"] is not None for case in cases)
    yield {"cases": len(cases), "slips": slips, "exit_status": status, "cpu_s": cpu_s} | ({} if cases else {"said": said[-1000:]})


_PARTS: dict[str, Callable[[argparse.Namespace], Iterator[dict[str, Any]]]] = {
    "search": measure_search,
    "isolated": measure_scripts(ISOLATED),
    "runtime": measure_scripts(RUNTIME),
    "dynamo": measure_scripts(DYNAMO),
    "slips": measure_slips,
}


if __name__ == "__main__":
    main()
