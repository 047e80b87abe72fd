"""Which inputs eager writes in one call and on which line, also where an operator does not say so."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from dynadiag.compare.aliasing import is_plain, snapshot
from dynadiag.compare.live.execution import Execution, How, execute
from dynadiag.compare.live.graph_copy import GraphCopy
from dynadiag.compare.live.regions import Expectation
from dynadiag.torch_compat.dispatch.live_call import aside, declares_writes, is_torchs_own, is_triton

_MOST_SITES = 5


def writes_of(copy: GraphCopy, expected: Expectation) -> list[dict[str, Any]]:
    """Every write of an input, as plain data; one that an operator does not declare is found by the values, in one more call."""
    with aside():
        again = execute(copy, snapshot(expected.pristine), How(watch_values=True)) if expected.eager is not None else Execution()
    declared = expected.eager.written if expected.eager is not None else {}
    through = expected.sharing()
    undeclared = [at for at in again.written if at not in declared and not (at in through and through & declared.keys())]
    return [
        {
            "input": at,
            "name": copy.names[at],
            "declared": is_triton(node.target) or is_torchs_own(node.target) or (at in declared and declares_writes(node.target)),
            **place(node),
        }
        for at in sorted([*declared, *undeclared])
        for node in (declared.get(at) or again.written[at])[-_MOST_SITES:]
    ]


def hidden_writes(copy: GraphCopy, expected: Expectation) -> list[dict[str, Any]]:
    """Those that an operator of the program made without declaring them. Nothing is called again where no input shows one."""
    secretive = {node.name for node in copy.graph.nodes if node.op == "call_function" and not declares_writes(node.target)}
    if not secretive or expected.eager is None:
        return []
    changed = {
        at
        for at, (was, now) in enumerate(zip(expected.pristine, expected.inputs, strict=True))
        if is_plain(was) and is_plain(now) and not torch.equal(was, now)
    }
    # Of inputs that share memory nothing tells which one was written through.
    alone = changed - expected.sharing()
    found = writes_of(copy, expected) if alone else []
    return [record for record in found if record["input"] in alone and record["node"] in secretive]


def place(node: Node | None) -> dict[str, Any]:
    """The node's name, and its stack as torch wrote it, cut to its last lines."""
    if node is None:
        return {"node": None, "op": None, "stack": None}
    stack = node.meta.get("stack_trace")
    return {"node": node.name, "op": str(getattr(node.target, "__name__", node.target)), "stack": stack[-4000:] if stack else None}
