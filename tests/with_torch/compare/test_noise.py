"""What other eager runs say of how exactly a call computes, and how much of a difference that explains."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from dynadiag.compare.judge import EXPLAIN, Noise, Runs, Seen, judge
from dynadiag.compare.noise import noisy_runs
from dynadiag.torch_compat.dispatch.rounding import CoarsestRounding, uses_tf32


def _convolution(device: str) -> torch.Tensor:
    return torch.nn.functional.conv2d(torch.empty(2, 3, 8, 8, device=device), torch.empty(4, 3, 3, 3, device=device))


def _product(device: str) -> torch.Tensor:
    return torch.nn.functional.linear(torch.empty(4, 4, device=device), torch.empty(4, 4, device=device))


@pytest.mark.parametrize(
    ("function", "device", "precision", "expected"),
    [
        (_convolution, "cuda", "highest", True),
        (_product, "cuda", "highest", False),
        (_product, "cuda", "high", True),
        (_convolution, "cpu", "high", False),
        (_product, "cpu", "high", False),
    ],
)
def test_products_that_may_be_computed_in_tf32_are_seen(function, device, precision, expected):
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        with FakeTensorMode(), CoarsestRounding() as seen:
            function(device)
    finally:
        torch.set_float32_matmul_precision(before)
    assert seen.tf32 is expected


def test_the_newer_way_to_ask_for_tf32_is_read():
    before = torch.get_float32_matmul_precision()
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    try:
        assert uses_tf32(convolution=False)
    finally:
        torch.set_float32_matmul_precision(before)
    assert not uses_tf32(convolution=False)


def _differs(eager: torch.Tensor, compiled: torch.Tensor, runs: Runs) -> bool:
    found = judge([Seen("output", 0, "output 0", eager)], [compiled], Noise(runs=lambda _: runs), EXPLAIN)
    return any(one.differences for one in found)


def test_float32_off_by_a_rounding_of_tf32_is_wrong_only_where_tf32_is_used():
    eager = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    compiled = eager * (1 + 4e-4 * torch.randn(64, 64, generator=torch.Generator().manual_seed(1)))
    assert _differs(eager, compiled, Runs(exact=[eager.double()]))
    assert not _differs(eager, compiled, Runs(exact=[eager.double()], tf32=True))


def test_few_elements_may_be_as_far_off_as_a_few_others_in_another_eager_run():
    """A rounding that turns a ReLU moves a row of a weight's gradient (ResNet-18 under fp16 autocast on an H200, torch 2.11)."""
    generator = torch.Generator().manual_seed(0)
    eager = torch.randn(200, 200, generator=generator)
    run, compiled = (eager + 1e-4 * torch.randn(200, 200, generator=generator) for _ in range(2))
    run[3, :3] += 0.6
    compiled[150, 7] += 0.8
    assert not _differs(eager, compiled, Runs(exact=[eager.double()], further=[[run]], coarsest=torch.float16))
    compiled[150, 7] += 2.0
    assert _differs(eager, compiled, Runs(exact=[eager.double()], further=[[run]], coarsest=torch.float16))


def test_noisy_runs_tell_what_they_compute_in_and_leave_out_what_fails():
    def run(seed, change):
        if seed == 2:
            raise ValueError("not with these values")
        return change(torch.linspace(1, 2, 100)).half()

    found, same, seen = noisy_runs(run, 3)
    assert (len(found), len(same)) == (2, 2)
    assert torch.equal(*same), "the same values, and nothing here is added up"
    assert (seen.half, seen.tf32) == (torch.float16, False)
    assert not torch.equal(*found)
