#!/usr/bin/env bash
# torch 2.15.0, jaxtyping 0.3.11, beartype 0.23.1.
# Guess: the checks cost one break before the function, or none, since shapes are known when it is traced.
# Seen:  the isinstance check of every annotated tensor breaks the graph: 2 breaks with one of them, 5 with two arguments and the result. The
#        environment variable JAXTYPING_DISABLE=1 ends them all without a change of the program.
# Met by: research code that annotates every layer: dozens of breaks that fullgraph=True then refuses.
. "$(dirname "$0")/common.sh"
install torch==2.15.0 jaxtyping==0.3.11 beartype==0.23.1 numpy==2.4.6
cat >"$work/breaks.py" <<'PROGRAM'
import torch
from beartype import beartype
from jaxtyping import Float, jaxtyped
from torch import Tensor
from torch._dynamo.utils import counters


@jaxtyped(typechecker=beartype)
def single(x: Float[Tensor, "b d"]) -> Tensor:
    return x + 1


@jaxtyped(typechecker=beartype)
def add(x: Float[Tensor, "b d"], y: Float[Tensor, "b d"]) -> Float[Tensor, "b d"]:
    return x + y


x = torch.ones(2, 3)
seen = []
for function, arguments in ((single, (x,)), (add, (x, x))):
    torch._dynamo.reset()
    counters.clear()
    torch.compile(function, backend="eager")(*arguments)
    seen.append(sum(counters["graph_break"].values()))
print("breaks:", *seen)
PROGRAM
cd "$work"
on=$("$python" -W ignore breaks.py)
off=$(JAXTYPING_DISABLE=1 "$python" -W ignore breaks.py)
echo "one annotated tensor, three: $on; with JAXTYPING_DISABLE=1: $off"
[ "$on" = "breaks: 2 5" ]
[ "$off" = "breaks: 0 0" ]
