"""Process groups that do not communicate, under the names that a graph's collectives ask for.

torch/testing/_internal/distributed/fake_pg.py (2.11, 2.15): a fake group "hallucinates" communication; shapes are right, values are not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch.distributed as dist


@contextlib.contextmanager
def fake_process_groups(sizes: Mapping[str, int]) -> Iterator[None]:
    """Inside, every name in `sizes` is a process group of that many ranks in which we are rank 0. Nothing happens when there are none."""
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
