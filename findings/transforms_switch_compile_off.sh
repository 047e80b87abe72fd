#!/usr/bin/env bash
# torch 2.15.0.
# Guess: torch.func.vmap, grad, jvp or jacrev of a compiled module run its compiled code, or raise.
# Seen:  with backend "inductor", "aot_eager" or a function they run it in eager: nothing compiled is called, no graph is made, there is no
#        warning, and the results are right. With backend="eager" there is a graph, so that backend does not show it. The same holds inside of
#        torch.autograd.forward_ad.dual_level(). torch.compile around the transform compiles; so does torch.autograd.functional.jacobian.
# Met by: physics-informed losses, per-sample gradients and Jacobians of a model that was compiled first: compile brings nothing there.
. "$(dirname "$0")/common.sh"
install torch==2.15.0
run_program <<'PROGRAM'
import torch
from torch._dynamo.utils import counters
from torch.autograd import forward_ad, functional
from torch.func import grad, jacrev, jvp, vmap

calls = []


def count(graph, inputs):
    def run(*arguments):
        calls.append(graph)
        return graph.forward(*arguments)

    return run


def dual(function):
    with forward_ad.dual_level():
        return function(forward_ad.make_dual(x, x))


x = torch.ones(4, 2)
layer = torch.nn.Linear(2, 1)
WAYS = {
    "plain": lambda f: f(x),
    "vmap": lambda f: vmap(f)(x),
    "grad": lambda f: grad(lambda x: f(x).sum())(x),
    "jvp": lambda f: jvp(f, (x,), (x,)),
    "jacrev": lambda f: jacrev(f)(x),
    "dual numbers": dual,
    "autograd.functional.jacobian": lambda f: functional.jacobian(f, x),
}
seen = {}
for name, use in WAYS.items():
    torch._dynamo.reset()
    calls.clear()
    use(torch.compile(layer, backend=count))
    seen[name] = len(calls)
graphs = {}
for backend in ("eager", "aot_eager", "inductor"):
    torch._dynamo.reset()
    counters.clear()
    vmap(torch.compile(layer, backend=backend))(x)
    graphs[backend] = counters["stats"].get("unique_graphs", 0)
torch._dynamo.reset()
calls.clear()
torch.compile(lambda x: vmap(layer)(x), backend=count)(x)
print("graphs of vmap:", graphs)
assert graphs == {"eager": 1, "aot_eager": 0, "inductor": 0}
print("compiled calls:", seen, "compile around vmap:", len(calls))
assert seen == {name: int(name in ("plain", "autograd.functional.jacobian")) for name in WAYS}
assert len(calls) == 1
PROGRAM
