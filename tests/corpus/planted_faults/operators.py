"""Backends with a planted fault that shows itself at `torch.relu`, and a graph to plant it in."""

from __future__ import annotations

import os
import signal
import time

import torch

from tests.corpus.planted_faults.backends import Twice


def relus(gm):
    return [node for node in gm.graph.nodes if node.target is torch.relu]


def raises_at_compile(gm, inputs):
    if relus(gm):
        raise ValueError(f"cannot compile {relus(gm)[0].name} of {len(gm.graph.nodes)} nodes")
    return gm.forward


def raises_at_call(gm, inputs):
    def call(*values):
        if relus(gm):
            raise ValueError(f"bad call with {len(values)} values")
        return gm.forward(*values)

    return call


def crashes_at_compile(gm, inputs):
    if relus(gm):
        os.kill(os.getpid(), signal.SIGSEGV)
    return gm.forward


def aborts_at_call(gm, inputs):
    return (lambda *values: os.abort()) if relus(gm) else gm.forward


def exits(gm, inputs):
    return (lambda *values: os._exit(7)) if relus(gm) else gm.forward


def hangs_at_compile(gm, inputs):
    if relus(gm):
        time.sleep(6000)
    return gm.forward


def replaced(gm, change):
    found = relus(gm)
    for node in found:
        with gm.graph.inserting_after(node):
            new = gm.graph.call_function(change, (node,))
        node.replace_all_uses_with(new, delete_user_cb=lambda user, new=new: user is not new)
    gm.recompile()
    return gm.forward


def wrong(gm, inputs):
    return replaced(gm, lambda y: y + 1)


def slightly_wrong(gm, inputs):
    return replaced(gm, lambda y: y + 1e-9)


def makes_nan(gm, inputs):
    return replaced(gm, lambda y: y / y.abs().clamp(max=0))


def doubled_backwards(y):
    return Twice.apply(y)


def wrong_gradient(gm, inputs):
    return replaced(gm, doubled_backwards)


def wrong_result_and_gradient(gm, inputs):
    """As most wrong operators are: what goes forward is wrong as well."""
    return replaced(gm, lambda x: torch.relu(x) * 1.5)


def two_bugs(gm, inputs):
    """Another bug at `torch.sin`, seen first where both are there and the graph is small: a trap for whoever only looks for errors."""
    if any(node.target is torch.sin for node in gm.graph.nodes) and not any(node.target is torch.cos for node in gm.graph.nodes):
        raise ValueError("an unrelated bug of sin")
    return raises_at_compile(gm, inputs)


def no_compiler_for_small_graphs(gm, inputs):
    """The machine breaks on the way: below ten operators the compiler is missing, the disk full, a package gone, memory used up."""
    operators = sum(node.op.startswith("call") for node in gm.graph.nodes)
    if operators == 9:
        raise FileNotFoundError(2, "No such file or directory", "g++")
    if operators == 8:
        raise OSError(28, "No space left on device")
    if operators == 7:
        raise ImportError("no triton")
    if operators == 6:
        os.kill(os.getpid(), signal.SIGKILL)
    return raises_at_compile(gm, inputs)


def chain(x, w):
    for _ in range(4):
        x = torch.sin(x @ w)
        x = torch.cos(x) + x
    x = torch.relu(x - 0.1)
    for _ in range(4):
        x = torch.tanh(x @ w) * 2
        x = torch.exp(-x)
    return x.sum(), x


def planted(requires_grad=False):
    torch.manual_seed(3)
    gm = torch.fx.symbolic_trace(chain)
    return gm, [torch.randn(6, 8, requires_grad=requires_grad), torch.randn(8, 8, requires_grad=requires_grad)]


def loses_mutations(gm, inputs):
    """The graph runs on copies, so that what it writes into its inputs is lost: when it writes anything in place."""
    if any(str(node.target) == "add_" for node in gm.graph.nodes):
        return lambda *values: gm.forward(*[value.clone() for value in values])
    return gm.forward


def takes_memory(gm, inputs):
    """A buffer of 2 GiB for each relu."""

    def call(*values):
        kept = [torch.empty(2 << 30, dtype=torch.uint8) for _ in relus(gm)]
        return gm.forward(*values) if len(kept) < 100 else None

    return call


def one_element_wrong(gm, inputs):
    """One element is off by 0.5 % of the others' size: too little for a root mean square over many."""

    def change(y):
        y = y.clone()
        y.view(-1)[y.numel() // 2] += 0.005 * y.square().mean().sqrt()
        return y

    return replaced(gm, change)


def another_rounding(gm, inputs):
    return replaced(gm, lambda y: y * (1 + 2**-22))
