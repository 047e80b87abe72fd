# ruff: noqa: C416, I001, RET504, E731, UP031
"""Cases of advice: comparisons and lists of tensors, shapes that depend on data, random numbers."""

import random

import numpy as np
import torch
from advice_cases import option

SCALARS = "torch._dynamo.config.capture_scalar_outputs = True"
SHAPES = "torch._dynamo.config.capture_dynamic_output_shape_ops = True"
PRINT = "torch._dynamo.config.reorderable_logging_functions.add(print)"
LOSSES = []


def leaf():
    return (torch.tensor([1.0, 2.0, 3.0], requires_grad=True),)


class compares_tensors:
    breaks = {"GB0033"}

    def before(x):
        if torch.equal(x, x):
            return x + 1
        return x * 2


class asserts_closeness:
    breaks = {"GB0033"}

    def before(x):
        assert torch.allclose(x, x), "not close"
        return x * 2

    def equal_tensor(x):
        assert torch.isclose(x, x).all(), "not close"
        return x * 2


class lists_a_float_tensor:
    breaks = {"GB0109"}

    def before(x):
        y = x.tolist()
        return x * y[0]


class lists_an_int_tensor:
    breaks = {"GB0033"}

    def inputs():
        return (torch.tensor([1, 2, 3]),)

    def before(x):
        y = x.tolist()
        return x * y[0]


class finds_nonzero:
    breaks = {"GB0036"}

    def before(x):
        return torch.nonzero(x) + 1

    shape_capture = option(SHAPES)


class selects_by_mask:
    breaks = {"GB0036"}
    grads = True
    inputs = leaf

    def before(x):
        return torch.masked_select(x, x > 1).sum()

    shape_capture = option(SHAPES)

    def mask_where(x):
        return torch.where(x > 1, x, 0).sum()


class indexes_by_mask:
    breaks = {"GB0036"}

    def before(x):
        return x[x > 1].sum()

    shape_capture = option(SHAPES)

    def mask_where(x):
        return torch.where(x > 1, x, 0).sum()


class repeats_rows:
    breaks = {"GB0036"}

    def inputs():
        return torch.arange(3.0), torch.tensor([1, 2, 1])

    def before(x, r):
        return torch.repeat_interleave(x, r) * 2

    shape_capture = option(SHAPES)


class finds_unique:
    breaks = {"GB0036"}

    def before(x):
        return torch.unique(x) * 2

    shape_capture = option(SHAPES)


class encodes_one_hot:
    breaks = {"GB0246"}

    def inputs():
        return (torch.tensor([1, 2, 0]),)

    def before(x):
        return torch.nn.functional.one_hot(x) * 2


class draws_with_python:
    breaks = {"GB0170"}
    breaks_old = {"GB0007"}
    shapes_only = True

    def before(x):
        if random.random() < 0.5:
            return x + 1
        return x * 2


class draws_with_numpy:
    breaks = {"GB0033"}
    shapes_only = True

    def before(x):
        return x * np.random.rand()


class indexes_a_list_by_data:
    breaks = {"GB0124"}

    def before(x):
        parts = [x, x * 2, x * 3]
        return parts[int(x.argmax())]
