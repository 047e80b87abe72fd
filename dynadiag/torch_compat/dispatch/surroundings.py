"""What was in force around a graph when it was captured, for a call of it, and everything as before afterwards."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist

from dynadiag.torch_compat.dispatch.state import kept_global_state


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
