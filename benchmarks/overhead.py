"""What recording costs: three real models, paired runs with and without it, CPU time of compiling and of a steady step, and our own share.

    python benchmarks/overhead.py [--pairs 8] [--models bert,resnet18,gpt2] [--backend inductor] [--with-compilers] [--json FILE]

Each pair is two fresh processes in random order. Ratios are with/without, with a 95 % bootstrap interval over pairs. The machine need not
be quiet: CPU seconds are compared, not wall time; with `perf` also instructions in user space, which barely depend on the load.

On a busy machine two processes differ by more than recording costs. So each recorded process also measures itself: the CPU time of all
that only recording does (torch builds no record while nobody listens), and of our own part of it, against the compile CPU time without
them. Load touches both sides of such a share alike. The lowest and highest of all runs are given with the median. "In
turns" is the steady step in one process with our hooks in and out by turns. "Calls" is how many Python and built-in functions one steady
step calls, each by name: what recording does in a steady step would show there, on any machine.

Inductor's caches of graphs are off, but the libraries that the C++ compiler builds are kept from a first, unmeasured run: recording cannot
change what that compiler costs, it only adds noise. So the compile ratio is that of the Python part, larger than the whole.
`--with-compilers` builds everything in each process and counts the compilers.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

MODELS = ("bert", "resnet18", "gpt2")
TARGETS = {"compile": 1.05, "steady": 1.01, "in turns": 1.01, "added": 0.05, "own": 0.02}
STEADY_STEPS = 60
STEADY_PAIRS = 20
_BOOTSTRAPS = 4000


def main() -> None:
    """Run the pairs and print one line a model and figure."""
    options = parse()
    if options.worker:
        work(options.worker, options.backend)
        return
    results = {}
    for model in options.models.split(","):
        results[model] = compare(model, options.pairs, options.backend, with_compilers=options.with_compilers)
        print_model(model, results[model])
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=1) + "\n", "utf-8")


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--with-compilers", action="store_true", help="build all kernels in each process and count the C++ compiler")
    parser.add_argument("--json")
    parser.add_argument("--worker", choices=MODELS, help=argparse.SUPPRESS)
    return parser.parse_args()


def compare(model: str, pairs: int, backend: str, *, with_compilers: bool) -> dict[str, object]:
    """Pairs of runs of one model; each pair in random order."""
    order = random.Random(0)
    plain, recorded = [], []
    with tempfile.TemporaryDirectory() as cache:
        if not with_compilers:
            run(model, backend, cache, recording=False)
        for _ in range(pairs):
            arms = [(plain, False), (recorded, True)]
            order.shuffle(arms)
            for samples, recording in arms:
                samples.append(run(model, backend, None if with_compilers else cache, recording=recording))
    figures: dict[str, object] = {name: ratio(plain, recorded, name) for name in ("compile", "steady", "instructions")}
    figures["in turns"] = ratio_of([pair for run_ in recorded for pair in run_["steady_pairs"]])
    for name in ("added", "own"):
        shares = sorted(run_[f"{name}_s"] / (run_["compile"] - run_["added_s"]) for run_ in recorded)
        figures[f"{name}_share"] = {"median": statistics.median(shares), "low": shares[0], "high": shares[-1]}
    figures |= {f"{name}_s": statistics.median(run_[name] for run_ in plain) for name in ("compile", "steady")}
    figures["log_bytes"] = statistics.median(run_["log_bytes"] for run_ in recorded)
    figures["pairs"] = pairs
    figures["calls"] = [sum(run_["calls"].values()) for run_ in (plain[0], recorded[0])]
    figures["calls_differ"] = sorted({name for run_ in recorded for name, n in run_["calls"].items() ^ plain[0]["calls"].items()})
    return figures


def run(model: str, backend: str, cache: str | None, *, recording: bool) -> dict[str, Any]:
    """One process; CPU seconds of its compiling and of one steady step, as it measured them. `cache` is kept, without it nothing is."""
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, TORCHINDUCTOR_CACHE_DIR=cache or f"{folder}/cache", **_ENVIRONMENT)
        out = f"{folder}/run"
        command = [sys.executable, __file__, "--worker", model, "--backend", backend]
        if recording:
            command = [sys.executable, "-c", _RECORD, out, *command[1:]]
        command, counts = under_perf(command, folder)
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        measured["log_bytes"] = sum(log.stat().st_size for log in Path(out).glob("*.log")) if recording else 0
        return measured | read_counts(counts)


_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
    "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
}
_RECORD = """
import sys
from pathlib import Path
from dynadiag.record import RecordOptions, Target, record
sys.exit(record(Target("script", tuple(sys.argv[2:])), RecordOptions(out=Path(sys.argv[1]))).exit_status)
"""


def under_perf(command: list[str], folder: str) -> tuple[list[str], Path]:
    """The command under `perf stat` where that works."""
    counts = Path(folder) / "counts"
    perf = shutil.which("perf")
    if perf is None or subprocess.run([perf, "stat", "-e", "instructions:u", "true"], capture_output=True, check=False).returncode:
        return command, counts
    return [perf, "stat", "-x,", "-e", "instructions:u", "-o", str(counts), "--", *command], counts


def read_counts(counts: Path) -> dict[str, float]:
    """Instructions that `perf stat` counted; nothing where it counted none."""
    if not counts.exists():
        return {}
    fields = [line.split(",") for line in counts.read_text("utf-8").splitlines() if "instructions" in line]
    return {"instructions": float(fields[0][0])} if fields and fields[0][0].isdigit() else {}


def ratio(plain: list[dict[str, Any]], recorded: list[dict[str, Any]], name: str) -> dict[str, float] | None:
    """The ratio with/without over pairs of processes; None when it was not measured."""
    pairs = zip(plain, recorded, strict=True)
    return ratio_of([(without[name], with_[name]) for without, with_ in pairs if name in without and name in with_])


def ratio_of(pairs: list[tuple[float, float]]) -> dict[str, float] | None:
    """The geometric mean of with/without, and its 95 % interval from resampled pairs."""
    logs = [math.log(with_ / without) for without, with_ in pairs]
    if not logs:
        return None
    pick = random.Random(1)
    means = sorted(statistics.fmean(pick.choices(logs, k=len(logs))) for _ in range(_BOOTSTRAPS))
    low, high = means[int(0.025 * _BOOTSTRAPS)], means[int(0.975 * _BOOTSTRAPS) - 1]
    return {"ratio": math.exp(statistics.fmean(logs)), "low": math.exp(low), "high": math.exp(high)}


def print_model(model: str, figures: dict[str, object]) -> None:
    """One line a figure, with its target."""
    for name in ("compile", "steady", "in turns", "instructions"):
        found = figures[name]
        if isinstance(found, dict):
            target = f"target <= {TARGETS[name]:.2f}" if name in TARGETS else "whole process"
            print(f"{model:9} {name:12} x{found['ratio']:.4f}  [{found['low']:.4f}, {found['high']:.4f}]  {target}")
        else:
            print(f"{model:9} {name:12} not measured here", flush=True)
    for name in ("added", "own"):
        share = figures[f"{name}_share"]
        assert isinstance(share, dict)
        found = f"{share['median']:7.4f}  [{share['low']:.4f}, {share['high']:.4f}]  target <= {TARGETS[name]:.2f}"
        print(f"{model:9} {name + ' share':12} {found}")
    same = f"not the same: {figures['calls_differ']}" if figures["calls_differ"] else "name by name the same"
    print(f"{model:9} steady calls without, with: {figures['calls']}; {same}")
    print(
        f"{model:9} unrecorded   compiling {figures['compile_s']:.1f} CPU s, a step {figures['steady_s'] * 1000:.1f} CPU ms; "
        f"{figures['pairs']} pairs; log {figures['log_bytes']:.0f} bytes",
        flush=True,
    )


def work(model: str, backend: str) -> None:
    """In the measured process: compile one training step, then steady steps; prints CPU seconds as JSON."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    network, loss_of = BUILDERS[model]()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    compiled = torch.compile(network, backend=backend)

    def step() -> None:
        loss_of(compiled).backward()
        optimizer.step()
        optimizer.zero_grad()

    import torch._dynamo
    import torch._inductor.compile_fx

    spent = watch_recorder()
    begin = cpu_s()
    step()
    compile_s = cpu_s() - begin
    spent_s = spent()
    for _ in range(3):
        step()
    steady_s = statistics.median(timed(step) for _ in range(STEADY_STEPS))
    calls = calls_of(step)
    pairs = steady_pairs(step) if spent_s else []
    print(json.dumps({"compile": compile_s, "steady": steady_s, "steady_pairs": pairs, "calls": calls, **spent_s}))


def steady_pairs(step: Callable[[], None]) -> list[tuple[float, float]]:
    """CPU seconds of a steady step (without our hooks, with them), in turns within one process: same compiled code, same memory."""
    recorder = sys.modules["dynadiag.record.inside"]._active
    pairs = []
    for number in range(STEADY_PAIRS):
        taken = {}
        for recording in (True, False) if number % 2 else (False, True):
            if recording:
                recorder.watcher.install()
            else:
                recorder.watcher.remove()
                recorder.hooks.undo()
            taken[recording] = statistics.median(timed(step) for _ in range(STEADY_STEPS // 4))
        pairs.append((taken[False], taken[True]))
    return pairs


def calls_of(step: Callable[[], None]) -> dict[str, int]:
    """How often one step calls each function, Python's and built-in, the backward on this thread as well."""
    import torch

    calls: Counter[str] = Counter()

    def count(frame, event, function):
        if event == "call":
            calls[f"{frame.f_code.co_filename}:{frame.f_code.co_name}"] += 1
        elif event == "c_call":
            calls[f"{function.__module__}.{function.__qualname__}"] += 1

    gc.collect()
    gc.disable()
    with torch.autograd.set_multithreading_enabled(False):
        sys.setprofile(count)
        step()
        sys.setprofile(None)
    gc.enable()
    return calls


def timed(step: Callable[[], None]) -> float:
    """CPU seconds of one step."""
    begin = time.process_time()
    step()
    return time.process_time() - begin


def cpu_s() -> float:
    """CPU seconds of this process and of the compilers that it has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def watch_recorder() -> Callable[[], dict[str, float]]:
    """A function that gives the CPU seconds so far of all that recording adds (`added_s`), and of our part of it (`own_s`).

    Added is every call of torch's `trace_structured`, which returns at once while nobody listens, and every hook of ours; own is formatting
    and writing records and the hooks.
    """
    inside = sys.modules.get("dynadiag.record.inside")
    if inside is None:
        return dict
    added, own = Stopwatch(), Stopwatch()
    recorder = inside._active
    for name in ("on_record", "artifact"):
        setattr(recorder, name, added.timed(own.timed(getattr(recorder, name))))
    internal = sys.modules["torch._logging._internal"]
    for handler in internal.trace_log.handlers:
        if hasattr(handler, "on_record"):
            handler.on_record = recorder.on_record
    graphs, calls = (sys.modules[f"dynadiag.torch_compat.{name}"] for name in ("graphs", "calls"))
    graphs._describe, calls._describe_call = (added.timed(own.timed(function)) for function in (graphs._describe, calls._describe_call))
    replace_everywhere("trace_structured", internal.trace_structured, added.timed(internal.trace_structured, file=internal.__file__))
    return lambda: {"added_s": added.spent_s, "own_s": own.spent_s}


class Stopwatch:
    """CPU seconds of this thread inside the functions that it timed; one inside another counts once."""

    def __init__(self) -> None:
        self.spent_s = 0.0
        self.depth = 0

    def timed(self, function, file=None):
        """The function, its time added up; `file` hides it from Dynamo among the functions of that file."""

        def run_timed(*args, **kwargs):
            self.depth += 1
            begin = time.thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.depth -= 1
                if self.depth == 0:
                    self.spent_s += time.thread_time() - begin

        if file is not None:
            run_timed.__code__ = run_timed.__code__.replace(co_filename=file)
        return run_timed


def replace_everywhere(name, old, new) -> None:
    """Put a function in the place of another in every loaded module of torch."""
    for module in [module for known, module in list(sys.modules.items()) if known.startswith("torch")]:
        if vars(module).get(name) is old:
            setattr(module, name, new)


def bert():
    """A small BERT for masked language modelling, built from its configuration."""
    import torch
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256, vocab_size=1000)
    tokens = torch.randint(0, 1000, (4, 64))
    return BertForMaskedLM(config), lambda model: model(input_ids=tokens, labels=tokens).loss


def gpt2():
    """A small GPT-2, built from its configuration."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_embd=128, n_layer=2, n_head=4, vocab_size=1000, n_positions=128)
    tokens = torch.randint(0, 1000, (4, 64))
    return GPT2LMHeadModel(config), lambda model: model(input_ids=tokens, labels=tokens, use_cache=False).loss


def resnet18():
    """ResNet-18 of torchvision on small images."""
    import torch
    from torchvision.models import resnet18 as build

    images, labels = torch.randn(4, 3, 64, 64), torch.randint(0, 10, (4,))
    return build(num_classes=10), lambda model: torch.nn.functional.cross_entropy(model(images), labels)


BUILDERS = {"bert": bert, "gpt2": gpt2, "resnet18": resnet18}

if __name__ == "__main__":
    main()
