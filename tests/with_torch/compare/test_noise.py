"""What other eager runs say of how exactly a call computes, and how much of a difference that explains."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from dynadiag.compare.judge import EXPLAIN, Noise, Runs, Seen, judge
from dynadiag.compare.noise import noisy_runs
from dynadiag.torch_compat.dispatch import rounding
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


class InTF32(torch.autograd.Function):
    """A convolution with 1 x 1 kernels whose backward rounds its factors to ten bits."""

    @staticmethod
    def forward(ctx, values, weight):
        ctx.save_for_backward(weight)
        return torch.nn.functional.conv2d(values, weight)

    @staticmethod
    def backward(ctx, gradient):
        short, weight = (((one.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32) for one in (gradient, *ctx.saved_tensors))
        return torch.nn.functional.conv_transpose2d(short, weight), None


@pytest.mark.parametrize(("off", "wrong"), [(0.0, False), (1.0, True)])
def test_a_gradient_that_is_zero_may_be_what_tf32_leaves_of_its_terms(monkeypatch, off, wrong):
    """The bias between a convolution and a batch norm: eager's kernel added up to 3e-8, compiled code to 1.5e-4 (ShuffleNet, H100)."""
    monkeypatch.setattr(rounding, "_on_tf32_device", lambda value: value.dtype is torch.float32)
    generator = torch.Generator().manual_seed(0)
    values, weight, scale = (torch.randn(shape, generator=generator) for shape in ((4, 24, 8, 8), (24, 24, 1, 1), (4, 24, 8, 8)))

    def run(convolution, change=lambda one: one, dtype=torch.float32):
        bias = change(torch.zeros(24)).to(dtype).requires_grad_()
        one, two, three = (change(value).to(dtype) for value in (values, weight, scale))
        with_bias = convolution(one + bias.reshape(1, -1, 1, 1), two)
        return torch.autograd.grad((torch.nn.functional.batch_norm(with_bias, None, None, training=True) * three).sum(), bias)

    eager, compiled = run(torch.nn.functional.conv2d)[0], run(InTF32.apply)[0]
    assert compiled.abs().max() > 100 * eager.abs().max()
    further, same, seen = noisy_runs(lambda _, change: run(torch.nn.functional.conv2d, change), 3)
    runs = Runs(exact=run(torch.nn.functional.conv2d, dtype=torch.float64), further=further, same=same, tf32=seen.tf32)
    assert _differs(eager, compiled + off, runs) is wrong


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
