"""`dynadiag minify` end to end on a GPU: a Triton compile error, a device-side assert, a wrong bfloat16 result; proven in fresh processes.

    python benchmarks/minify_cuda.py [--only NAME,...] [--timeout-s 140] [--full] [--device cuda] [--json FILE]

Three scripts are reduced at the same time, each by a command of its own. Prints one JSON line a case: exit status, nodes before and after,
queries, in how many of 3 fresh processes the file failed in the same way, CPU seconds of the questions and of everything. `--full` also
looks for the guilty pass and runs the table of layers. `--device cpu` does the same with the C++ code of inductor.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
NETWORK = """import torch

torch.manual_seed(0)
DEVICE, DTYPE = {device!r}, torch.{dtype}


def half(weights, x):
    for weight in weights:
        x = torch.nn.functional.layer_norm(torch.tanh(x @ weight), (32,))
    return x


first, second = ([torch.randn(32, 32, device=DEVICE, dtype=DTYPE) / 6 for _ in range(4)] for _ in range(2))
x = torch.randn(8, 32, device=DEVICE, dtype=DTYPE)
"""
PLANTED = """

import torch._inductor.config

torch._inductor.config.{area}.inject_relu_bug_TESTING_ONLY = "{bug}"


@torch.compile
def network(x):
    return half(second, torch.relu(half(first, x)))


with torch.no_grad():
    print(float(network(x).float().sum()))
"""
OUT_OF_RANGE = """

def beyond_the_table(gm, inputs):
    \"\"\"A backend with a bug: it looks up one table too far.\"\"\"
    from torch._inductor.compile_fx import compile_fx

    for node in gm.graph.nodes:
        if node.op == "call_function" and node.target is torch.gather:
            table, dimension, index = node.args
            with gm.graph.inserting_before(node):
                node.args = (table, dimension, gm.graph.call_method("add", (index, 32)))
    gm.recompile()
    return compile_fx(gm, inputs)


@torch.compile(backend=beyond_the_table)
def network(x, index):
    return half(second, torch.gather(half(first, x), 1, index))


with torch.no_grad():
    result = network(x, torch.randint(0, 32, (8, 32), device=DEVICE))
print(float(result.float().sum()))
"""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A script that fails, and what `minify` is told about it."""

    name: str
    script: str
    dtype: str = "float32"
    options: tuple[str, ...] = ()


CASES = (
    Case(name="compile error of the generated code", script=NETWORK + PLANTED.replace("{bug}", "compile_error")),
    Case(name="index out of range on the device", script=NETWORK + OUT_OF_RANGE),
    Case(
        name="wrong bfloat16 result",
        script=NETWORK + PLANTED.replace("{bug}", "accuracy"),
        dtype="bfloat16",
        options=("--kind", "wrong_result"),
    ),
)


def main() -> None:
    """Reduce all cases at the same time and print one line each."""
    options = parse()
    chosen = [case for case in CASES if not options.only or any(part in case.name for part in options.only.split(","))]
    rows: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="dynadiag-minify-cuda-") as folder:
        threads = [
            threading.Thread(target=lambda case=case, at=Path(folder) / str(number): rows.update({case.name: reduced(case, at, options)}))
            for number, case in enumerate(chosen)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if options.json:
        Path(options.json).write_text(json.dumps(list(rows.values()), indent=1) + "\n", "utf-8")
    sys.exit(0 if all(row.get("proven") == "3 of 3" for row in rows.values()) else 1)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="parts of the names of cases")
    parser.add_argument("--timeout-s", type=float, default=140.0)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--json")
    return parser.parse_args()


def reduced(case: Case, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The row of one case: the command is run in `folder` and ended when its time is over."""
    folder.mkdir()
    area = "triton" if options.device == "cuda" else "cpp"
    text = case.script.replace("{device!r}", repr(options.device)).replace("{dtype}", case.dtype).replace("{area}", area)
    (folder / "failing.py").write_text(text, "utf-8")
    quick = () if options.full else ("--no-bisect", "--no-ablation")
    command = [sys.executable, "-m", "dynadiag", "minify", "--out", "out", *case.options, *quick, "failing.py"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "cli"), os.environ.get("PYTHONPATH", "")])}
    began = time.monotonic()
    with (folder / "said").open("wb") as said:
        child = subprocess.Popen(command, cwd=folder, env=environment, stdout=said, stderr=said, process_group=0)
        late = threading.Timer(options.timeout_s, lambda: os.kill(child.pid, signal.SIGTERM))
        late.start()
        _, status, usage = os.wait4(child.pid, 0)
        late.cancel()
    row = {"case": case.name, "device": options.device, "exit_status": os.waitstatus_to_exitcode(status)}
    row |= {"wall_s": round(time.monotonic() - began, 1), "cpu_s_of_everything": round(usage.ru_utime + usage.ru_stime, 1)}
    row |= found(folder / "out" / "minify.json")
    if row["exit_status"] != 0:
        row["said"] = (folder / "said").read_text("utf-8", "replace")[-3000:]
    print(json.dumps(row), flush=True)
    return row


def found(path: Path) -> dict[str, Any]:
    """What `minify.json` says; nothing when there is none."""
    if not path.exists():
        return {}
    result = json.loads(path.read_text("utf-8"))
    return {
        "kind": result["kind"],
        "nodes": [result["size_before"]["nodes"], result["size_after"]["nodes"]],
        "queries": result["queries"],
        "proven": f"{result['proven']['reproduced']} of {result['proven']['runs']}",
        "cpu_s_of_questions": result["cpu_s"],
        "cpu_s_of_search": result["search_cpu_s"],
        "guilty": {name: result["guilty"][name] for name in ("layer", "pass", "config")},
        "level": result["level"],
        "other_failures": result["other_failures"],
        "versions": result["versions"],
    }


if __name__ == "__main__":
    main()
