"""What a proof compares of tensors of `torch.distributed`: what a collective gives, once it is there, and a rank's part of a DTensor."""

import pytest
import torch
import torch.distributed as dist

from dynadiag.capture.compiled_calls import CompiledCallable
from dynadiag.fix.inside.judging import first_difference
from dynadiag.fix.inside.observing import CallLog


@pytest.fixture
def alone():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()
    torch._dynamo.reset()


def calls(run, *values):
    log = CallLog(most=1, cap_bytes=1 << 30, vary=0)
    after = log.before(CompiledCallable(number=1, name="program", place="", compiled=run, options={}), 1, values, {})
    after(run(*values), None)
    log.end()
    return log.calls


def test_the_result_of_a_collective_is_compared_once_it_is_there(alone):
    """Eager gives an AsyncCollectiveTensor, compiled code a tensor (functional collectives, torch 2.11 and 2.15)."""
    from torch.distributed import _functional_collectives as collectives

    def total(x):
        return collectives.all_reduce(x * 2, "sum", dist.group.WORLD)

    def other(x):
        return collectives.all_reduce(x * 3, "sum", dist.group.WORLD)

    x = torch.arange(4.0)
    assert type(total(x)) is not torch.Tensor
    eager, compiled = calls(total, x), calls(torch.compile(total, backend="aot_eager"), x)
    assert first_difference(eager, compiled, calls(total, x), []) is None
    assert "output output 0" in first_difference(eager, calls(other, x), calls(total, x), [])


def test_of_a_dtensor_the_part_of_the_rank_is_compared(alone):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (1,))

    def same(value):
        return value

    def called(values, placement):
        return calls(same, distribute_tensor(values, mesh, [placement]))

    x = torch.arange(4.0)
    eager = called(x, Shard(0))
    assert first_difference(eager, called(x, Shard(0)), eager, []) is None
    assert "value was 0, now 1" in first_difference(eager, called(x + 1, Shard(0)), eager, [])
    assert "was DTensor (Shard(dim=0),), now DTensor (Replicate(),)" in first_difference(eager, called(x, Replicate()), eager, [])
