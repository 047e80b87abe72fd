"""AOTAutograd run on a rebuilt graph, to hear what it says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.fx import GraphModule


def aot_refusal(module: GraphModule, inputs: Sequence[Any]) -> str | None:
    """What AOTAutograd raises when it traces the graph for a back end that keeps input mutations; None when it takes it.

    The back end is that of `aot_eager` (torch/_dynamo/backends/debugging.py, 2.11 and 2.15): it compiles nothing.
    """
    from torch._dynamo.backends.common import aot_autograd
    from torch._dynamo.backends.debugging import boxed_nop
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    backend = aot_autograd(fw_compiler=boxed_nop, partition_fn=min_cut_rematerialization_partition, keep_inference_input_mutations=True)
    try:
        backend(module, list(inputs))
    except Exception as error:  # noqa: BLE001 - the border around a graph from a log
        return f"{type(error).__name__}: {str(error).strip()[:2000]}"
    return None
