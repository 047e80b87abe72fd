"""Parity on CUDA: `explain --parity` and `dynadiag parity` on four small programs of known truth, all at the same time.

    python benchmarks/parity_cuda.py [--device cuda] [--only NAME] [--json FILE]

Prints one line a program and command: expected | found | ok, and exits with 1 when one is not as expected. A user-defined Triton kernel
that writes its input, and a bf16 training step, are right; an operator that writes its input without declaring it, and an output of a
CUDA graph that the next call overwrites, are wrong. `dynadiag parity` replays on the CPU: it sees the operator, not the CUDA graph, and
says that a Triton kernel stays in its process. `--device cpu` tries the two programs that need no GPU, with aot_eager.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HEAD = """
import sys

import torch

DEVICE = sys.argv[1] if len(sys.argv) > 1 else "cpu"
BACKEND = "inductor" if DEVICE == "cuda" else "aot_eager"
"""

TRITON = """
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < count) * 2, mask=at < count)


def scaled(x, y):
    scale_kernel[(triton.cdiv(x.numel(), 128),)](x, x.numel(), BLOCK=128)
    return x + y


if __name__ == "__main__":
    compiled = torch.compile(scaled, backend=BACKEND)
    for _ in range(3):
        compiled(torch.randn(1000, device=DEVICE), torch.randn(1000, device=DEVICE))
"""

UNDECLARED = """
@torch.library.custom_op("parity_cuda::bump", mutates_args=())
def bump(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x * 2


@bump.register_fake
def _(x):
    return torch.empty_like(x)


def bumped(x):
    y = torch.ops.parity_cuda.bump(x)
    return x * 3, y


if __name__ == "__main__":
    # aot_eager leaves out what nobody uses, and keeps the order of the rest: inductor's own order hides or shows the write.
    compiled = torch.compile(lambda x: bumped(x)[0], backend="aot_eager")
    for _ in range(3):
        compiled(torch.randn(64, device=DEVICE))
"""

OVERWRITTEN = """
def doubled(x):
    return x * 2


if __name__ == "__main__":
    compiled = torch.compile(doubled, mode="reduce-overhead")
    kept = None
    for _ in range(6):
        kept, before = compiled(torch.randn(64, device=DEVICE)), kept
    torch.cuda.synchronize()
"""

STEP = """
if __name__ == "__main__":
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.LayerNorm(128), torch.nn.Linear(128, 16)).to(DEVICE)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    compiled = torch.compile(net, backend=BACKEND)
    for _ in range(3):
        x, target = torch.randn(32, 64, device=DEVICE), torch.randint(16, (32,), device=DEVICE)
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(compiled(x).float(), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@dataclass(frozen=True)
class Program:
    """One program, the codes that its real calls and its replay must give, and on which devices it runs."""

    name: str
    source: str
    happened: frozenset[str]
    could_happen: frozenset[str]
    replayed: bool = True
    gradients: bool = False
    devices: tuple[str, ...] = ("cuda",)


PROGRAMS = (
    Program("triton kernel writes its input", TRITON, frozenset(), frozenset(), replayed=False),
    Program("operator with an undeclared write", UNDECLARED, frozenset({"DM40"}), frozenset({"DM34"}), devices=("cuda", "cpu")),
    Program("output of a CUDA graph overwritten", OVERWRITTEN, frozenset({"DM45"}), frozenset()),
    Program("bf16 training step", STEP, frozenset(), frozenset(), gradients=True, devices=("cuda", "cpu")),
)
PARITY_CODES = ("DM40", "DM41", "DM42", "DM43", "DM44", "DM45", "DM46")


def main() -> int:
    """Run the programs beside each other, then their replays; 1 when anything is not as expected."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--only", help="part of a program's name")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    programs = [one for one in PROGRAMS if options.device in one.devices and (options.only is None or options.only in one.name)]
    with tempfile.TemporaryDirectory(prefix="parity-cuda-") as folder:
        places = [_written(one, Path(folder) / str(number)) for number, one in enumerate(programs)]
        said = _all([_explain(place, options.device) for place in places])
        replayed = _all([_replay(place) for place in places])
        rows = [
            row
            for one, place, explained, replay in zip(programs, places, said, replayed, strict=True)
            for row in (_happened(one, place, explained), _could_happen(one, place, replay))
        ]
    for row in rows:
        print(
            f"{row['program']:36} {row['command']:16} expected {row['expected']} | found {row['found']} | {'ok' if row['ok'] else 'NOT OK'}"
        )
        if not row["ok"]:
            print(f"    {row['said']}")
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    return 0 if rows and all(row["ok"] for row in rows) else 1


def _written(program: Program, folder: Path) -> Path:
    folder.mkdir()
    (folder / "program.py").write_text(HEAD + program.source, encoding="utf-8")
    return folder


def _explain(place: Path, device: str) -> list[str]:
    options = ["--parity", "--parity-calls", "6", "--no-pictures", "--no-probe", "--out", str(place / "run")]
    return ["explain", *options, str(place / "program.py"), device]


def _replay(place: Path) -> list[str]:
    return ["parity", "--load", str(place / "program.py"), "--budget", "150", "--timeout", "30", str(place / "run")]


def _all(commands: list[list[str]]) -> list[str]:
    """Run them at the same time; what each said on stderr and stdout."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "dynadiag", *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        )
        for command in commands
    ]
    return [child.communicate()[0] for child in started]


def _read(file: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found


def _happened(program: Program, place: Path, said: str) -> dict[str, Any]:
    report = _read(place / "run" / "report.json")
    parity = report.get("parity") or {}
    codes = {one["code"] for one in report.get("findings", ()) if one["code"] in PARITY_CODES}
    compared = parity.get("calls_equal", 0) + parity.get("calls_different", 0)
    gradients = parity.get("gradients_equal", 0) + parity.get("gradients_different", 0)
    found = f"{_codes(codes)}, {compared} calls, {gradients} backwards"
    expected = f"{_codes(program.happened)}, calls compared{', backwards compared' if program.gradients else ''}"
    ok = codes == program.happened and compared > 0 and (gradients > 0 or not program.gradients)
    return _row(program, "explain --parity", expected, found, ok, f"{parity.get('not_compared')} {said[-1500:]}")


def _could_happen(program: Program, place: Path, said: str) -> dict[str, Any]:
    result = _read(place / "run" / "parity.json")
    codes = {one["code"] for one in result.get("findings", ())}
    compared = (result.get("summary") or {}).get("compared", 0)
    ok = bool(result) and codes == program.could_happen and (compared > 0) == program.replayed
    expected = f"{_codes(program.could_happen)}, {'replayed' if program.replayed else 'not replayed'}"
    return _row(program, "parity", expected, f"{_codes(codes)}, {compared} graphs replayed", ok, said[-1500:])


def _codes(codes: set[str] | frozenset[str]) -> str:
    return " ".join(sorted(codes)) or "nothing"


def _row(program: Program, command: str, expected: str, found: str, ok: bool, said: str) -> dict[str, Any]:
    return {"program": program.name, "command": command, "expected": expected, "found": found, "ok": ok, "said": said}


if __name__ == "__main__":
    sys.exit(main())
