"""What a step has to do, whatever compiles it: operations, bytes, and what is kept for backward. Asked after all timing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

from dynadiag.bench.inside.loading import CompileSwitch
from dynadiag.bench.inside.reference import eager_stance
from dynadiag.bench.inside.results import storage_of
from dynadiag.bench.inside.steps import TimedStep
from dynadiag.capture.reach import find_state
from dynadiag.torch_compat.aot.graph_costs import StepWork, counting_backend

_KINDS = 20
_Kind = tuple[tuple[int, ...], str]


_COPY_BYTES = 1 << 30
_SIZE = 8192
_TRIES = 7


def step_work(step: TimedStep, switch: CompileSwitch) -> dict[str, Any]:
    """Operations of one uncompiled step, and of the AOT graphs of the same step with their bytes (static shapes, nothing recomputed)."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from dynadiag.torch_compat.dispatch.rounding import uses_tf32

    with eager_stance(False), _no_fused_layers(), FlopCounterMode(display=False) as counter:
        step.run_step(step.original)
    torch.compiler.reset()
    work = StepWork()
    with torch.compiler.set_stance("default"), _no_fused_layers(), _compiled_modules(switch, counting_backend(work)) as backend:
        function = switch.original(step.original, backend=backend, dynamic=False)
        step.run_step(function)
        work.forget_runs()
        step.run_step(function)
    torch.compiler.reset()
    graphs = [{"flops": graph.flops, "bytes": graph.bytes, "runs": graph.runs} for graph in work.graphs if graph.runs]
    flags = {"tf32_matmul": uses_tf32(convolution=False), "tf32_convolution": uses_tf32(convolution=True)}
    return {"eager_flops": int(counter.get_total_flops()), "graph_flops": work.flops(), "graphs": graphs, **flags}


@contextmanager
def _compiled_modules(switch: CompileSwitch, backend: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """The modules that the program compiles, compiled by `backend`: Dynamo leaves a whole step with a loop around a backward, and of
    what that calls it compiles functions, but no frame of torch's own modules (`torch/_dynamo/trace_rules.py`, 2.11 to 2.15).
    """
    before = [module.__dict__.get("_compiled_call_impl") for module in switch.modules]
    for module in switch.modules:
        module._compiled_call_impl = switch.original(_plain_call(module), backend=backend, dynamic=False)
    try:
        yield backend
    finally:
        for module, compiled in zip(switch.modules, before, strict=True):
            module._compiled_call_impl = compiled


def _plain_call(module: Any) -> Callable[..., Any]:
    """A frame of ours around a module's call: 2.11 skips that of torch's own modules."""

    def call(*args: Any, **keywords: Any) -> Any:
        return module._call_impl(*args, **keywords)

    return call


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


def saved_for_backward(step: TimedStep) -> dict[str, Any]:
    """What one step keeps for its backward beyond parameters, buffers and inputs: bytes of distinct storages, and the largest by kind.

    Where a step goes backward several times, the most that is kept at one time.
    """
    import torch

    known = {storage_of(held.tensor) for held in find_state(step.original, step.arguments, step.keywords).held.values()}
    saved = _Saved(known)
    with torch.autograd.graph.saved_tensors_hooks(saved.pack, lambda kept: kept.tensor):
        step.run_step()
    saved.look()
    kinds = Counter(kind for kind, _ in saved.most)
    sizes: Counter[_Kind] = Counter()
    for kind, size in saved.most:
        sizes[kind] += size
    largest = sorted(sizes, key=lambda kind: -sizes[kind])[:_KINDS]
    listed = [{"shape": list(kind[0]), "dtype": kind[1], "count": kinds[kind], "bytes": sizes[kind]} for kind in largest]
    return {"saved_bytes": sum(sizes.values()), "saved": listed}


class _Saved:
    """Follows what is kept for backward: `most` are the kinds and bytes of the storages at the moment when they were most."""

    def __init__(self, known: Collection[Any]) -> None:
        self._known = known
        self._there: dict[Any, list[Any]] = {}
        self._bytes = self._most_bytes = 0
        self.most: tuple[tuple[_Kind, int], ...] = ()

    def pack(self, tensor: Any) -> _Kept:
        """What autograd keeps in place of a tensor."""
        place = storage_of(tensor)
        if place is None or place in self._known:
            return _Kept(tensor, lambda: None)
        if place not in self._there:
            kind = (tuple(int(size) for size in tensor.shape), str(tensor.dtype).removeprefix("torch."))
            size = tensor.untyped_storage().nbytes()
            self._there[place] = [0, kind, size]
            self._bytes += size
        self._there[place][0] += 1
        return _Kept(tensor, lambda: self._drop(place))

    def look(self) -> None:
        """Note what is there if that is the most so far."""
        if self._bytes > self._most_bytes:
            self._most_bytes = self._bytes
            self.most = tuple((kind, size) for _, kind, size in self._there.values())

    def _drop(self, place: Any) -> None:
        self.look()
        entry = self._there[place]
        entry[0] -= 1
        if not entry[0]:
            self._bytes -= self._there.pop(place)[2]


class _Kept:
    """A saved tensor that says when nobody keeps it any more."""

    def __init__(self, tensor: Any, dropped: Callable[[], None]) -> None:
        self.tensor = tensor
        self._dropped = dropped

    def __del__(self) -> None:
        self._dropped()


def measure_ceilings() -> dict[str, Any]:
    """The best of several tries each. Only for CUDA; raises torch's OutOfMemoryError where 3 GiB are not free."""
    import torch

    matmul: Any = torch.backends.cuda.matmul
    # `allow_tf32` raises where the program has set `fp32_precision`, which torch has from 2.9 on.
    option, on, off = ("fp32_precision", "tf32", "ieee") if hasattr(matmul, "fp32_precision") else ("allow_tf32", True, False)
    before = getattr(matmul, option)
    rates: dict[str, float] = {}
    try:
        for name, dtype in (("float32", torch.float32), ("tf32", torch.float32), ("float16", torch.float16), ("bfloat16", torch.bfloat16)):
            setattr(matmul, option, on if name == "tf32" else off)
            rates[name] = 2 * _SIZE**3 / _best_s(*_product(dtype))
    finally:
        setattr(matmul, option, before)
    source = torch.randn(_COPY_BYTES // 4, device="cuda")
    target = torch.empty_like(source)
    copied = 2 * _COPY_BYTES / _best_s(target.copy_, source)
    properties: Any = torch.cuda.get_device_properties(torch.cuda.current_device())
    return {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "copy_bytes_per_s": copied,
        "matmul_flops_per_s": rates,
        "l2_bytes": int(getattr(properties, "L2_cache_size", 0)),
    }


def _product(dtype: Any) -> tuple[Any, ...]:
    import torch

    left, right = (torch.randn(_SIZE, _SIZE, device="cuda", dtype=dtype) for _ in range(2))
    return torch.mm, left, right


def _best_s(function: Any, *arguments: Any) -> float:
    import torch

    best = float("inf")
    function(*arguments)
    event: Any = torch.cuda.Event
    for _ in range(_TRIES):
        began, ended = event(enable_timing=True), event(enable_timing=True)
        began.record()
        function(*arguments)
        ended.record()
        torch.cuda.synchronize()
        best = min(best, began.elapsed_time(ended) / 1e3)
    return best
