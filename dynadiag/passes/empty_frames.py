"""Frames in which Dynamo found nothing to compile: which of them somebody wanted compiled, and how to say so.

Dynamo also tries the helpers of a compiled function, and the functions that go on after a graph break (`torch/_dynamo/convert_frame.py`,
`SkipFrame` of "No ops traced" in `symbolic_convert.py`, 2.15). Those hold no tensor work, so that nothing is lost by leaving them.
"""

from __future__ import annotations

import re

from dynadiag.model.run import Problem, Run
from dynadiag.passes.places import source_function

_FUNCTION = re.compile(r"<(?:bound method|function|built-in function|class|method) '?(?P<name>[\w.<>]+?)'?(?: (?:at 0x|of )|>)")
_ENTRIES = ("", ".forward", ".__call__")
_TRACED = "Dynamo decided to skip the frame while tracing: "


def was_compiled(problem: Problem, run: Run) -> bool:
    """True if the frame of a `no_graph` problem is the very function or module that `torch.compile` was given in that process."""
    name = _frame_name(problem)
    if source_function(name.rpartition(".")[2]) != name.rpartition(".")[2]:
        return False
    targets = {call.target for call in run.compile_calls if call.process == problem.process}
    return any(f"{target}{entry}" == name for target in targets for entry in _ENTRIES)


def _frame_name(problem: Problem) -> str:
    return problem.text.partition(": ")[0]


def empty_reason(problem: Problem) -> str:
    """Why the frame was left, in one sentence; torch's own words where they say something else than that there was nothing in it."""
    name, _, said = problem.text.partition(": ")
    if "No ops traced" in said or "no tensor-related objects" in said:
        return f"Dynamo found no tensor operation to compile in `{name}`, which runs as plain Python"
    first = next((line.strip() for line in said.removeprefix(_TRACED).splitlines() if line.strip()), "torch recorded no reason")
    return f"`{name}` was left eager: {first}"


def function_in(text: str | None) -> str | None:
    """The name in a function's repr (`<function Net.helper at 0x7f...>`), without its address, which differs from run to run."""
    match = _FUNCTION.search(text or "")
    return match["name"] if match else None
