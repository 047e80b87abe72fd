"""The option that DF12 advises: compiled code then draws NumPy's own numbers, as eager does."""

import numpy
import pytest
import torch

pytestmark = pytest.mark.any_torch


def noisy(x):
    return x + torch.from_numpy(numpy.random.rand(3))


@pytest.mark.parametrize("own", [False, True])
def test_numpy_draws_by_itself_with_the_option(own):
    torch._dynamo.reset()
    with torch._dynamo.config.patch(use_numpy_random_stream=own):
        compiled = torch.compile(noisy, backend="eager")
        numpy.random.seed(0)
        eager = [noisy(torch.zeros(3)) for _ in range(2)]
        numpy.random.seed(0)
        drawn = [compiled(torch.zeros(3)) for _ in range(2)]
    assert all(map(torch.equal, drawn, eager)) is own
