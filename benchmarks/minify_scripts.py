"""The parts of `minify_vs_torch.py` that reduce whole scripts: `dynadiag minify` and torch's minifier, each as a command of its own."""

from __future__ import annotations

import argparse
import contextlib
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

ROOT = Path(__file__).resolve().parents[1]
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
RESNET_ONE = (
    RELU
    + """import torchvision

net, x = torchvision.models.resnet18(num_classes=8).eval(), torch.randn(1, 3, 32, 32)
for module in net.modules():
    if hasattr(module, "relu"):
        module.relu = torch.nn.Tanh()
net.layer2.append(Relu())"""
)
SCRIPTS = {"mlp": MLP, "resnet18": RESNET, "resnet18-one": RESNET_ONE}
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
    Fault(name="C++ compile error", backend="inductor", config=CXX_BUG.format("compile_error"), after="aot", models=tuple(SCRIPTS)),
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
    ended = run(command, text, folder)
    path = folder / "out" / "minify.json"
    if not path.exists():
        return {"exit_status": ended.status, "cpu_s": ended.cpu_s, "said": ended.said[-1000:]}
    found = json.loads(path.read_text("utf-8"))
    nodes = [found["size_before"]["nodes"], found["size_after"]["nodes"]]
    proven = f"{found['proven']['reproduced']} of {found['proven']['runs']}"
    figures = {"kind": found["kind"], "nodes": nodes, "queries": found["queries"], "proven": proven, "level": found["level"]}
    figures |= {"largest_size": largest_size(path.parent / found["reproducer"])} if found["reproducer"] else {}
    seconds = {name: found[name] for name in ("ready_cpu_s", "confirm_cpu_s", "search_cpu_s", "search_wall_s")}
    return figures | seconds | {"questions_cpu_s": found["cpu_s"], "cpu_s_of_everything": ended.cpu_s, "wall_s_of_everything": ended.wall_s}


LARGEST = """
import pathlib, sys, torch
text = pathlib.Path(sys.argv[1]).read_text("utf-8")
names = {"__name__": "inputs_alone"}
exec(compile(text[: text.index("def run(function)")], sys.argv[1], "exec"), names)
print(max((size for one in names["make_inputs"]() if isinstance(one, torch.Tensor) for size in one.shape), default=0))
"""


def largest_size(reproducer: Path) -> int | None:
    """The largest dimension of all inputs that a reproducer makes, 0 where they are scalars; None where it makes them otherwise."""
    command = [sys.executable, "-c", LARGEST, str(reproducer)]
    said = subprocess.run(command, cwd=reproducer.parent, capture_output=True, text=True, check=False).stdout
    return int(said) if said.strip().isdigit() else None


def their_names(folder: Path, fault: Fault) -> dict[str, str]:
    """The variables that torch's minifier listens to."""
    return {"TORCHDYNAMO_REPRO_AFTER": fault.after, "TORCHDYNAMO_REPRO_LEVEL": fault.level, "TORCH_COMPILE_DEBUG_DIR": str(folder)}


def their_launcher(text: str, folder: Path, fault: Fault) -> tuple[Path | None, dict[str, Any]]:
    """The script run with torch's minifier asked for: the launcher that it writes, None where it writes none."""
    ended = run([sys.executable, "script.py"], text, folder, names=their_names(folder, fault))
    launcher = next(folder.rglob("minifier_launcher.py"), None)
    figures: dict[str, Any] = {"cpu_s_of_script": ended.cpu_s, "wall_s_of_script": ended.wall_s}
    if launcher is None:
        figures |= {"exit_status": ended.status, "launcher": None, "said": ended.said[-300:]}
    return launcher, figures


def their_search(launcher: Path, folder: Path, fault: Fault, options: argparse.Namespace) -> dict[str, Any]:
    """What the launcher finds, to its end or to the limit. Nodes are those of the smallest graph that it kept, None where it kept none."""
    command = [sys.executable, str(launcher), *(["minify"] if fault.after == "aot" else [])]
    limit_s = options.torch_isolated_limit_s
    ended = run(command, None, folder, names=their_names(folder, fault), limit_s=limit_s)
    sizes = [int(number) for path in folder.rglob("checkpoints/*.py") for number in re.findall(r"\d+", path.name)[:1]]
    nodes = min(sizes, default=None)
    figures = {"exit_status": ended.status, "search_cpu_s": ended.cpu_s, "search_wall_s": ended.wall_s, "nodes": nodes}
    figures |= {"queries": asked(folder, ended.said), "limit_s": limit_s}
    if ended.status == "stopped":
        left = "no graph was kept" if nodes is None else f"{nodes} nodes left"
        figures["why"] = f"not finished after {ended.cpu_s:g} CPU s, {left}"
    return figures | {"said": ended.said[-300:]}


def asked(folder: Path, said: str) -> int | None:
    """Questions that torch's minifier asked: the files that it wrote for them, or else what it says at its end."""
    written = sum(1 for _ in folder.rglob("isolate/*.py"))
    told = re.search(r"Made (\d+) queries", said)
    return written or (int(told[1]) if told else None)


class Ended(NamedTuple):
    """How a command ended: its exit status, or "stopped" when it used more CPU time than its limit. `cpu_s` counts all its children."""

    status: int | str
    cpu_s: float
    wall_s: float
    said: str


def run(
    command: list[str], text: str | None, folder: Path, *, names: Mapping[str, str] | None = None, limit_s: float | None = None
) -> Ended:
    """Run a command in a folder, where `text` is `script.py`, with the variables `names`, in one thread and with a cache of its own."""
    folder.mkdir(exist_ok=True)
    if text is not None:
        (folder / "script.py").write_text(text, "utf-8")
    path = os.pathsep.join([str(ROOT), str(ROOT / "cli"), os.environ.get("PYTHONPATH", "")])
    own = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    own["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "cache")
    before, began_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    with (folder / "said").open("wb") as file:
        child = subprocess.Popen(
            command, cwd=folder, env=os.environ | own | (names or {}), stdout=file, stderr=file, start_new_session=True
        )
        spent_s: list[float] = []
        threading.Thread(target=_watch, args=(child, limit_s, spent_s), daemon=True).start()
        status: int | str = child.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    after, wall_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - began_s
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    said = (folder / "said").read_text("utf-8", "replace")
    # A process that is killed takes along what its own children had used.
    return Ended("stopped" if spent_s else status, round(max(cpu_s, *spent_s, 0.0), 1), round(wall_s, 1), said)


def _watch(child: subprocess.Popen[bytes], limit_s: float | None, spent_s: list[float]) -> None:
    """End the process when it and all that it started have used their CPU time. SIGINT may be ignored: it is in a shell's background."""
    while limit_s is not None and child.poll() is None:
        used_s = session_cpu_s(child.pid)
        if used_s > limit_s:
            spent_s.append(used_s)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            return
        time.sleep(1.0)


def session_cpu_s(session: int) -> float:
    """CPU seconds of all processes of a session, those that ended and were waited for among them (Linux, `man 5 proc_pid_stat`)."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            fields = path.read_text("utf-8", "replace").rpartition(")")[2].split()
            ticks += sum(int(one) for one in fields[11:15]) if int(fields[3]) == session else 0
    return ticks / os.sysconf("SC_CLK_TCK")
