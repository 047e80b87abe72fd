"""How many right programs `explain --parity` calls wrong, and how many wrong ones it finds on the right line.

    python benchmarks/whole_calls.py [--held-out] [NAME ...]
    python benchmarks/whole_calls.py --cost [NAME ...]

The first runs the programs of `whole_call_programs.py` (or those of `whole_call_held_out.py`) under the recorder, all in this process, and
prints a row for each. The second runs six of them in processes of their own, alone and under `dynadiag explain --parity`, and prints the
CPU seconds of both with all their children.
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import torch
import whole_call_held_out
import whole_call_programs

import dynadiag
from dynadiag.model import codes
from dynadiag.passes.find_parity import find_parity
from dynadiag.passes.find_whole_calls import find_whole_calls
from dynadiag.trace import load

_TITLES = {code for code in codes.TABLE if code.startswith("DM4")}


def look_at(program: Callable[[], None]) -> tuple[list[tuple[str, str]], str, float]:
    """What was found of a program (code and line), what was compared, and the CPU seconds that it took."""
    torch.compiler.reset()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        with dynadiag.observe(f"{folder}/run", parity_calls=3), contextlib.redirect_stdout(io.StringIO()):
            program()
        took = time.process_time() - began
        run = load(f"{folder}/run")
        findings = [*find_whole_calls(run).findings, *find_parity(run).findings]
        verdicts = [call.verdict for call in run.whole_calls]
        whys = {call.why for call in run.whole_calls if call.why} | {item.text[-300:] for item in run.problems if item.kind == "recorder"}
    told = ", ".join(f"{verdicts.count(name)} {name}" for name in ("equal", "rounding", "different", "not_compared"))
    lines = [(item.code, (item.where.code or "") if item.where else "") for item in findings if item.severity == "error"]
    return lines, told + "".join(f" [{why}]" for why in whys), took


_COSTS = ("mlp_trains", "transformer_with_dropout", "random_augmentation", "graph_break_print", "changing_sizes", "convolution_net")


def cpu_seconds(command: list[str]) -> float:
    """What a command and its children took."""
    before = os.times()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def print_costs(names: list[str]) -> None:
    """A row for each program: alone, under --parity, and how often the first three seconds more than that fits into the second."""
    for name in names:
        program = [__file__, "--run", name]
        with tempfile.TemporaryDirectory() as folder:
            cpu_seconds([sys.executable, *program])  # now torch's caches are as warm for the one as for the other
            alone = cpu_seconds([sys.executable, *program])
            explain = [sys.executable, "-m", "dynadiag", "explain", "--parity", "--out", f"{folder}/run"]
            compared = cpu_seconds([*explain, *program])
        print(f"| {name} | {alone:.1f} | {compared:.1f} | {(compared - 3) / alone:.1f} |", flush=True)


def main(names: list[str]) -> None:
    """Look at all programs or at those that are named, print costs, or run one program alone."""
    if names[:1] == ["--run"]:
        torch.manual_seed(0)
        whole_call_programs.PROGRAMS.right[names[1]]()
    elif names[:1] == ["--cost"]:
        print_costs(names[1:] or list(_COSTS))
    else:
        look_at_all(names)


def look_at_all(names: list[str]) -> None:
    """Look at all programs, or at those that are named."""
    programs = (whole_call_held_out if "--held-out" in names else whole_call_programs).PROGRAMS
    names = [name for name in names if name != "--held-out"]
    right, wrong = programs.right, programs.wrong
    called_wrong, found = 0, 0
    tried = [name for name in (*right, *wrong) if not names or name in names]
    for name in tried:
        program, expected = wrong[name] if name in wrong else (right[name], "")
        lines, told, took = look_at(program)
        if name in wrong:
            good = any(expected in line for _, line in lines)
            found += good
        else:
            good = not lines
            called_wrong += not good
        print(f"{'ok  ' if good else 'BAD '} {name}: {told}; {lines}; {took:.1f} s", flush=True)
    print(f"{called_wrong} of {sum(name in right for name in tried)} right programs called wrong")
    print(f"{found} of {sum(name in wrong for name in tried)} wrong programs found on the line")


if __name__ == "__main__":
    main(sys.argv[1:])
