"""torch's global state: as it was while a graph from a log runs, and as it was at the capture for a call; fake tensors for large graphs."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist


@contextlib.contextmanager
def kept_global_state() -> Iterator[None]:
    """Grad mode, autocast, RNG and functorch's level are afterwards what they were, even when the graph stopped half-way."""
    grad, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    forward_grad = torch._C._is_fwd_grad_enabled()
    levels = _functorch_depth()
    autocast = {kind: (torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in ("cpu", "cuda")}
    cache = torch.is_autocast_cache_enabled()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        _pop_functorch(levels)
        if torch.is_inference_mode_enabled() == inference:
            torch._C._set_grad_enabled(grad)
        torch._C._set_fwd_grad_enabled(forward_grad)
        for kind, (enabled, dtype) in autocast.items():
            torch.set_autocast_enabled(kind, enabled)
            torch.set_autocast_dtype(kind, dtype)
        torch.set_autocast_cache_enabled(cache)


def _functorch_depth() -> int:
    from torch._C import _functorch

    return int(_functorch.get_dynamic_layer_stack_depth())


def _pop_functorch(levels: int) -> None:
    """Leave the innermost levels, each through its own function.

    torch 2.11's `pop_dynamic_layer_stack_and_undo_to_depth` takes two levels off a round (aten/src/ATen/functorch/DynamicLayer.cpp:219
    asserts then); 2.15's takes one.
    """
    from torch._C import _functorch

    leave = {
        _functorch.TransformType.Vmap: _functorch._vmap_decrement_nesting,
        _functorch.TransformType.Grad: _functorch._grad_decrement_nesting,
        _functorch.TransformType.Jvp: _functorch._jvp_decrement_nesting,
        _functorch.TransformType.Functionalize: _functorch._func_decrement_nesting,
    }
    while _functorch.get_dynamic_layer_stack_depth() > levels:
        innermost = _functorch.peek_interpreter_stack()
        leave[innermost.key()]()


def lazy_graph_module(root: torch.nn.Module, graph: torch.fx.Graph) -> torch.fx.GraphModule:
    """A graph module that writes its Python code when it is first called, not now (torch/fx/_lazy_graph_module.py, 2.11 and 2.15)."""
    from torch.fx._lazy_graph_module import _LazyGraphModule

    return _LazyGraphModule(root, graph, class_name="GraphModule")


def fake_mode_for() -> Any:
    """A fake tensor mode whose data-dependent sizes are symbols, so that nonzero and item have a result."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    return FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv())


Layout = tuple[tuple[int, ...], tuple[int, ...], torch.dtype, str, bool]


def why_it_cannot_run(module: torch.fx.GraphModule, inputs: Sequence[Layout | Any]) -> str | None:
    """The error of a run on fake tensors, in one line; None when it runs, or when fake tensors cannot tell.

    An input is its layout (shape, stride, dtype, device, requires_grad), or the value itself when it is no tensor.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    quiet = contextlib.redirect_stderr(io.StringIO())
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    with quiet, kept_global_state(), warnings.catch_warnings(), fake, torch.enable_grad():
        warnings.simplefilter("ignore")
        try:
            module.forward(*[_fake(input_) for input_ in inputs])
        except Exception as error:  # noqa: BLE001 - the border around a candidate
            return None if _cannot_tell(error) else f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"
    return None


def _fake(pair: Layout | Any) -> Any:
    if not (isinstance(pair, tuple) and len(pair) == 5 and isinstance(pair[2], torch.dtype)):
        return pair
    shape, stride, dtype, device, requires_grad = pair
    made = torch.empty_strided(shape, stride, dtype=dtype, device=device)
    return made.requires_grad_() if requires_grad else made


def _cannot_tell(error: Exception) -> bool:
    """Errors of fake tensors themselves: values that decide shapes, operators that have no rule for them."""
    from torch._subclasses import fake_tensor

    names = (
        "DataDependentOutputException",
        "DynamicOutputShapeException",
        "UnsupportedFakeTensorException",
        "UnsupportedOperatorException",
    )
    kinds = tuple(kind for name in names if isinstance(kind := getattr(fake_tensor, name, None), type))
    return isinstance(error, (*kinds, NotImplementedError)) or "FakeTensor" in str(error) or "Dynamo" in type(error).__name__


# What was in force around a graph when it was captured, for a call of it, and everything as before afterwards.


@contextlib.contextmanager
def surroundings(
    groups: Mapping[str, int],
    *,
    grad: bool | None = None,
    inference: bool = False,
    autocast: tuple[str, Any] | None = None,
) -> Iterator[None]:
    """Process groups, grad or inference mode and autocast (device and dtype); grad None leaves that mode as it is. Warnings are ignored."""
    with kept_global_state(), fake_process_groups(groups), warnings.catch_warnings(), contextlib.ExitStack() as stack:
        warnings.simplefilter("ignore")
        if autocast is not None:
            stack.enter_context(torch.autocast(autocast[0], dtype=autocast[1]))
        if inference:
            stack.enter_context(torch.inference_mode())
        else:
            stack.enter_context(torch.set_grad_enabled(torch.is_grad_enabled() if grad is None else grad))
        yield


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without stderr: FX prints the generated code there when a sub graph raises (torch/fx/graph_module.py `_WrappedCall`)."""
    with contextlib.redirect_stderr(io.StringIO()):
        yield


@contextlib.contextmanager
def fake_process_groups(sizes: Mapping[str, int]) -> Iterator[None]:
    """Inside, every name in `sizes` is a process group of that many ranks in which we are rank 0. Nothing happens when there are none.

    The groups do not communicate: shapes are right, values are not (torch/testing/_internal/distributed/fake_pg.py, 2.11, 2.15).
    """
    if not sizes or not dist.is_available():
        yield
        return
    from torch._C import _distributed_c10d as c10d

    started = not dist.is_initialized()
    if started:
        from torch.testing._internal.distributed.fake_pg import FakeStore

        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=max(sizes.values()))
    registered: list[Any] = []
    try:
        for name, size in sizes.items():
            _register(c10d, name, size, registered)
        yield
    finally:
        del registered
        if started:
            dist.destroy_process_group()


def _register(c10d: Any, name: str, size: int, registered: list[Any]) -> None:
    try:
        if c10d._resolve_process_group(name).size() == size:
            return
        c10d._unregister_process_group(name)
    except (RuntimeError, ValueError):
        pass
    group = dist.new_group(ranks=list(range(size)), backend="fake")
    registered.append(group)
    c10d._register_process_group(name, group)
