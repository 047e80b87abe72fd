"""What a step has to do, whatever compiles it: operations, bytes, and what is kept for backward. Asked after all timing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dynadiag.bench.inside.layout import storage_of
from dynadiag.bench.inside.patching import CompileSwitch
from dynadiag.bench.inside.reference import eager_stance
from dynadiag.bench.inside.state import find_state
from dynadiag.bench.inside.steps import Step
from dynadiag.torch_compat.bench_graphs import StepWork, counting_backend

_KINDS = 20


def step_work(step: Step, switch: CompileSwitch) -> dict[str, Any]:
    """Operations of one uncompiled step, and of the AOT graphs of the same step with their bytes (static shapes, nothing recomputed)."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with eager_stance(False), _no_fused_layers(), FlopCounterMode(display=False) as counter:
        step.run(step.original)
    torch.compiler.reset()
    work = StepWork()
    with torch.compiler.set_stance("default"), _no_fused_layers():
        function = switch.original(step.original, backend=counting_backend(work), dynamic=False)
        step.run(function)
        work.forget_runs()
        step.run(function)
    torch.compiler.reset()
    graphs = [{"flops": graph.flops, "bytes": graph.bytes, "runs": graph.runs} for graph in work.graphs if graph.runs]
    matmul: Any = torch.backends.cuda.matmul
    flags = {"tf32_matmul": bool(matmul.allow_tf32), "tf32_convolution": bool(torch.backends.cudnn.allow_tf32)}
    return {"eager_flops": int(counter.get_total_flops()), "graph_flops": work.flops(), "graphs": graphs, **flags}


@contextmanager
def _no_fused_layers() -> Iterator[None]:
    """nn.MultiheadAttention and encoder layers by their parts: the one operator of inference has no formula (2.11, 2.15)."""
    import torch

    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def saved_for_backward(step: Step) -> dict[str, Any]:
    """What one step keeps for its backward beyond parameters, buffers and inputs: bytes of distinct storages, and the largest by kind."""
    import torch

    known = {storage_of(held.tensor) for held in find_state(step.original, step.arguments, step.keywords).held.values()}
    storages: dict[int, int] = {}
    kinds: Counter[tuple[tuple[int, ...], str]] = Counter()
    sizes: dict[tuple[tuple[int, ...], str], int] = {}

    def note(tensor: Any) -> Any:
        place = storage_of(tensor)
        if place is not None and place not in known and place not in storages:
            storages[place] = tensor.untyped_storage().nbytes()
            kind = (tuple(int(size) for size in tensor.shape), str(tensor.dtype).removeprefix("torch."))
            kinds[kind] += 1
            sizes[kind] = sizes.get(kind, 0) + storages[place]
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        step.run()
    largest = sorted(sizes, key=lambda kind: -sizes[kind])[:_KINDS]
    listed = [{"shape": list(kind[0]), "dtype": kind[1], "count": kinds[kind], "bytes": sizes[kind]} for kind in largest]
    return {"saved_bytes": sum(storages.values()), "saved": listed}
