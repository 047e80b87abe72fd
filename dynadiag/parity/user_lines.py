"""The user line of a write or of an output, from the stacks that the graph's nodes carry."""

from __future__ import annotations

import re
from typing import Any

from torch.fx import GraphModule, Node

from dynadiag.fx.mutation_records import InputMutation
from dynadiag.torch_compat.pytree import tree_leaves

_FRAME = re.compile(r'File "(?P<file>[^"]*)", line (?P<line>\d+), in (?P<function>.*)\n\s*(?P<code>.*)')
Line = dict[str, Any]


def input_line(mutation: InputMutation) -> Line | None:
    """The line of the last op that writes the input."""
    for site in reversed(mutation.sites):
        if site.stack:
            file, line, function, code = site.stack[-1]
            return {"file": file, "line": line, "function": function, "code": code.strip()}
    return None


def output_line(module: GraphModule, position: int) -> Line | None:
    """The line of the op that makes the how-many-th output."""
    (end,) = (node for node in module.graph.nodes if node.op == "output")
    leaves = tree_leaves(end.args[0])
    made = leaves[position] if position < len(leaves) else None
    trace = made.meta.get("stack_trace") if isinstance(made, Node) else None
    found = list(_FRAME.finditer(trace)) if isinstance(trace, str) else []
    if not found:
        return None
    frame = found[-1]
    return {"file": frame["file"], "line": int(frame["line"]), "function": frame["function"].strip(), "code": frame["code"].strip()}
