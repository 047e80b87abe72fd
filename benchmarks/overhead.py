"""What recording costs: three real models, paired runs with and without it, CPU time of compiling and of a steady step, and our own share.

    python benchmarks/overhead.py [--pairs 5] [--models bert,resnet18,gpt2] [--backend inductor] [--json FILE]

Each pair is two fresh processes in random order with caches of their own. Ratios are with/without, with a 95 % bootstrap interval over
pairs. The machine need not be quiet: CPU seconds are compared (child compilers included), not wall time; with `perf` also instructions in
user space, which barely depend on the load.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

MODELS = ("bert", "resnet18", "gpt2")
TARGETS = {"compile": 1.05, "steady": 1.01, "own_share": 0.02}
STEADY_STEPS = 30
_BOOTSTRAPS = 4000


def main() -> None:
    """Run the pairs and print one line a model and figure."""
    options = parse()
    if options.worker:
        work(options.worker, options.backend)
        return
    results = {}
    for model in options.models.split(","):
        results[model] = compare(model, options.pairs, options.backend)
        print_model(model, results[model])
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=1) + "\n", "utf-8")


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--json")
    parser.add_argument("--worker", choices=MODELS, help=argparse.SUPPRESS)
    return parser.parse_args()


def compare(model: str, pairs: int, backend: str) -> dict[str, object]:
    """Pairs of runs of one model; each pair in random order."""
    order = random.Random(0)
    plain, recorded = [], []
    for _ in range(pairs):
        arms = [(plain, False), (recorded, True)]
        order.shuffle(arms)
        for samples, recording in arms:
            samples.append(run(model, backend, recording=recording))
    figures: dict[str, object] = {name: ratio(plain, recorded, name) for name in ("compile", "steady", "instructions")}
    figures["own_share"] = statistics.median(run_["own_s"] / run_["compile"] for run_ in recorded)
    figures["log_bytes"] = statistics.median(run_["log_bytes"] for run_ in recorded)
    figures["pairs"] = pairs
    return figures


def run(model: str, backend: str, *, recording: bool) -> dict[str, float]:
    """One process; CPU seconds of its compiling and of one steady step, as it measured them."""
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, TORCHINDUCTOR_CACHE_DIR=f"{folder}/cache", OMP_NUM_THREADS="1", TORCHINDUCTOR_COMPILE_THREADS="1")
        out = f"{folder}/run"
        command = [sys.executable, __file__, "--worker", model, "--backend", backend]
        if recording:
            command = [sys.executable, "-c", _RECORD, out, *command[1:]]
        command, counts = under_perf(command, folder)
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        measured["log_bytes"] = sum(log.stat().st_size for log in Path(out).glob("*.log")) if recording else 0
        return measured | read_counts(counts)


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


def ratio(plain: list[dict[str, float]], recorded: list[dict[str, float]], name: str) -> dict[str, float] | None:
    """The geometric mean of with/without over pairs, and its 95 % interval from resampled pairs; None when it was not measured."""
    pairs = zip(plain, recorded, strict=True)
    logs = [math.log(with_[name] / without[name]) for without, with_ in pairs if name in without and name in with_]
    if not logs:
        return None
    pick = random.Random(1)
    means = sorted(statistics.fmean(pick.choices(logs, k=len(logs))) for _ in range(_BOOTSTRAPS))
    low, high = means[int(0.025 * _BOOTSTRAPS)], means[int(0.975 * _BOOTSTRAPS) - 1]
    return {"ratio": math.exp(statistics.fmean(logs)), "low": math.exp(low), "high": math.exp(high)}


def print_model(model: str, figures: dict[str, object]) -> None:
    """One line a figure, with its target."""
    for name in ("compile", "steady", "instructions"):
        found = figures[name]
        if isinstance(found, dict):
            target = f"target <= {TARGETS[name]:.2f}" if name in TARGETS else "whole process"
            print(f"{model:9} {name:12} x{found['ratio']:.4f}  [{found['low']:.4f}, {found['high']:.4f}]  {target}")
        else:
            print(f"{model:9} {name:12} not measured here", flush=True)
    share, size = figures["own_share"], figures["log_bytes"]
    print(f"{model:9} own share    {share:.4f} of compile CPU time  target <= {TARGETS['own_share']:.2f}; log {size:.0f} bytes")


def work(model: str, backend: str) -> None:
    """In the measured process: compile one training step, then steady steps; prints CPU seconds as JSON."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    network, loss_of = BUILDERS[model]()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    compiled = torch.compile(network, backend=backend)
    own = own_time()

    def step() -> None:
        loss_of(compiled).backward()
        optimizer.step()
        optimizer.zero_grad()

    import torch._dynamo
    import torch._inductor.compile_fx

    begin = cpu_s()
    step()
    compile_s = cpu_s() - begin
    own_s = own()
    for _ in range(3):
        step()
    begin = cpu_s()
    for _ in range(STEADY_STEPS):
        step()
    steady_s = (cpu_s() - begin) / STEADY_STEPS
    print(json.dumps({"compile": compile_s, "steady": steady_s, "own_s": own_s}))


def cpu_s() -> float:
    """CPU seconds of this process and of the compilers that it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def own_time():
    """A function that gives the CPU seconds spent in our own code so far: formatting and writing records, and every hook."""
    import time

    inside = sys.modules.get("dynadiag.record.inside")
    if inside is None:
        return lambda: 0.0
    spent = {"s": 0.0, "depth": 0}

    def timed(function):
        def run_timed(*args, **kwargs):
            spent["depth"] += 1
            begin = time.thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                spent["depth"] -= 1
                if spent["depth"] == 0:
                    spent["s"] += time.thread_time() - begin

        return run_timed

    recorder = inside._active
    recorder.on_record = timed(recorder.on_record)
    recorder.artifact = timed(recorder.artifact)
    for handler in sys.modules["torch._logging._internal"].trace_log.handlers:
        if hasattr(handler, "on_record"):
            handler.on_record = recorder.on_record
    graphs = sys.modules["dynadiag.torch_compat.graphs"]
    graphs._describe = timed(graphs._describe)
    return lambda: spent["s"]


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
