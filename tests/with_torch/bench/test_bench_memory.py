"""Memory that an arm holds: the pools of CUDA graphs count, though the allocator counts them as free."""

import pytest
import torch

from dynadiag.bench.inside.arm import held_by_cuda_graphs

pytestmark = pytest.mark.any_torch


def test_what_cuda_graphs_hold_for_their_replays_is_counted(monkeypatch):
    def segment(pool, total, allocated):
        return {"segment_pool_id": pool, "total_size": total, "allocated_size": allocated}

    segments = [segment((0, 0), 900, 100), segment((0, 1), 700, 50), segment((3, 0), 80, 80), {"total_size": 5, "allocated_size": 1}]
    monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda: segments)
    assert held_by_cuda_graphs() == 650
