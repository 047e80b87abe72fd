"""How often `dynadiag numerics` names the guilty operator of a planted fault, how often it calls right programs faults, and its cost.

    PYTHONPATH=. python -m benchmarks.numerics built|held-out|right|verdicts [NAME...]

One process compares all graphs. `verdicts` are those of the right programs, without the search for what ends a difference.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from benchmarks.numerics_programs import faults, right
from dynadiag.numerics import examination
from dynadiag.numerics.examination import examine
from dynadiag.reduce.graphs.candidate import Candidate, candidate_of
from dynadiag.reduce.graphs.setting import Setting
from dynadiag.reduce.worker_process import kernels_kept
from dynadiag.torch_compat.dynamo.compiling import warm_up

Entry = dict[str, Any]


def captured(program: Callable[..., Any], inputs: tuple[Any, ...]) -> tuple[Candidate, Setting]:
    """The graph that Dynamo makes of a program, with its real inputs."""
    found: list[tuple[Any, list[Any]]] = []

    def backend(module: Any, values: list[Any]) -> Any:
        found.append((module, list(values)))
        return module.forward

    torch._dynamo.reset()
    torch.compile(program, backend=backend, fullgraph=True)(*inputs)
    ((module, values),) = found
    grad = any(isinstance(value, torch.Tensor) and value.requires_grad for value in values)
    return candidate_of(module, values), Setting(backend="inductor", grad=grad)


def ask_faults(some: tuple[faults.Fault, ...], names: list[str], costs: Counter[str]) -> None:
    """A row for each fault: whether it was called one, at which operator and line."""
    counts: Counter[str] = Counter()
    for fault in some:
        if names and fault.name not in names:
            continue
        candidate, setting = captured(fault.program, fault.inputs())
        with fault.plant():
            entry = examine(candidate, setting)
        operator = entry.get("operator") or {}
        line = (operator.get("line") or {}).get("code", "")
        is_right = operator.get("operator") == fault.operator and fault.line in line
        note(entry, costs)
        counts.update(faults=1, called=entry["status"] == "fault", right=is_right, ended=is_ended(entry))
        print(f"{fault.kind}, {fault.name}: {entry['status']}, {'right' if is_right else 'WRONG'}: {operator.get('operator')} ({line})")
        print(f"    {operator.get('fault')}; {ended(entry)}", flush=True)
    print(dict(counts))


def ask_right_programs(names: list[str], costs: Counter[str]) -> None:
    """A row for each right program, with the largest share of what rounding explains."""
    counts: Counter[str] = Counter()
    for name, program, inputs in right.programs():
        if names and name not in names:
            continue
        entry = examine(*captured(program, inputs))
        note(entry, costs)
        counts.update({"programs": 1, entry["status"]: 1, "ended": is_ended(entry)})
        ratios = [row["error"] / row["rounding"] for row in entry.get("operators", ()) if row["error"] is not None]
        operator = entry.get("operator") or {}
        print(
            f"{name}: {entry['status']} {entry.get('why_not', '')} {entry.get('outcome', '')}, largest ratio {max(ratios, default=0):.2f}"
        )
        print(f"    first {operator.get('operator')}, {operator.get('fault')}; {ended(entry)}; {entry.get('cpu_s')} CPU s", flush=True)
    print(dict(counts))


def note(entry: Entry, costs: Counter[str]) -> None:
    """Add up what a graph cost."""
    costs.update({name: round(1000 * entry.get(name, 0)) for name in ("compared_cpu_s", "cpu_s")})


def is_ended(entry: Entry) -> bool:
    """Whether something ends the difference."""
    return bool(entry.get("ended_by") or entry.get("eager_kernels"))


def ended(entry: Entry) -> str:
    """What does."""
    found = [item["line"] for item in entry.get("ended_by", ())] + [item["operator"] for item in entry.get("eager_kernels", ())]
    return f"ended by {', '.join(found) or 'nothing'}"


def main(which: str, names: list[str]) -> None:
    """Ask all, and print the cost."""
    torch.set_num_threads(1)
    warm_up("inductor")
    costs: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        stack.enter_context(kernels_kept(Path(folder)))
        stack.enter_context(torch.compiler.config.patch(force_disable_caches=True))
        if which == "verdicts":
            stack.enter_context(mock.patch.object(examination, "_ended", lambda *_: {}))
        if which in ("right", "verdicts"):
            ask_right_programs(names, costs)
        else:
            ask_faults(faults.HELD_OUT if which == "held-out" else faults.BUILT, names, costs)
    print(f"CPU: {costs['compared_cpu_s'] / 1000:.0f} s to compare each graph once; {costs['cpu_s'] / 1000:.0f} s in all")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
